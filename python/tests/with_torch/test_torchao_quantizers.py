"""Quantizers, beside those that torchao runs on a CPU: MX by every rule of a scale, NVFP4 of one and two levels, float8."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fp16lab

pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS = 128, 512


def arrays():
    random = np.random.default_rng(5)
    words = random.integers(0, 2**32, (ROWS, COLUMNS), dtype=np.uint64).astype(np.uint32).view(np.float32)
    normal = random.standard_normal((ROWS, COLUMNS))
    with np.errstate(over="ignore"):
        sizes = normal * 2.0 ** random.integers(-149, 127, (ROWS, COLUMNS // 16)).repeat(16, 1)
    powers = 2.0 ** random.integers(-140, 120, normal.shape) * random.choice([1, -1, 1.5, 1.75, 1.25], normal.shape)
    yield "normal", normal
    yield "words", np.where(np.isfinite(words), words, 0)
    yield "sizes", sizes
    yield "powers of two", powers
    yield "sparse", np.where(random.random(normal.shape) < 0.9, 0, normal)
    yield "infinities", np.where(random.random(normal.shape) < 0.01, np.inf, normal)


CASES = [(kind, torch.from_numpy(x.astype(np.float32))) for kind, x in arrays()]


def codes_of(data: torch.Tensor, four_bits: bool) -> torch.Tensor:
    words = data.view(torch.uint8).reshape(ROWS, -1)
    return torch.stack((words & 15, words >> 4), -1).reshape(ROWS, COLUMNS) if four_bits else words


@pytest.mark.parametrize("rule", ["floor", "ceil", "even", "rceil"])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4"])
def test_mx(name, rule):
    from torchao.prototype.mx_formats import config, constants, mx_tensor

    element = {
        "mxfp8": torch.float8_e4m3fn,
        "mxfp8-e5m2": torch.float8_e5m2,
        "mxfp6-e3m2": constants.DTYPE_FP6_E3M2,
        "mxfp6-e2m3": constants.DTYPE_FP6_E2M3,
        "mxfp4": torch.float4_e2m1fn_x2,
    }[name]
    for kind, x in CASES:
        scales, data = mx_tensor.to_mx(x, element, 32, config.ScaleCalculationMode[rule.upper()])
        q = fp16lab.quantize(x, name, rule=rule)
        np.testing.assert_array_equal(q.scale_codes, scales.view(torch.uint8).numpy(), kind)
        assert torch.equal(q.codes, codes_of(data, name == "mxfp4")), kind


def test_rceil_just_above_a_power_of_two_is_that_of_the_instruction():
    """torchao's form for CPUs takes log2 in FP32, which is 2^k itself for the first numbers after it; PTX's cvt.rp,
    and TransformerEngine, go on to the next power."""
    from torchao.prototype.mx_formats import config, mx_tensor

    x = torch.full((1, 32), 448 * 2.0**60 * (1 + 2.0**-22))
    scales, _ = mx_tensor.to_mx(x, torch.float8_e4m3fn, 32, config.ScaleCalculationMode.RCEIL)
    q = fp16lab.quantize(x, "mxfp8", rule="rceil")
    assert q.scales.item() == 2.0**61 and q.saturated.item() == 0
    assert scales.float().item() == 2.0**60


@pytest.mark.parametrize("levels", [1, 2])
def test_nvfp4(levels):
    from torchao.prototype.mx_formats import nvfp4_tensor

    for kind, x in CASES:
        if kind == "infinities" and levels == 2:
            continue  # NaN everywhere, for which E2M1 has no code
        of_tensor = nvfp4_tensor.per_tensor_amax_to_scale(x.abs().max()) if levels == 2 else None
        scales, data = nvfp4_tensor.nvfp4_quantize(x, 16, of_tensor)
        q = fp16lab.quantize(x, "nvfp4", rule="torchao", tensor_scale=levels == 2)
        np.testing.assert_array_equal(q.scales, scales.float().numpy(), kind)
        assert torch.equal(q.codes, codes_of(data, True)), kind
        assert levels == 1 or q.tensor_scale == of_tensor.item()


@pytest.mark.parametrize("name", ["fp8-row", "fp8-tensor", "fp8-tensor-e5m2"])
def test_float8(name):
    from torchao.float8 import float8_utils
    from torchao.float8.config import ScalingGranularity

    dtype = torch.float8_e5m2 if "e5m2" in name else torch.float8_e4m3fn
    for kind, x in CASES:
        by_row = dict(scaling_granularity=ScalingGranularity.AXISWISE, axiswise_dim=-1) if name == "fp8-row" else {}
        encode = float8_utils.tensor_to_scale(x, dtype, **by_row)
        expected = float8_utils.to_fp8_saturated(x * encode, dtype)
        q = fp16lab.quantize(x, name, rule="torchao")
        assert torch.equal(q.scales.reshape(encode.shape), encode.reciprocal()), kind
        ours = q.codes.view(dtype).float()  # its NaNs have one sign
        np.testing.assert_array_equal(ours.numpy(), expected.float().numpy(), kind)
        assert torch.equal(ours.signbit() | ours.isnan(), expected.float().signbit() | ours.isnan()), kind


@pytest.mark.parametrize("side", ["activations", "weights"])
def test_fp8_in_blocks(side):
    kernels = pytest.importorskip("torchao.prototype.blockwise_fp8_training.kernels", reason="needs triton")

    for kind, x in CASES:
        x = torch.nan_to_num(x, posinf=1)
        if side == "activations":
            data, scales = kernels.torch_blockwise_scale_act_quant_lhs(x)
            q = fp16lab.quantize(x, "fp8-1x128", rule="torchao")
        else:
            data, scales = kernels.torch_blockwise_scale_weight_quant(x)
            q = fp16lab.quantize(x, "fp8-128x128", rule="torchao")
        assert torch.equal(q.scales, scales.float()), kind
        assert torch.equal(q.codes, data.view(torch.uint8)), kind
