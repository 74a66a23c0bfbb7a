"""Counting on a device, by the code that runs there, on CPU tensors: a switch calls them a device's. (That a GPU's own
kernels give the same is what PyTorch promises of integers; test_on_a_gpu asks one.) The oracle is fp16lab.histogram."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab
from fp16lab.torch import counting, device_counts
from fp16lab.torch.device_counts import DeviceCounts

HOST = torch.device("cpu")
WORDS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.fixture
def eager(monkeypatch):
    """Nothing is compiled, which takes seconds."""
    monkeypatch.setattr(device_counts.Compiled, "__call__", lambda self, *args: self._function(*args))


def counted(*tensors):
    counts = DeviceCounts(HOST)
    for tensor in tensors:
        counts.add(counts.new_row(), tensor)
    return counts.read()


def random_bits(dtype, n, seed=1):
    rng = np.random.default_rng(seed)
    size = dtype.itemsize
    return torch.from_numpy(rng.integers(0, 256, n * size, np.uint8)).view(dtype)


def edges_of_f32():
    """Every power of two, its neighbours, and what is not finite."""
    powers = torch.cat([2 ** torch.arange(23), torch.arange(1, 256) << 23])
    magnitudes = torch.cat([torch.tensor([0]), *(powers + by for by in (-1, 0, 1)), torch.tensor([0x7FFFFFFF])])
    return torch.cat([magnitudes, magnitudes - 2**31]).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype", [*WORDS, *FP8])
@pytest.mark.parametrize("flushed", [False, True])
def test_counts_are_those_of_fp16lab_histogram(eager, dtype, flushed):
    many = random_bits(dtype, 100_003)  # counted as a whole, and a rest that is collected
    few = random_bits(dtype, 1000, seed=2)
    narrow = (torch.randn(70_000) * 2.0**-130).to(dtype)  # mostly subnormal or zero
    codes = (
        torch.arange(-(2 ** (8 * dtype.itemsize - 1)), 2 ** (8 * dtype.itemsize - 1)).to(
            {1: torch.int8, 2: torch.int16}[dtype.itemsize]
        ).view(dtype)
        if dtype.itemsize < 4
        else edges_of_f32().to(dtype)
    )
    tensors = [
        many,
        few,
        narrow,
        codes,
        codes.repeat(3),
        many[:99_999].view(3, -1).T,
        many[::7],
        few[:0],
        few[0],
        few[:10].view(2, 5)[:, 1:3].expand(4, 2, 2),
        torch.zeros(5, dtype=dtype),
    ]
    torch.set_flush_denormal(flushed)
    try:
        found = counted(*tensors)
    finally:
        torch.set_flush_denormal(False)
    for tensor, histogram in zip(tensors, found):
        assert histogram == fp16lab.histogram(tensor), (tensor.shape, dtype)


def test_many_tensors_are_counted_together(eager, monkeypatch):
    monkeypatch.setattr(device_counts, "_ROOM", 5000)  # so that they are counted in between, too
    tensors = [random_bits(dtype, n, seed=n) for n, dtype in zip(range(1, 300), itertools.cycle([*WORDS, *FP8]))]
    assert counted(*tensors) == [fp16lab.histogram(tensor) for tensor in tensors]


def test_what_is_written_afterwards_is_not_counted(eager):
    counts, x = DeviceCounts(HOST), torch.ones(10)
    counts.add(counts.new_row(), x)
    x.zero_()
    assert counts.read()[0].zero == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_compiled_kernels_give_the_same(dtype):
    tensors = [random_bits(dtype, 100_003), random_bits(dtype, 40_000, seed=3)]
    for _ in range(2):
        assert counted(*tensors) == [fp16lab.histogram(tensor) for tensor in tensors]
    assert device_counts.how(HOST) == "by kernels of torch.compile"


def test_the_digest_compiles():
    x = torch.randn(40_000)
    found = [device_counts.digest(x, 7).item() for _ in range(2)]
    assert found[0] == found[1] and device_counts._digest_fast.failures == {HOST: None}


@pytest.mark.parametrize(
    "compiled, why", [(lambda x: x + 2, "it gives other numbers"), (lambda x: 1 / 0, "ZeroDivisionError")]
)
def test_what_does_not_compile_right_is_not_used(monkeypatch, compiled, why):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: compiled)
    function = device_counts.Compiled(lambda x: 2 * x)
    assert [function(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    assert function.failures == {HOST: why}


def test_large_tensors_are_left_to_the_librarys_kernel(eager, monkeypatch):
    """Its row has this layout. (The PTX machine runs the kernel: cuda_stream_histogram_ptx.)"""
    calls = []

    def count(values, format, row):
        calls.append((format, values.numel()))
        histogram = fp16lab.histogram(values)
        row[:281] += torch.tensor([*histogram.bins.tolist(), histogram.zero, histogram.infinite, histogram.nan])
        bits = torch.tensor([histogram.greatest, histogram.smallest]).view(torch.int32)
        row[281:] = row[281:].maximum(torch.stack([bits[0], 0x7F800000 - bits[1]]))

    monkeypatch.setattr(device_counts, "_library", lambda device: count)
    tensors = [random_bits(dtype, n, seed=n) for dtype in (*WORDS, *FP8) for n in (7, 40_001)]
    large = random_bits(torch.float32, 40_001)[1:]  # at no multiple of 16 bytes
    assert counted(*tensors, large) == [fp16lab.histogram(tensor) for tensor in (*tensors, large)]
    assert calls == [(format, 40_001) for format in ("f32", "f16", "bf16")]
    assert device_counts.how(HOST) == "by fp16lab's CUDA kernel"


def digest_of(data: bytes, key: int) -> int:
    """engine/backend/digest_functions.hpp in Python's integers."""

    def mix(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    words = np.frombuffer(data + b"\0" * (-len(data) % 8), "<u8")
    gamma = 0x9E3779B97F4A7C15
    return sum(mix(int(w) ^ mix((key + (i + 1) * gamma) % 2**64)) for i, w in enumerate(words)) % 2**64


@pytest.mark.parametrize("dtype, n", [(torch.float32, 1001), (torch.float16, 7), (torch.float8_e5m2, 9), (torch.float64, 3)])
def test_the_digest_is_the_engines(eager, monkeypatch, dtype, n):
    monkeypatch.setattr(device_counts, "_PART", 100)  # several parts
    x = random_bits(dtype, n)
    for tensor in (x, x[1:], x[:0], x[: n // 3 * 3].view(3, -1).T):
        data = tensor.contiguous().clone().view(-1).view(torch.uint8).numpy().tobytes()
        for key in (0, 12345678901):
            assert device_counts.digest(tensor, key).item() % 2**64 == digest_of(data, key)
