"""lab.emulate on what today's models call beside plain products: experts, FP8 with recipes, bilinear, QAT."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

F = nn.functional
OFFS = torch.tensor([3, 3, 10], dtype=torch.int32)  # the second group is empty
GROUPS = ((0, 0, 3), (1, 3, 3), (2, 3, 10))


def product(a, b, out="f32"):
    """By the library, whose bits are those of `fp16lab mma`; of no terms it is zero."""
    if a.shape[-1] == 0 or a.shape[0] == 0 or b.shape[1] == 0:
        return torch.zeros(a.shape[0], b.shape[1])
    return fp16lab.matmul(a.detach().contiguous(), b.detach().contiguous(), "hopper", out=out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_experts_are_products_of_groups(dtype):
    tokens = torch.randn(16, 16).to(dtype).requires_grad_()
    experts = torch.randn(3, 24, 16).to(dtype).requires_grad_()
    dy = torch.randn(16, 24).to(dtype)
    dy[10:] = 0  # of no group
    with lab.emulate("hopper") as run:
        y = F.grouped_mm(tokens, experts.mT, offs=OFFS)
        y.backward(dy)
    assert run.total("native") == 0 and run.total("emulated") == 3 * 3
    for group, begin, end in GROUPS:
        own = tokens[begin:end], experts[group], dy[begin:end]
        assert torch.equal(y[begin:end], product(own[0], own[1].mT).to(dtype))
        assert torch.equal(tokens.grad[begin:end], product(own[2], own[1]).to(dtype))
        assert torch.equal(experts.grad[group], product(own[2].mT, own[0]).to(dtype))


def fp8(*shape):
    return torch.randn(shape).to(torch.float8_e4m3fn)


def test_scaled_mm_by_recipes():
    scaling = pytest.importorskip("torch.nn.functional").ScalingType
    a, b, bias = fp8(16, 32), fp8(24, 32).t(), torch.randn(24)
    rows, columns, one = torch.rand(16, 1), torch.rand(1, 24), torch.tensor(3.0)
    sums = product(a, b)
    with lab.emulate("hopper") as run:
        by_rows = F.scaled_mm(a, b, rows, scaling.RowWise, columns, scaling.RowWise, bias=bias.bfloat16())
        whole = F.scaled_mm(
            a, b, one, scaling.TensorWise, one, scaling.TensorWise, output_dtype=torch.float32
        )
    assert torch.equal(by_rows, (sums * rows * columns + bias.bfloat16().float()).bfloat16())
    assert torch.equal(whole, sums * one * one) and run.total("emulated") == 2
    blocks = torch.rand(16, 1).to(torch.float8_e8m0fnu), torch.rand(24, 1).to(torch.float8_e8m0fnu)
    with lab.emulate("hopper"), pytest.raises(lab.EmulationError, match="block scales on .hopper., which takes none"):
        F.scaled_mm(a, b, blocks[0], scaling.BlockWise1x32, blocks[1], scaling.BlockWise1x32)


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
def test_scaled_mm_with_block_scales(name, swizzled):
    """By the sums of Blackwell's instruction, which fp16lab.quantized_matmul has; scales of (m, k / block), or in tiles."""
    scaling, swizzle = F.ScalingType, F.SwizzleType
    torch.manual_seed(4)
    x, w = torch.randn(160, 192), torch.randn(64, 192)
    a, b = (fp16lab.quantize(each, name) for each in (x, w))
    four = name != "mxfp8"
    dtype = torch.float4_e2m1fn_x2 if four else torch.float8_e4m3fn
    codes = [torch.as_tensor(q.packed if four else q.codes).view(dtype) for q in (a, b)]
    scale_dtype = torch.float8_e4m3fn if name == "nvfp4" else torch.float8_e8m0fnu
    scales = [torch.from_numpy(q.scale_codes).view(scale_dtype) for q in (a, b)]
    if swizzled:
        mx = pytest.importorskip("torchao.prototype.mx_formats.utils", reason="torchao is not installed")
        scales = [mx.to_blocked(each) for each in scales]
    recipes = [scaling.BlockWise1x16, scaling.TensorWise] if name == "nvfp4" else [scaling.BlockWise1x32]
    of_a, of_b = ([each, *(torch.tensor(q.tensor_scale) for _ in recipes[1:])] for each, q in zip(scales, (a, b)))
    order = [swizzle.SWIZZLE_32_4_4 if swizzled else swizzle.NO_SWIZZLE] * len(recipes)
    with lab.emulate("b200") as run:
        result = F.scaled_mm(
            codes[0], codes[1].t(), of_a, recipes, of_b, recipes, order, order, output_dtype=torch.float32
        )
    assert run.total("emulated") == 1
    down = fp16lab.quantize(w.T.contiguous(), name, axis=-2)
    assert torch.equal(result, fp16lab.quantized_matmul(a, down))
    with lab.emulate("hopper"), pytest.raises(lab.EmulationError, match='block scales on .hopper., which takes none'):
        F.scaled_mm(codes[0], codes[1].t(), of_a, recipes, of_b, recipes, order, order)
    with lab.emulate("b200"), pytest.raises(ValueError, match="scale_a is torch.float8.*is needed"):
        F.scaled_mm(codes[0], codes[1].t(), [of_a[0][:-1], *of_a[1:]], recipes, of_b, recipes, order, order)


def scales(*shape):
    return torch.randint(1, 9, shape).float() / 8


GROUPED_FP8 = {
    "rows": (fp8(10, 32), fp8(3, 24, 32).mT, scales(10), scales(3, 24)),
    "columns": (fp8(3, 16, 32), fp8(10, 32).t(), scales(3, 16), scales(10)),
    "terms": (fp8(16, 10), fp8(24, 10).t(), scales(48), scales(72)),
    "batches": (fp8(3, 16, 32), fp8(3, 24, 32).mT, scales(3, 16), scales(3, 24)),
}


@pytest.mark.parametrize("name", GROUPED_FP8)
@pytest.mark.parametrize("form", [1, 2])
def test_scaled_groups(name, form):
    a, b, scale_a, scale_b = GROUPED_FP8[name]
    offs = None if name == "batches" else OFFS
    with lab.emulate("hopper") as run:
        if form == 1:
            y = torch._scaled_grouped_mm(a, b, scale_a, scale_b, offs=offs, out_dtype=torch.bfloat16)
        else:
            y = torch._scaled_grouped_mm_v2(a, b, [scale_a], [1], [0], [scale_b], [1], [0], offs)
    assert run.total("emulated") == 1 and y.dtype == torch.bfloat16
    for group, begin, end in GROUPS:
        span = slice(begin, end)
        part, left, right, rows, columns = {
            "rows": lambda: (y[span], a[span], b[group], scale_a[span], scale_b[group]),
            "columns": lambda: (y[:, span], a[group], b[:, span], scale_a[group], scale_b[span]),
            "terms": lambda: (
                y[group], a[:, span], b[span], scale_a.view(3, 16)[group], scale_b.view(3, 24)[group]
            ),
            "batches": lambda: (y[group], a[group], b[group], scale_a[group], scale_b[group]),
        }[name]()  # fmt: skip
        assert torch.equal(part, (product(left, right) * rows[:, None] * columns).bfloat16())


def test_sums_that_are_not_rounded():
    """torch.mm(out_dtype=), which PyTorch has for GPUs alone."""
    a, b, c = torch.randn(5, 40).half(), torch.randn(40, 3).half(), torch.randn(5, 3)
    with lab.emulate("hopper") as run:
        assert torch.equal(torch.mm(a, b, out_dtype=torch.float32), product(a, b))
        assert torch.equal(torch.bmm(a[None], b[None], out_dtype=torch.float32)[0], product(a, b))
        assert torch.equal(torch.addmm(c, a, b, out_dtype=torch.float32), product(a, b) + c)
    assert run.total("emulated") == 3


def test_bilinear():
    layer, x, y = nn.Bilinear(9, 7, 5).half(), torch.randn(4, 9).half(), torch.randn(4, 7).half()
    with lab.emulate("hopper") as run:
        result = layer(x, y)
        result.float().sum().backward()
    assert run.total("native") == 0 and layer.weight.grad.abs().sum() > 0
    for o in range(5):
        left = product(x, layer.weight[o]).half()
        dots = torch.stack([product(left[i : i + 1], y[i : i + 1].t())[0, 0] for i in range(4)])
        assert torch.equal(result[:, o], dots.half() + layer.bias[o])


def test_distances():
    x, y = torch.randn(30, 3), torch.randn(40, 3)
    with lab.emulate(f32="tf32") as run:
        many, few = torch.cdist(x, y), torch.cdist(x[:2], y[:2])
        forward = torch.ops.aten._cdist_forward(x, y, 2.0, 1)
        left = torch.cat([-2 * x, x.square().sum(1, True), torch.ones(30, 1)], 1)
        right = torch.cat([y, torch.ones(40, 1), y.square().sum(1, True)], 1)
        expected = (left @ right.t()).clamp_min(0).sqrt()
    assert run.total("emulated") == 3 and torch.equal(many, expected) and torch.equal(forward, expected)
    assert torch.equal(few, torch.cdist(x[:2], y[:2])) and not torch.equal(many, torch.cdist(x, y))


def test_triangular_systems_are_torchs_in_fp32_and_counted():
    a, b = torch.eye(4) + torch.ones(4, 4).tril(), torch.randn(4, 2)
    alone = torch.linalg.solve_triangular(a, b, upper=False)
    with pytest.warns(UserWarning, match="emulated none"), lab.emulate() as run:
        assert torch.equal(torch.linalg.solve_triangular(a, b, upper=False), alone)
    assert run.total("native") == 1
    with lab.emulate(f32="tf32"), pytest.raises(lab.EmulationError, match="order of a GPU's substitution"):
        torch.linalg.solve_triangular(a, b, upper=False)


def fake_quantized(x, scale, zero_point):
    learnt = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -128, 127, 1.0)
    channels = torch.fake_quantize_per_channel_affine(x, torch.ones(4) / 8, torch.zeros(4).int(), 0, -8, 7)
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127) + learnt + channels


def test_quantization_aware_training():
    """Fake quantisers, and the observers in them, are torch's own."""
    alone, inside = (torch.linspace(-2, 2, 24).view(4, 6).requires_grad_() for _ in range(2))
    scale, zero_point = torch.tensor([0.05], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    expected = fake_quantized(alone, scale, zero_point)
    expected.square().sum().backward()
    with lab.emulate() as run:
        result = fake_quantized(inside, scale, zero_point)
        result.square().sum().backward()
    assert torch.equal(result, expected) and torch.equal(inside.grad, alone.grad)
    assert run.total("native") == run.total("emulated") == 0
    state = [torch.ones(1), torch.ones(1), torch.zeros(1), torch.zeros(1), torch.ones(1), torch.zeros(1).int()]
    on = state[0].int(), state[1].int()
    with lab.emulate():
        torch.fused_moving_avg_obs_fake_quant(alone.detach(), *on, *state[2:], 0.01, -128, 127, 0)


CALLS = {
    "experts": lambda x: F.grouped_mm(x.repeat(2, 2).half(), torch.ones(3, 16, 16).half(), offs=OFFS)[:10],
    "distances": lambda x: torch.cdist(x.repeat(4, 1), x.repeat(4, 1)),
    "volumes": lambda x: F.conv3d(x.view(1, 1, 4, 4, 4).half(), torch.ones(2, 1, 2, 2, 2).half()),
    "bilinear": lambda x: F.bilinear(x.half(), x.half(), torch.ones(2, 8, 8).half()),
}


@pytest.mark.parametrize("name", CALLS)
def test_inference_mode_changes_nothing(name):
    x, found = torch.randn(8, 8), []
    for without_gradients in (torch.no_grad, torch.inference_mode):
        with lab.emulate("hopper", f32="tf32") as run, without_gradients():
            found.append((CALLS[name](x), run.total("emulated"), run.total("native")))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1:] == found[1][1:] and found[0][1] > 0
