"""Tensors of torch in and out: in place, every dtype, and with torch's own floating-point mode."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fp16lab  # noqa: E402
from fp16lab.arrays import codes_of  # noqa: E402

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(x: "torch.Tensor") -> np.ndarray:
    return x.contiguous().view(WORD[x.element_size()]).numpy()


def sample(format: str, *shape: int) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(DTYPES[format])


@pytest.mark.parametrize("format", DTYPES)
def test_tensors_are_read_in_place(format):
    x = sample(format, 6, 10)
    for view in (x, x.T, x[::2, 1:7:3], x[:0], x[3, 4]):
        codes = codes_of(view, "x")
        assert codes.format == format and codes.words.shape == tuple(view.shape)
        if view.numel():
            assert codes.words.ctypes.data == view.data_ptr()
            np.testing.assert_array_equal(
                codes.words.view(f"i{x.element_size()}"), words(view).view(f"i{x.element_size()}")
            )


@pytest.mark.parametrize("format", DTYPES)
@pytest.mark.parametrize("target", ["bf16", "f16", "e5m2", "e4m3"])
def test_rounding_is_that_of_torch(format, target):
    x = sample(format, 50, 40) * 4 if format not in ("e4m3", "e5m2") else sample(format, 50, 40)
    bits = fp16lab.round(x, target, out="bits")
    np.testing.assert_array_equal(bits.numpy(), words(x.to(DTYPES[target])).view(bits.numpy().dtype))
    try:
        values = fp16lab.round(x, target)
    except ValueError as error:
        assert "does not hold every number" in str(error)
        return
    assert values.dtype == x.dtype and values.shape == x.shape
    np.testing.assert_array_equal(words(values), words(x.to(DTYPES[target]).to(x.dtype)))


@pytest.mark.parametrize("format", ["f16", "bf16", "f32", "e4m3", "e5m2"])
def test_products_are_those_of_numpy_arrays(format):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="BF16 and FP8 arrays of numpy are ml_dtypes'")
    a, b = sample(format, 3, 7, 20), sample(format, 20, 9)
    result = fp16lab.matmul(a, b.T.contiguous().T, "ada")
    assert isinstance(result, torch.Tensor)
    assert result.dtype == (torch.float32 if format in ("e4m3", "e5m2") else a.dtype)
    name = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(format)
    dtype = np.dtype(getattr(ml_dtypes, name)) if name else np.dtype({"f16": "f2", "f32": "f4"}[format])
    theirs = fp16lab.matmul(words(a).view(dtype), words(b).view(dtype), "ada")
    np.testing.assert_array_equal(
        words(result).view(f"u{theirs.itemsize}"), theirs.view(f"u{theirs.itemsize}")
    )
    mixed = fp16lab.matmul(words(a).view(dtype), b, "ada")
    assert isinstance(mixed, torch.Tensor) and torch.equal(mixed, result)


def test_histograms_are_those_of_numpy_arrays():
    for format in DTYPES:
        x = sample(format, 100, 7)
        wide = x.double() if format == "f64" else x.float()
        assert fp16lab.histogram(x) == fp16lab.histogram(wide.numpy()), format
        assert fp16lab.histogram(x.T[::2]) == fp16lab.histogram(wide.T[::2].numpy())


@pytest.mark.parametrize(
    "make,line",
    [
        (
            lambda: torch.ones(2, requires_grad=True),
            "x requires a gradient, which nothing here computes; x.detach() has none",
        ),
        (
            lambda: torch.ones(2, device="meta"),
            "x is on the device meta, which keeps no numbers",
        ),
        (
            lambda: torch.ones(2, 2).to_sparse(),
            "x is a tensor of layout torch.sparse_coo; x.to_dense() makes a strided one",
        ),
    ],
)
def test_what_is_not_at_hand_is_refused_in_one_line(make, line):
    with pytest.raises(ValueError) as error:
        fp16lab.round(make(), "f16")
    assert str(error.value) == line
    with pytest.raises(TypeError, match="x has dtype torch.int64; arrays of float16"):
        fp16lab.round(torch.ones(2, dtype=torch.int64), "f16")
    with pytest.raises(TypeError, match="torch.complex64; .* are taken: x.real and x.imag are two$"):
        fp16lab.round(torch.ones(2, dtype=torch.complex64), "f16")
    with pytest.raises(TypeError, match=r"taken: x.view\(torch.uint8\) has its bytes, of two numbers each$"):
        fp16lab.round(torch.ones(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "f16")


def test_torchs_flushing_of_subnormals_changes_no_bit_and_stays():
    x = (torch.arange(1 << 16, dtype=torch.int32) * 77).view(torch.float32)  # many subnormals
    half = torch.arange(1 << 10, dtype=torch.int16).view(torch.float16).reshape(32, 32)

    def answers():
        counts = fp16lab.histogram(x)
        return [
            fp16lab.round(x, "bf16", out="bits").numpy().tobytes(),
            words(fp16lab.round(x, "tf32", "stochastic", seed=3)).tobytes(),
            words(fp16lab.matmul(half, half, "volta", out="f32")).tobytes(),
            counts.bins.tobytes(),
            str(counts.zones(2.0**-20, "bf16")).encode(),
        ]

    expected = answers()
    subnormal = torch.tensor([1], dtype=torch.int32).view(torch.float32)
    assert torch.set_flush_denormal(True), "torch cannot flush on this machine"
    try:
        flushed = (subnormal * 1.0).view(torch.int32).item() == 0
        ours = answers()
        still = (subnormal * 1.0).view(torch.int32).item() == 0
    finally:
        torch.set_flush_denormal(False)
    assert flushed and still, "the mode is on before and after"
    assert ours == expected


def _printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["fp16lab", "fp16lab.torch"])
def test_a_data_loaders_workers_compute_after_their_parent(package):
    """In a process of its own: fork after torch's and our own threads, or after torch's alone."""
    code = """

class Products(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        a = torch.full((64, 64), 0.5 + i, dtype=torch.float16)
        return fp16lab.matmul(a, a, threads=2)

a = torch.ones(256, 256, dtype=torch.float16)
fp16lab.matmul(a, a, threads=2)
expected = [Products()[i] for i in range(4)]
loader = torch.utils.data.DataLoader(
    Products(), batch_size=None, num_workers=2, multiprocessing_context="fork"
)
assert all(torch.equal(ours, theirs) for ours, theirs in zip(loader, expected))
with open("/proc/self/maps") as maps:
    assert len({line.split()[-1] for line in maps if "libgomp" in line}) <= 1
print("done")
"""
    assert _printed(f"import torch, {package}" + code) == "done\n"


def test_fp16lab_torch_computes_on_torchs_threads():
    code = """
import os
torch.set_num_threads(2)
x = torch.ones(1 << 20)
x + x
before = os.listdir("/proc/self/task")
a = torch.ones(512, 512, dtype=torch.float16)
fp16lab.matmul(a, a, threads=2)
print(len(os.listdir("/proc/self/task")) - len(before))
"""
    assert _printed("import torch, fp16lab" + code) == "1\n"
    assert _printed("import torch, fp16lab.torch" + code) == "0\n"
