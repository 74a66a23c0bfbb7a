"""Orders of torch's products: of emulated tensor cores, of loops of tensors, refusals."""

from __future__ import annotations

import pytest
import torch

import fp16lab
import fp16lab.torch as lab


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("model", "words"), [("ampere", "chain of 5 blocks of 8"), ("hopper", "chain of 2 blocks of 16 and one of 8")]
)
def test_emulated_products(model, words, dtype):
    with lab.emulate(model):
        tree = lab.reveal(torch.mm, 40, dtype, shape=(3, 2), at=(2, 1))
        transposed = lab.reveal(lambda a, b: torch.bmm(b.t()[None], a.t()[None])[0].t(), 40, dtype)
    assert tree.in_words == words and tree == transposed


def test_a_sum_of_more_than_bfloat16_counts():
    def chain(a, b):
        total = torch.zeros(1, 1)
        for i in range(a.shape[1]):
            total = total + a[:, i : i + 1].float() * b[i : i + 1].float()
        return total.to(a.dtype)

    assert lab.reveal(chain, 300).in_words == "ascending chain of 300"
    numpys = fp16lab.reveal(lambda terms: terms.cumsum(dtype="f4")[-1], 300)
    assert lab.reveal(chain, 300, torch.float32) == numpys


def test_refusals():
    with pytest.raises(TypeError, match="one of float64, float32, bfloat16, float16"):
        lab.reveal(torch.mm, 8, torch.int8)
    with pytest.raises(ValueError, match="an element of a result"):
        lab.reveal(torch.mm, 8, at=(1, 0))
    with pytest.raises(TypeError, match=r"shape is 4; two whole numbers, \(m, n\) such as \(64, 64\), are needed"):
        lab.reveal(torch.mm, 8, shape=4)
    with pytest.raises(TypeError, match="a tensor of the shape"):
        lab.reveal(lambda a, b: a, 8)
