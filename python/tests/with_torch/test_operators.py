"""torch.ops.fp16lab.matmul."""

from __future__ import annotations

import pytest
import torch

import fp16lab
import fp16lab.torch as lab

matmul = torch.ops.fp16lab.matmul
SHAPES = [
    ((4, 6), (6, 5)),
    ((2, 4, 6), (6, 5)),
    ((3, 1, 4, 6), (2, 6, 5)),
    ((6,), (6, 5)),
    ((4, 6), (6,)),
    ((6,), (6,)),
]


@pytest.mark.parametrize("a_shape, b_shape", SHAPES)
def test_values_and_gradients(a_shape, b_shape):
    torch.manual_seed(1)
    a, b = torch.randn(a_shape).half().requires_grad_(), torch.randn(b_shape).half().requires_grad_()
    result = matmul(a, b, "volta", "f32", torch.float32)
    assert result.equal(torch.as_tensor(fp16lab.matmul(a.detach(), b.detach(), "volta", out="f32")))
    gradient = torch.randn(result.shape)
    result.backward(gradient)
    exact_a, exact_b = (t.detach().double().requires_grad_() for t in (a, b))
    torch.matmul(exact_a, exact_b).backward(gradient.half().double())
    for own, exact in ((a, exact_a), (b, exact_b)):
        assert own.grad.dtype == torch.float16
        assert (own.grad - exact.grad).abs().max() <= 0.01 * exact.grad.abs().max()


@pytest.mark.parametrize("a_shape, b_shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pytorchs_own_check(a_shape, b_shape, dtype):
    a, b = torch.randn(a_shape).to(dtype).requires_grad_(), torch.randn(b_shape).to(dtype).requires_grad_()
    torch.library.opcheck(matmul.default, (a, b, "hopper"))
    torch.library.opcheck(matmul.default, (a, b, "hopper", "f32", torch.float32))


def test_gradient_products_have_the_bits_of_the_model():
    torch.manual_seed(2)
    a, b = torch.randn(5, 70).half().requires_grad_(), torch.randn(70, 9).half()
    g = torch.randn(5, 9).half()
    (of_a,) = torch.autograd.grad(matmul(a, b, "volta"), a, g)
    assert of_a.equal(fp16lab.matmul(g, b.t(), "volta"))


def test_exported_and_beside_emulate():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return torch.ops.fp16lab.matmul(x, x.mT, "volta")

    x = torch.randn(3, 4).half()
    program = torch.export.export(Layer(), (x,))
    assert program.module()(x).equal(Layer()(x))
    with lab.emulate("hopper") as run:
        assert Layer()(x).equal(fp16lab.matmul(x, x.mT, "volta"))
    assert {row["op"] for row in run.op_stats()} >= {"fp16lab::matmul"}


def test_errors():
    with pytest.raises(ValueError, match="voltage"):
        matmul(torch.ones(2, 2).half(), torch.ones(2, 2).half(), "voltage")
    with pytest.raises(TypeError, match="out_dtype is torch.float64"):
        matmul(torch.ones(2, 2).half(), torch.ones(2, 2).half(), out_dtype=torch.float64)
