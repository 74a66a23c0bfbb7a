"""What lab.emulate leaves to torch: 16-bit pointwise operations beside one correct rounding, all patterns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fp16lab

F = torch.nn.functional
FORMATS = {"f16": torch.float16, "bf16": torch.bfloat16}
EXACT = {
    "neg": torch.neg, "abs": torch.abs, "relu": torch.relu, "sqrt": torch.sqrt, "square": torch.square,
    "reciprocal": torch.reciprocal, "leaky_relu": F.leaky_relu,
}  # fmt: skip
#: At most so many of 2^16 patterns come out as the neighbour of the correct rounding.
NEARLY = {
    "rsqrt": (torch.rsqrt, 20), "exp": (torch.exp, 20), "log": (torch.log, 20), "log1p": (torch.log1p, 20),
    "tanh": (torch.tanh, 20), "sigmoid": (torch.sigmoid, 40), "silu": (F.silu, 40), "sin": (torch.sin, 20),
    "cos": (torch.cos, 20), "softplus": (F.softplus, 20), "elu": (F.elu, 20), "gelu": (F.gelu, 2000),
    "hardswish": (F.hardswish, 1000),
}  # fmt: skip


def patterns(dtype):
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)


def rounded(exact, format):
    return torch.from_numpy(np.asarray(fp16lab.round(exact.numpy(), format)))


def differing(values, expected):
    values = values.double()
    return (values != expected) & ~(values.isnan() & expected.isnan())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", EXACT)
def test_correctly_rounded(name, format):
    x = patterns(FORMATS[format])
    assert not differing(EXACT[name](x), rounded(EXACT[name](x.double()), format)).any()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", NEARLY)
def test_nearly_correctly_rounded(name, format):
    x, (function, most) = patterns(FORMATS[format]), NEARLY[name]
    own, expected = function(x), rounded(function(x.double()), format)
    differs = differing(own, expected)
    assert int(differs.sum()) <= most
    places = [t[differs].to(FORMATS[format]).view(torch.int16).int() for t in (own, expected)]
    tiny = expected[differs].abs() < 2.0**-119  # an exp that overflowed in FP32 makes it zero
    assert name in ("gelu", "hardswish") or (((places[0] - places[1]).abs() <= 1) | tiny).all()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("function", [torch.add, torch.sub, torch.mul, torch.div])
def test_arithmetic_is_correctly_rounded(function, format):
    generator = torch.Generator().manual_seed(1)
    a, b = (
        torch.randint(1 << 16, (1 << 18,), generator=generator).to(torch.int16).view(FORMATS[format])
        for _ in range(2)
    )
    assert not differing(function(a, b), rounded(function(a.double(), b.double()), format)).any()


def test_sums_are_fp32_and_rounded_once():
    """In an order of torch's own: so a sum is near the exact one, not the TREE's bits."""
    x = torch.randn(64, 1000, generator=torch.Generator().manual_seed(2)).half()
    exact = x.double().sum(1)
    bound = exact.abs() * 2**-11 + 1000 * 2**-24 * x.double().abs().sum(1)
    assert ((x.sum(1).double() - exact).abs() <= bound).all()
