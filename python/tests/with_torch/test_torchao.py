"""lab.emulate gives the products of torchao's modules, whose weights are of wrapper classes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

torchao = pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")
pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.linspace(-1, 1, 16 * 64).reshape(16, 64).bfloat16()


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).bfloat16()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a.float() - b.float()).norm() < 0.01 * b.float().norm())


def test_weights_in_8_bits(network):
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(network, Int8WeightOnlyConfig())
    with torch.no_grad():
        alone = network(X)
        with lab.emulate("hopper") as run:
            emulated = network(X)
    assert (run.total("emulated"), run.total("native")) == (2, 0)
    assert close(emulated, alone)


def test_training_in_fp8(network):
    from torchao.float8 import convert_to_float8_training

    plain = copy.deepcopy(network)
    convert_to_float8_training(network)
    with lab.emulate("hopper") as run:
        network(X).float().square().mean().backward()
    assert {(row["op"], row["computed"]) for row in run.op_stats() if row["shapes"]} == {
        ("_scaled_mm", "emulated")
    }
    plain(X).float().square().mean().backward()
    for ours, theirs in zip(network.parameters(), plain.parameters()):
        assert (ours.grad.float() - theirs.grad.float()).norm() < 0.1 * theirs.grad.float().norm()


def of_torchao(x, name, of_tensor=None, down=False) -> fp16lab.Quantized:
    """The rows of x as torchao quantizes them; down: as the columns of its transpose."""
    from torchao.prototype.mx_formats import ScaleCalculationMode, mx_tensor, nvfp4_tensor

    if name == "nvfp4":
        scales, codes = nvfp4_tensor.nvfp4_quantize(x, 16, of_tensor)
    else:
        element = torch.float8_e4m3fn if name == "mxfp8" else torch.float4_e2m1fn_x2
        scales, codes = mx_tensor.to_mx(x, element, 32, ScaleCalculationMode.RCEIL)
    words = codes.view(torch.uint8)
    if name != "mxfp8":
        words = torch.stack((words & 15, words >> 4), -1)
    both = [each.reshape(x.shape[0], -1).numpy() for each in (words, scales.float())]
    codes, scales = [each.T.copy() for each in both] if down else both
    how, none = fp16lab.quantizers()[name], np.zeros_like(scales)
    return fp16lab.Quantized(how, -2 if down else -1, codes, scales, 1.0, none, none, none)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4"])
def test_mx_modules_have_blackwells_sums(network, name):
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.quantization import quantize_

    layer, element = network[0], torch.float8_e4m3fn if name == "mxfp8" else torch.float4_e2m1fn_x2
    sums = fp16lab.quantized_matmul(of_torchao(X, name), of_torchao(layer.weight.detach(), name, down=True))
    expected = (torch.from_numpy(sums) + layer.bias.detach().float()).bfloat16()
    quantize_(network, MXDynamicActivationMXWeightConfig(activation_dtype=element, weight_dtype=element))
    with torch.no_grad(), lab.emulate("b200") as run:
        assert torch.equal(layer(X), expected)
        network(X.reshape(2, 8, 64))
    assert (run.total("emulated"), run.total("native")) == (3, 0)
    refused = pytest.raises(lab.EmulationError, match="block scales on 'hopper'")
    with torch.no_grad(), lab.emulate("hopper"), refused:
        network(X)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_nvfp4_modules_have_blackwells_sums(network, monkeypatch, levels):
    """0: scales of tensors from observed batches, which any machine can make; 1, 2: without and with dynamic
    ones, whose conversion asks for an sm_100."""
    from torchao.prototype.mx_formats import NVFP4DynamicActivationNVFP4WeightConfig, inference_workflow
    from torchao.prototype.mx_formats.nvfp4_tensor import per_tensor_amax_to_scale
    from torchao.quantization import quantize_

    layer = network[0]
    weight, of_x, of_weight = layer.weight.detach(), None, None
    if levels != 1:
        of_x, of_weight = (per_tensor_amax_to_scale(each.abs().max()) for each in (X, weight))
    left, right = of_torchao(X, "nvfp4", of_x), of_torchao(weight, "nvfp4", of_weight, down=True)
    expected = torch.from_numpy(fp16lab.quantized_matmul(left, right))
    if of_x is None:
        expected = (expected + layer.bias.detach().float()).bfloat16()
    else:  # torchao multiplies and adds in BF16
        expected = expected.bfloat16() * (of_x * of_weight).bfloat16() + layer.bias.detach()
    monkeypatch.setattr(inference_workflow, "is_sm_at_least_100", lambda: True)
    for step in ("prepare", "convert") if levels == 0 else (None,):
        how = dict(use_triton_kernel=False, use_dynamic_per_tensor_scale=levels == 2, step=step)
        quantize_(network, NVFP4DynamicActivationNVFP4WeightConfig(**how))
        if step == "prepare":
            network(X)
    with torch.no_grad(), lab.emulate("b200") as run:
        assert torch.equal(network[0](X), expected)
    assert (run.total("emulated"), run.total("native")) == (1, 0)


def test_weights_in_nvfp4_and_mx_emulated_by_torchao_are_products_in_bf16(network):
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig, NVFP4WeightOnlyConfig
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    by_torchao = MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.EMULATED)
    for config in (NVFP4WeightOnlyConfig(), by_torchao):
        model = copy.deepcopy(network)
        quantize_(model, config)
        with torch.no_grad(), lab.emulate("b200") as run:
            emulated = model(X)
        products = {(row["dtype"], row["computed"]) for row in run.op_stats() if row["shapes"]}
        assert products == {("bf16", "emulated")}
        with torch.no_grad():
            assert close(emulated, model(X))


def test_training_in_mxfp8_has_the_products_of_lab_recipe():
    mxfp8_linear = pytest.importorskip("torchao.prototype.moe_training.mxfp8_linear")
    from torchao.prototype.mx_formats import ScaleCalculationMode
    from torchao.prototype.mx_formats.config import MXFP8Dim0CastKernelChoice, MXFP8Dim1CastKernelChoice
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    torch.manual_seed(5)
    layer, g = nn.Linear(64, 96, bias=False).bfloat16(), torch.randn(32, 96).bfloat16()
    x = torch.randn(32, 64).bfloat16().requires_grad_()
    with lab.recipe("mxfp8", sums="row"):
        y = layer(x)
        y.backward(g)
    theirs, weight = x.detach().requires_grad_(), layer.weight.detach().requires_grad_()
    e4m3 = torch.float8_e4m3fn
    with lab.emulate("b200") as run:
        result = mxfp8_linear.mx_mm.apply(
            theirs, weight, e4m3, e4m3, e4m3, 32, KernelPreference.AUTO, MXFP8Dim0CastKernelChoice.TORCH,
            MXFP8Dim1CastKernelChoice.TORCH, ScaleCalculationMode.RCEIL, False,
        )
        result.backward(g)
    assert run.total("emulated") == 3
    for ours, other in ((y, result), (x.grad, theirs.grad), (layer.weight.grad, weight.grad)):
        assert torch.equal(ours, other)
