"""Rounding arrays to a format, as the command line's conversions do."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _core
from .arrays import FORMATS, NUMPY_NAME, WORDS, Codes, Format, codes_of, numpy_dtype, thread_count

MODES = tuple(_core.rounding_names())


def round(
    x: Any,
    format: str | tuple[int, int],
    mode: str = "nearest_even",
    *,
    seed: int | None = None,
    out: str | np.ndarray[Any, Any] | None = None,
    saturate: bool = False,
    threads: int | None = None,
) -> Any:
    """Rounds every element of x to a format, once and correctly.

    x: any shape; float16, float32, float64, ml_dtypes' bfloat16 and those of 8, 6 and 4 bits below, torch
    tensors and DLPack arrays of the CPU with these dtypes, or a number.
    format: "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e3m2", "e2m3",
    "e2m1", a scale's "e8m0" or "ue4m3", or (exponent bits, precision): (5, 11) is "f16".
    mode: "nearest_even", "toward_zero", "upward", "downward", "nearest_away", or "stochastic" with a seed:
    element i in row-major order takes half word i of the Philox stream of that seed, however many threads
    there are.
    out: None for values in x's own dtype, which has to hold the format; "bits" for the codes as unsigned
    integers (TF32: 19 bits); or a C-contiguous numpy array of x's shape to write to, of x's dtype, of the
    codes', or of the format's.
    saturate: what is beyond the greatest finite number becomes it.

    Errors: ValueError or TypeError in one line. NaN becomes the format's canonical NaN. E4M3 has no infinity:
    what overflows is NaN unless it saturates. E3M2, E2M3 and E2M1 have no NaN either: it becomes the greatest
    number, and so does what overflows. Scales have no sign and drop it, and E8M0 has no zero: what is below
    2^-127 becomes that. Source: numerics/convert/convert.hpp (IEEE 754-2019, 4.3 and
    5.4.2).

    >>> import numpy, fp16lab
    >>> fp16lab.round(0.1, "f16")
    0.0999755859375
    >>> fp16lab.round(numpy.array([65519.0, 65520.0], numpy.float32), "f16")
    array([65504.,    inf], dtype=float32)
    >>> fp16lab.round(numpy.float32([0.1, 1e-9]), "f16", "upward", out="bits")
    array([11879,     1], dtype=uint16)
    """
    codes = codes_of(x, "x")
    target = _target_of(format)
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; one of {', '.join(MODES)} is needed")
    if (seed is None) == (mode == "stochastic"):
        raise ValueError(
            'mode="stochastic" needs a seed'
            if seed is None
            else f'seed goes with mode="stochastic", not with {mode!r}'
        )
    if seed is not None and not (hasattr(seed, "__index__") and 0 <= int(seed) < 1 << 64):
        raise ValueError(f"seed is {seed!r}; a whole number from 0 to 2**64 - 1 is needed")
    words = codes.words
    # The order of elements in memory shows in the random bits alone.
    by_columns = (
        out is None and mode != "stochastic" and words.flags.f_contiguous and not words.flags.c_contiguous
    )
    source = words.T if by_columns else np.ascontiguousarray(words).reshape(words.shape)
    result, bits = _destination(codes, format, target, out, source.shape)
    by_name = isinstance(format, str) and format not in ("f32", "f64")
    kernel_format = format if by_name else (target.exponent_bits, target.precision)
    _core.round(
        source,
        codes.format,
        kernel_format,
        mode,
        None if seed is None else int(seed),
        bool(saturate),
        result.view(WORDS[result.itemsize]),
        bits,
        thread_count(threads),
    )
    if isinstance(out, np.ndarray):
        return out
    if out == "bits":
        return _bits(codes, result)
    values = codes.wrap(result.T if by_columns else result, codes.format)
    order = x.dtype if isinstance(x, np.ndarray) else None
    return values if order is None or order.isnative else values.astype(order)


def _target_of(format: str | tuple[int, int]) -> Format:
    if isinstance(format, str):
        if format not in FORMATS:
            raise ValueError(
                f"there is no format {format!r}; {', '.join(FORMATS)} and (exponent bits, precision) are"
            )
        return FORMATS[format]
    try:
        exponent_bits, precision = (int(part) for part in format)
    except (TypeError, ValueError):
        raise ValueError(f"format is {format!r}; a name or (exponent bits, precision) is needed") from None
    if not 2 <= exponent_bits <= 15 or precision < 2 or exponent_bits + precision > 64:
        raise ValueError(
            f"format is {format!r}; 2 to 15 exponent bits, a precision of at least 2 and at most 64 bits in"
            " all are possible"
        )
    return Format.of(exponent_bits, precision)


def _destination(
    codes: Codes, format: str | tuple[int, int], target: Format, out: Any, shape: tuple[int, ...]
) -> tuple[np.ndarray[Any, Any], bool]:
    """Where results go, and whether they are codes."""
    width = target.width
    code_type = WORDS[1 if width <= 8 else 2 if width <= 16 else 4 if width <= 32 else 8]
    if isinstance(out, str) and out == "bits":
        return np.empty(shape, code_type), True
    if out is None:
        _require_held(codes, format, target)
        return np.empty(shape, codes.words.dtype), False
    if not isinstance(out, np.ndarray):
        raise ValueError(f'out is {out!r}; None, "bits" or a numpy array is needed')
    if out.shape != codes.words.shape:
        raise ValueError(f"out has shape {out.shape}, x has {codes.words.shape}; they must agree")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be C-contiguous and writable, as numpy.empty(x.shape, dtype) is")
    if np.may_share_memory(out, codes.words):
        raise ValueError("out shares memory with x; give another array")
    if out.dtype == (codes.dtype if codes.dtype is not None else numpy_dtype(codes.format)):
        _require_held(codes, format, target)
        return out, False
    if out.dtype == code_type or (
        format in NUMPY_NAME and width <= 16 and out.dtype == numpy_dtype(str(format))
    ):
        return out, True
    raise ValueError(f"out has dtype {out.dtype}; x's own or, for codes, {code_type} is needed")


def _require_held(codes: Codes, format: str | tuple[int, int], target: Format) -> None:
    if not FORMATS[codes.format].holds(target):
        raise ValueError(
            f"an array of {codes.format} does not hold every number of {format}: give x in a wider dtype, or"
            ' out="bits"'
        )


def _bits(codes: Codes, words: np.ndarray[Any, Any]) -> Any:
    if codes.kind == "torch":
        return sys.modules["torch"].from_numpy(words)
    return words if codes.kind == "numpy" else words[()]
