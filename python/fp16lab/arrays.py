"""Arrays in and out: numpy, ml_dtypes, torch and whatever speaks DLPack, as codes of a format.

Inside, an array is unsigned integers of its elements' size, in the same memory wherever that can be: numpy
calls the dtypes of ml_dtypes "V2" or "V1", and torch gives numpy no BF16 and no FP8.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from . import _core
from .tensor_memory import in_memory


@dataclass(frozen=True)
class Format:
    """Exponent bits, precision (with the leading bit), bits in all, exponents of the smallest number above zero
    and of the greatest one."""

    exponent_bits: int
    precision: int
    width: int
    smallest: int
    greatest: int

    @classmethod
    def of(cls, exponent_bits: int, precision: int) -> Format:
        bias = (1 << (exponent_bits - 1)) - 1
        return cls(exponent_bits, precision, exponent_bits + precision, 2 - precision - bias, bias)

    def holds(self, other: Format) -> bool:
        """Is every number of `other` one of these?"""
        return (
            other.precision <= self.precision
            and other.greatest <= self.greatest
            and other.smallest >= self.smallest
        )


FORMATS = {name: Format(*numbers) for name, numbers in _core.formats().items()}
_BY_NUMPY_NAME = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e8m0fnu": "e8m0",
    "float6_e3m2fn": "e3m2",
    "float6_e2m3fn": "e2m3",
    "float4_e2m1fn": "e2m1",
}
NUMPY_NAME = {format: name for name, format in _BY_NUMPY_NAME.items()}
WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_KNOWN = "float16, float32, float64, and ml_dtypes' bfloat16 and those of 8, 6 and 4 bits"


def numpy_dtype(format: str) -> np.dtype[Any]:
    """The dtype of numpy or ml_dtypes; ImportError where ml_dtypes is needed and is not there."""
    if format in ("f16", "f32", "f64"):
        return np.dtype(NUMPY_NAME[format])
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(f"a numpy array of {format} needs ml_dtypes: pip install ml_dtypes") from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, NUMPY_NAME[format]))
    return dtype


@dataclass(slots=True)
class Codes:
    """An array as codes, and what it was, so that results become the same."""

    words: np.ndarray[Any, Any]  # unsigned integers, native byte order, aligned; any strides
    format: str
    kind: str  # "numpy", "torch", "scalar" (of numpy) or "float" (of Python)
    dtype: Any  # of a numpy array; None: that of the format

    def wrap(self, words: np.ndarray[Any, Any], format: str) -> Any:
        """Codes of `format` as an array of the kind that this one was."""
        if self.kind == "torch":
            return _torch_tensor(words, format)
        own = format == self.format and self.dtype is not None
        values = words.view(self.dtype if own else numpy_dtype(format))
        if self.kind == "float" and format == self.format:
            return float(values)
        return values if self.kind == "numpy" else values[()]

    def wrap_as_array(self, words: np.ndarray[Any, Any], format: str) -> Any:
        """The same of a result with a shape and dtype of its own."""
        if self.kind == "torch":
            return _torch_tensor(words, format)
        values = words.view(numpy_dtype(format))
        return values if values.ndim else values[()]


def _torch_tensor(words: np.ndarray[Any, Any], format: str) -> Any:
    torch = sys.modules["torch"]
    if format in ("f16", "f32", "f64"):
        return torch.from_numpy(words.view(NUMPY_NAME[format]))
    return torch.from_numpy(words).view(getattr(torch, NUMPY_NAME[format]))


def is_tensor(x: Any) -> bool:
    """Is this a tensor of torch? (Never imports it.)"""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def codes_of(x: Any, name: str) -> Codes:
    """Any array as codes, without a copy where its memory can be used.

    Big-endian and unaligned arrays are copied, as lists are. TypeError for what has no format of ours,
    ValueError for what is not at hand: tensors with a gradient, and those whose memory is not their value
    (tensor_memory.py).
    """
    if type(x) is np.ndarray:
        return _codes_of_numpy(x, name, "numpy")
    if is_tensor(x):
        return _codes_of_tensor(x, name)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; {name}.filled(value) makes an array of it")
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        return _codes_by_dlpack(x, name, "numpy")
    if isinstance(x, (bool, np.bool_, complex)):
        raise TypeError(f"{name} is {x!r}; a floating-point number or array is needed")
    if isinstance(x, (int, float)) and not isinstance(x, np.generic):
        try:
            array, kind = np.asarray(float(x)), "float"
        except OverflowError:
            raise ValueError(f"{name} is beyond what FP64 holds; a number below 2^1024 is needed") from None
    else:
        try:
            array = np.asarray(x)
        except ValueError as error:
            raise ValueError(f"{name} is no array: {error}") from None
        if array.ndim == 0 and array.dtype.kind in "OUS":
            raise TypeError(f"{name} is {x!r:.60}; a floating-point number or array is needed")
        kind = "scalar" if isinstance(x, np.generic) else "numpy"
        if isinstance(x, (list, tuple)) and _format_of(array.dtype) is None:
            raise TypeError(
                f"{name} is a {type(x).__name__} of {array.dtype}; a floating-point number or array is needed: "
                f"numpy.array({name}, numpy.float32) makes one, where all of it are numbers"
            )
    return _codes_of_numpy(array, name, kind)


@cache
def _format_of(dtype: np.dtype[Any]) -> str | None:
    return _BY_NUMPY_NAME.get(dtype.name)


def _codes_of_numpy(array: np.ndarray[Any, Any], name: str, kind: str) -> Codes:
    format = _format_of(array.dtype)
    if format is None:
        hint = {
            "O": f"{name}.astype(numpy.float32) makes one, where all of it are numbers",
            "i": f"{name}.astype(numpy.float32) makes one",
            "u": f"codes of a format are {name}.view({'ml_dtypes.float8_e4m3fn' if array.itemsize == 1 else 'numpy.float16'})"
            f"{' or another of its formats' if array.itemsize == 1 else ''}, numbers {name}.astype(numpy.float32)",
            "c": f"{name}.real and {name}.imag are two",
        }.get(array.dtype.kind, f"{name}.astype(numpy.float32) makes one")
        raise TypeError(f"{name} has dtype {array.dtype}; arrays of {_KNOWN} are taken: {hint}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    size = array.itemsize
    if not array.flags.aligned or any([stride % size for stride in array.strides]):
        array = array.copy()
    return Codes(array.view(WORDS[size]), format, kind, array.dtype)


def require_no_gradient(x: Any, name: str) -> None:
    """ValueError: `x`, a tensor, has one."""
    if x.requires_grad:
        raise ValueError(f"{name} requires a gradient, which nothing here computes; {name}.detach() has none")


def _codes_of_tensor(x: Any, name: str) -> Codes:
    require_no_gradient(x, name)
    return _codes_by_dlpack(in_memory(x, name), name, "torch")


def _codes_by_dlpack(x: Any, name: str, kind: str) -> Codes:
    device = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (1, 0)
    if int(device[0]) != 1:
        raise ValueError(
            f"{name} is on DLPack device {tuple(map(int, device))}; arrays of the CPU, device 1, are taken"
        )
    try:
        words, format = _core.words_of_tensor(x)
    except TypeError:
        raise TypeError(f"{name} is a {type(x).__name__} whose memory DLPack does not give") from None
    if format is None:
        dtype = getattr(x, "dtype", "another dtype")
        hint = f"{name}.float() makes one"
        if "complex" in str(dtype):
            hint = f"{name}.real and {name}.imag are two"
        elif "float4" in str(dtype):
            hint = f"{name}.view(torch.uint8) has its bytes, of two numbers each"
        raise TypeError(f"{name} has dtype {dtype}; arrays of {_KNOWN} are taken: {hint}")
    return Codes(words, format, kind, None)


def thread_count(threads: int | None) -> int:
    """`threads`, or the processors that this process may use. Bits never depend on it."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, (int, np.integer)) or isinstance(threads, bool) or threads < 1:
        raise ValueError(
            f"threads is {threads!r}; a whole number of at least 1, or None for all processors, is needed"
        )
    return int(threads)
