"""What PyTorch computes on this processor is what the row avx512_bf16 and the plan onednn predict."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fp16lab.torch as lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "silicon.py"


def test_products_and_trainings_are_predicted_bit_by_bit():
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), "30"], capture_output=True, text=True, check=False
    )
    if result.returncode == 77:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    rows = re.findall(r"^(.{16}) +(\d+) +(\d+) +([\d.]+)% +([\d.]+)%$", result.stdout, re.MULTILINE)
    assert len(rows) == 11
    for name, outputs, differ, chain, hopper in rows:
        assert int(outputs) >= 1000 and int(differ) == 0, name
        assert float(chain) > 10 and float(hopper) > 10, f"{name}: the operands tell orders apart"
    assert result.stdout.count("every weight are equal in") == 3


def test_what_the_plan_does_not_know_is_refused_by_name():
    with lab.emulate("avx512_bf16", library="onednn"):
        a, b = torch.randn(8, 300).bfloat16(), torch.randn(300).bfloat16()
        with pytest.raises(lab.EmulationError, match="aten::mv: plan 'onednn' has no rule for mv and dot"):
            torch.mv(a, b)
        image, kernel = torch.randn(1, 3, 8, 8).bfloat16(), torch.randn(4, 3, 3, 3).bfloat16()
        with pytest.raises(lab.EmulationError, match="plan 'onednn' has no rule for convolutions"):
            torch.conv2d(image, kernel)
        q = torch.randn(1, 2, 8, 4).bfloat16()
        with pytest.raises(lab.EmulationError, match="the order of its flash kernel is not known"):
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with pytest.raises(ValueError, match="library is 'mkl'; one of instruction, onednn, cublaslt-12.8"):
        lab.emulate("hopper", library="mkl")
    with pytest.raises(ValueError, match='adds in FP32: accumulator "f32" is needed'):
        lab.emulate("hopper", "f16", library="cublaslt-12.8")
