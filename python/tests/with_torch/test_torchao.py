"""lab.emulate gives the products of torchao's modules, whose weights are of wrapper classes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

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
