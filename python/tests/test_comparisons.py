"""fp16lab.compare: formulas of numpy, distances between integers, and the answer of the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fp16lab
from fp16lab import program


def ordered(x: np.ndarray) -> np.ndarray:
    """Float16 numbers as integers that ascend with them, one step a number; zeros of both signs are 0."""
    code = x.view(np.int16).astype(np.int64)
    return np.where(code < 0, -(code & 0x7FFF), code)


def test_formulas_of_numpy():
    rng = np.random.default_rng(5)
    a = (rng.standard_normal((37, 41)) * np.exp2(rng.integers(-30, 12, (37, 41)))).astype(np.float32)
    b = a.astype(np.float16)
    noisy = rng.random(a.shape) < 0.3
    with np.errstate(over="ignore"):
        b[noisy] = (b[noisy] * (1 + 1e-2 * rng.standard_normal(noisy.sum()))).astype(np.float16)
    row = fp16lab.compare(a, b).tensors[0]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(over="ignore"):
        cast = a.astype(np.float16)
    finite = np.isfinite(b)
    d = np.where(finite, wide_a - np.where(finite, wide_b, 0), 0)
    x, y = wide_a * finite, np.where(finite, wide_b, 0)
    assert row["differing"] == np.sum(wide_a != wide_b)
    assert row["beyond_cast"] == np.sum(cast.view(np.uint16) != b.view(np.uint16))
    assert row["largest"] == np.abs(d).max() and row["largest_at"] == np.abs(d).argmax()
    steps = np.abs(ordered(cast) - ordered(b)) * finite
    assert (row["ulps"], row["ulps_at"], row["ulps_of"]) == (steps.max(), steps.argmax(), "f16")
    # numpy and ours add n products in FP64, each within (n + 1) u.
    bound = 4 * (a.size + 2) * 2.0**-53
    norms = np.linalg.norm(x), np.linalg.norm(y)
    assert row["relative_l2"] == pytest.approx(np.linalg.norm(d) / max(norms), rel=bound)
    assert row["cosine"] == pytest.approx(np.sum(x * y) / norms[0] / norms[1], rel=bound)
    place = np.flatnonzero(cast.view(np.uint16) != b.view(np.uint16))[0]
    first = row["first_beyond_cast"]
    assert (first["index"], int(first["b_bits"], 16)) == (place, b.view(np.uint16).flat[place])
    assert first["a"] == a.flat[place]


def test_the_cast_of_a_scaled_gradient_is_a_cast():
    g = (np.random.default_rng(1).standard_normal(1000) * 1e-7).astype(np.float32)
    scaled = (g * np.float32(2.0**15)).astype(np.float16)
    found = fp16lab.compare(g, scaled, scale_b=2.0**15)
    assert found.first["beyond_cast"] == 0 and "The first in the order of a that differs is array:" in found.headline
    assert not fp16lab.compare(g, scaled).equal
    assert "--scale-b 2^15" in str(fp16lab.compare(g, scaled))
    assert fp16lab.compare(scaled, scaled).equal


def test_names_sides_and_types():
    a = {"model": {"w": np.zeros(2, np.float32), "old": np.ones(1)}, "step": 3, "note": "text", "none": None}
    b = {"model": {"module.w": np.zeros(2, np.float32)}, "step": 4, "new": np.float16(1)}
    found = fp16lab.compare(a, b)
    told = {row["tensor"]: (row["differing"], row["trouble"], row["type_a"], row["type_b"]) for row in found.tensors}
    assert told["model.w"] == (0, "", "float32 2", "float32 2")
    assert told["model.old"] == (0, "", "float64 1", "")
    assert told["step"] == (1, "", "int64", "int64") and told["new"] == (0, "", "", "float16")
    assert found.first["tensor"] == "model.old" and not found.equal
    assert "Only in A: 1 tensor; only in B: 1 tensor." in found.headline
    assert repr(found).startswith("Comparison('1 of 2 tensors differ.")
    shapes = fp16lab.compare(np.zeros((2, 1)), np.zeros(2))
    assert shapes.tensors[0]["trouble"] == "other shapes"
    assert "Both have array: float64 2x1 in A, float64 2 in B, other shapes." in shapes.headline
    signs = fp16lab.compare(np.float32([1, -1, 3, 0]), np.float32([-1, 1, 3, -1]))
    assert "3 of 4 elements, first [0]" in signs.headline and "; 2 have another sign; at most 2130706432 ulps" in signs.headline
    strided = np.arange(12.0).reshape(3, 4)
    assert fp16lab.compare(strided.T, np.ascontiguousarray(strided.T)).equal
    assert fp16lab.compare(strided, strided.astype(">f8")).equal
    with pytest.raises(TypeError, match="two paths"):
        fp16lab.compare("a.npz", strided)
    with pytest.raises(ValueError, match="above 0"):
        fp16lab.compare(strided, strided, scale_a=0)


def test_files_are_compared_as_the_command_does(tmp_path):
    rng = np.random.default_rng(2)
    tensors = {f"layer{i}.weight": rng.standard_normal((4, i + 1)).astype(np.float32) for i in range(11)}
    np.savez(tmp_path / "a.npz", **tensors)
    tensors["layer10.weight"][2, 3] *= -1
    np.savez(tmp_path / "b.npz", **{name: np.asfortranarray(x) for name, x in tensors.items()})
    found = fp16lab.compare(tmp_path / "a.npz", tmp_path / "b.npz")
    assert str(found) == program.run("compare", tmp_path / "a.npz", tmp_path / "b.npz")
    assert found.first["tensor"] == "layer10.weight" and found.first["first"]["index"] == 2 * 11 + 3
    said = json.loads(program.run("compare", tmp_path / "a.npz", tmp_path / "b.npz", "--json"))
    assert said["tensors"][10]["relative_l2"] == found.first["relative_l2"]
    with pytest.raises(RuntimeError, match="no.npz"):
        fp16lab.compare(tmp_path / "no.npz", tmp_path / "a.npz")
