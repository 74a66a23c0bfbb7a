"""Arrays in and out: what is read in place, what is copied, what is refused and with which line."""

from __future__ import annotations

import numpy as np
import pytest

import fp16lab
from fp16lab import _core
from fp16lab.arrays import codes_of

ml_dtypes = pytest.importorskip("ml_dtypes", reason="BF16 and FP8 arrays of numpy are ml_dtypes'")
DTYPES = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]


def sample(dtype, shape=(6, 10)) -> np.ndarray:
    return (np.random.default_rng(2).standard_normal(shape) * 3).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_is_read_in_place(dtype):
    x = sample(dtype)
    for view in (x, x.T, x[::2, 1::3], x[::-1], x[:0], x[0, 0, ...], np.broadcast_to(x[0], (4, 10))):
        codes = codes_of(view, "x")
        assert codes.words.ctypes.data == view.ctypes.data
        assert codes.words.shape == view.shape and codes.words.strides == view.strides


def test_kernels_get_the_memory_of_the_array(monkeypatch):
    """By address: what reaches the module, of a dense array, its transpose, and a transposed operand."""
    seen = []
    for name in ("round", "matmul"):
        inner = getattr(_core, name)

        def recorder(*arguments, inner=inner):
            seen.append([a.ctypes.data for a in arguments if isinstance(a, np.ndarray)])
            return inner(*arguments)

        monkeypatch.setattr(_core, name, recorder)
    x, out = sample(np.float32), np.empty((6, 10), np.uint16)
    fp16lab.round(x, "f16", out=out)
    assert seen.pop() == [x.ctypes.data, out.ctypes.data]
    result = fp16lab.round(x.T, "f16")
    assert seen.pop() == [x.ctypes.data, result.ctypes.data]
    half = sample(np.float16, (10, 10))
    result = fp16lab.matmul(half, half.T, out="f32")
    # Block scales, of which there are none, come last.
    assert seen.pop()[:3] == [half.ctypes.data, half.ctypes.data, result.ctypes.data]
    assert not seen


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_read_only_and_unaligned_arrays_are_taken(dtype):
    x = sample(dtype, (40, 30))
    word = f"u{x.itemsize}"
    expected = fp16lab.round(x, (4, 4) if dtype == ml_dtypes.float8_e4m3fn else "e5m2", "upward", out="bits")
    target = (4, 4) if dtype == ml_dtypes.float8_e4m3fn else "e5m2"

    def bits(array):
        return fp16lab.round(array, target, "upward", out="bits")

    np.testing.assert_array_equal(bits(x[::2, ::-3]), expected[::2, ::-3])
    np.testing.assert_array_equal(bits(x.T), expected.T)
    x.flags.writeable = False
    np.testing.assert_array_equal(bits(x), expected)
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(word).reshape(x.shape)
    unaligned[...] = x.view(word)
    np.testing.assert_array_equal(bits(unaligned.view(dtype)), expected)
    field = np.zeros(x.shape, [("before", "u1"), ("x", word)])
    field["x"] = x.view(word)
    np.testing.assert_array_equal(bits(field["x"].view(dtype)), expected)
    assert fp16lab.histogram(x[::2]) == fp16lab.histogram(x[::2].copy())


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_big_endian_arrays_keep_their_dtype(dtype):
    x = sample(np.float64).astype(dtype)
    result = fp16lab.round(x, "f16", "upward")
    assert result.dtype == np.dtype(dtype)
    native = x.astype(x.dtype.newbyteorder("="))
    np.testing.assert_array_equal(result, fp16lab.round(native, "f16", "upward"))
    assert fp16lab.histogram(x) == fp16lab.histogram(native)
    if dtype != ">f8":
        np.testing.assert_array_equal(fp16lab.matmul(x, x.T), fp16lab.matmul(native, native.T))


def test_zero_sizes_and_zero_dimensions():
    for dtype in DTYPES:
        empty = fp16lab.round(np.empty((0, 3), dtype), "e4m3" if dtype == DTYPES[4] else "e5m2")
        assert empty.shape == (0, 3) and empty.dtype == dtype
        assert fp16lab.histogram(np.empty((3, 0), dtype)).total == 0
    scalar = fp16lab.round(np.array(0.1), "f16")
    assert isinstance(scalar, np.ndarray) and scalar.shape == () and scalar == 0.0999755859375
    assert type(fp16lab.round(np.float32(0.1), "f16")) is np.float32
    assert type(fp16lab.round(0.1, "f16")) is float and type(fp16lab.round(3, "f16")) is float
    assert fp16lab.round(0.1, "f16", out="bits") == 0x2E66
    assert type(fp16lab.round(ml_dtypes.bfloat16(3.3), "e5m2")) is ml_dtypes.bfloat16
    assert fp16lab.histogram(0.1).total == 1
    assert fp16lab.round([[0.1, 0.2]], "f16").dtype == np.float64


@pytest.mark.parametrize(
    "x,line",
    [
        (
            np.array([1.5, None]),
            "x has dtype object; arrays of float16, float32, float64, and ml_dtypes' bfloat16 and",
        ),
        (np.array([1, 2]), "x.astype(numpy.float32) makes one"),
        (np.array([1, 2], np.uint16), "codes of a format are x.view(numpy.float16)"),
        (np.array([1j]), "x has dtype complex128"),
        (np.array([True]), "x has dtype bool"),
        (np.longdouble([1.0]), "x has dtype "),
        (np.zeros(2, [("a", "f4")]), "x has dtype [('a', '<f4')]"),
        (np.array(["1.5"]), "x has dtype <U3"),
        (np.zeros(2, ml_dtypes.float8_e3m4), "x has dtype float8_e3m4"),
        (np.ma.masked_array([1.0, 2.0], [0, 1]), "x is a masked array; x.filled(value) makes an array of it"),
        (True, "x is True; a floating-point number or array is needed"),
        (None, "x is None; a floating-point number or array is needed"),
        ("0.1", "x is '0.1'; a floating-point number or array is needed"),
        ([1, 2], "x is a list of int64; a floating-point number or array is needed: numpy.array(x, numpy.float32)"),
        ([1.5, None], "x is a list of object; a floating-point number or array is needed: numpy.array(x, "),
    ],
)
def test_what_has_no_format_is_refused_in_one_line(x, line):
    for function in (lambda: fp16lab.round(x, "f16"), lambda: fp16lab.histogram(x)):
        with pytest.raises(TypeError) as error:
            function()
        assert line in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(TypeError):
        fp16lab.matmul(x, np.ones((2, 2), np.float16))


def test_a_number_beyond_fp64_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^x is beyond what FP64 holds; a number below 2\^1024 is needed$"):
        fp16lab.round(10**400, "f16")


def test_a_ragged_list_is_refused_in_one_line():
    with pytest.raises(ValueError, match="^x is no array: ") as error:
        fp16lab.round([[1.0], [1.0, 2.0]], "f16")
    assert "\n" not in str(error.value)


def test_other_libraries_come_by_dlpack():
    class Other:
        """What another library's array shows."""

        def __init__(self, array, device=(1, 0)):
            self.array, self.device = array, device

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.device

    x = sample(np.float32)
    result = fp16lab.round(Other(x), "f16")
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, fp16lab.round(x, "f16"))
    assert codes_of(Other(x), "x").words.ctypes.data == x.ctypes.data
    np.testing.assert_array_equal(fp16lab.matmul(Other(x), x.T), fp16lab.matmul(x, x.T))
    with pytest.raises(
        ValueError, match=r"x is on DLPack device \(2, 0\); arrays of the CPU, device 1, are taken"
    ):
        fp16lab.round(Other(x, (2, 0)), "f16")
    with pytest.raises(TypeError, match="arrays of float16, "):
        fp16lab.round(Other(np.arange(3)), "f16")


def test_a_missing_ml_dtypes_is_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="^a numpy array of bf16 needs ml_dtypes: pip install ml_dtypes$"):
        fp16lab.matmul(np.ones((2, 2), np.float16), np.ones((2, 2), np.float16), out="bf16")
    assert fp16lab.round(np.float32([0.1]), "bf16").tolist() == [0.10009765625]
