"""Quantizers with scales for blocks: MX, NVFP4 and FP8, in the libraries' orders of operations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _core
from ._core import AmaxHistory
from .arrays import Codes, codes_of, thread_count

__all__ = [
    "AmaxHistory",
    "Quantized",
    "Quantizer",
    "quantize",
    "quantized_matmul",
    "quantizers",
    "random_hadamard",
]


@dataclass(frozen=True)
class Quantizer:
    """How an array becomes codes and scales: a row of quantizers(), or one with other numbers by dataclasses.replace.

    element: "e4m3", "e5m2", "e3m2", "e2m3" or "e2m1". scale: "e8m0", "ue4m3" or "f32". block: rows and columns that
    share a scale; 0 is all. rule: how the greatest magnitude of a block becomes its scale, one of `rules`.
    """

    name: str
    element: str
    scale: str
    block: tuple[int, int]
    rule: str
    rules: tuple[str, ...]
    source: str

    def _numbers(self) -> tuple[str, str, str, int, int, str]:
        return self.name, self.element, self.scale, *self.block, self.rule


def quantizers() -> dict[str, Quantizer]:
    """The quantizers by name. Source: numerics/convert/quantizer.hpp, which says what each rule computes.

    >>> import fp16lab
    >>> list(fp16lab.quantizers())[:3]
    ['mxfp8', 'mxfp8-e5m2', 'mxfp6-e3m2']
    >>> fp16lab.quantizers()["nvfp4"].rules
    ('te', 'torchao')
    """
    return {
        name: Quantizer(name, element, scale, (rows, columns), rule, tuple(rules), source)
        for name, (element, scale, rows, columns, rule, rules, source) in _core.quantizers().items()
    }


@dataclass(frozen=True, repr=False)
class Quantized:
    """An array as codes, scales and what they lost.

    codes: uint8, one code in a byte, of the array's shape. scales: float32 numbers that the scale's format holds, one
    for each block: the array's shape with the blocks along `axis`, or (rows, columns) of blocks. tensor_scale: NVFP4's
    second scale, else 1. made_zero, saturated: of each block, how many non-zero numbers became 0, and how many
    rounded beyond the largest code, which they became. headroom: log2(largest code * scale / amax): how far each block's
    greatest magnitude is below the top, negative where it is above it, NaN where there is none.
    """

    quantizer: Quantizer
    axis: int
    codes: Any
    scales: Any
    tensor_scale: float
    made_zero: np.ndarray[Any, Any]
    saturated: np.ndarray[Any, Any]
    headroom: np.ndarray[Any, Any]

    @property
    def scale_codes(self) -> np.ndarray[Any, Any]:
        """The scales as codes of their format (uint8); FP32 scales are none. ValueError."""
        if self.quantizer.scale == "f32":
            raise ValueError("FP32 scales have no codes of a byte; .scales has them")
        scales = np.ascontiguousarray(np.asarray(self.scales))
        words = np.empty(scales.shape, np.uint8)
        _core.round(scales.view("u4"), "f32", self.quantizer.scale, "nearest_even", None, False, words, True, 1)
        return words

    @property
    def packed(self) -> np.ndarray[Any, Any]:
        """FP4 codes two in a byte, neighbours along the blocks, the first one in the lower half, as
        torch.float4_e2m1fn_x2 has them along k. ValueError."""
        codes = _moved(np.asarray(self.codes), self.axis)
        if self.quantizer.element != "e2m1" or codes.shape[-1] % 2:
            raise ValueError(
                f"{self.quantizer.element} codes in runs of {codes.shape[-1]} are not packed in pairs; .codes has a"
                " byte for each"
            )
        return _moved_back(codes[..., ::2] | codes[..., 1::2] << 4, self.axis)

    def __repr__(self) -> str:
        how, values = self.quantizer, int(np.asarray(self.codes).size)
        return (
            f"Quantized({how.name}, rule {how.rule}, {tuple(self.codes.shape)} along axis {self.axis}: of {values} values"
            f" {int(self.made_zero.sum())} became zero and {int(self.saturated.sum())} saturated)"
        )

    def dequantize(self, threads: int | None = None) -> Any:
        """Code times (scale times tensor_scale), each rounded to FP32."""
        codes, scales = self._rows()
        values = np.empty(codes.shape, np.float32)
        _core.dequantize(self.quantizer._numbers(), codes, scales, self.tensor_scale, values, thread_count(threads))
        moved = _moved(np.asarray(self.codes), self.axis)
        return _like(self.codes, _moved_back(values.reshape(moved.shape), self.axis))

    def changed(self, x: Any, threads: int | None = None) -> tuple[float, float]:
        """Sums of squares, in FP64: of what quantizing x changed, and of x. The root of their ratio is the relative error.
        Elements whose difference is not finite are in neither. ValueError where x has another shape.

        >>> import fp16lab, numpy
        >>> x = numpy.float32([[1, 3.25] + [0] * 30])
        >>> fp16lab.quantize(x, "mxfp4").changed(x)
        (0.0625, 11.5625)
        """
        if tuple(x.shape) != tuple(self.codes.shape):
            raise ValueError(f"x is {tuple(x.shape)}; the array that was quantized is {tuple(self.codes.shape)}")
        codes, scales = self._rows()
        values = _moved(_floats(codes_of(x, "x")), self.axis).reshape(codes.shape)
        numbers = self.quantizer._numbers()
        return _core.quantization_error(numbers, values, codes, scales, self.tensor_scale, thread_count(threads))

    def _rows(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Codes with blocks along rows, and the scales of those, as matrices."""
        codes, scales = _as_matrix(_moved(np.asarray(self.codes), self.axis)), np.asarray(self.scales)
        if self.axis != -1 and self.quantizer.block[0] == 1:
            scales = np.moveaxis(scales, self.axis, -1)
        shape = _core.scales_shape(self.quantizer._numbers(), *codes.shape)
        return codes, np.ascontiguousarray(scales).reshape(shape)


def quantize(
    x: Any,
    quantizer: str | Quantizer = "nvfp4",
    *,
    rule: str | None = None,
    axis: int = -1,
    tensor_amax: float | None = None,
    tensor_scale: bool = True,
    scale: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Quantized:
    """Rounds x to codes with a scale for each block, to the bit as the named library does.

    x: float16, bfloat16, float32 or another format of fp16lab.round but float64, numpy or torch; leading dimensions
    are rows of one matrix. quantizer: a name of quantizers(), also with a rule ("mxfp8:rceil"), or a Quantizer. rule:
    another of its rules. axis: along
    which blocks of one row lie, -1 or -2 (what a product sums over). tensor_amax: NVFP4's greatest magnitude of the
    tensor, where it is that of a whole or of an earlier step. tensor_scale=False: NVFP4 with block scales alone.
    scale: the one of all blocks, for FP32 scales (AmaxHistory.scale is Transformer Engine's delayed scaling). seed: elements round
    stochastically, element i by half word i of the Philox stream of that seed, in the order in which blocks lie.

    Errors: ValueError or TypeError in one line: a length that is no multiple of the block, rules and options that the
    quantizer has not. What is beyond the largest code becomes it. A block with NaN has a NaN scale. Source:
    numerics/convert/quantizer.hpp.

    >>> import numpy, fp16lab
    >>> q = fp16lab.quantize(numpy.float32([[1, 3, -700] + [0.01] * 29]), "mxfp8")
    >>> float(q.scales[0, 0]), int(q.made_zero[0, 0]), int(q.saturated[0, 0])
    (2.0, 0, 0)
    >>> q.dequantize()[0, :3]
    array([   1.,    3., -704.], dtype=float32)
    """
    codes = codes_of(x, "x")
    if codes.format == "f64":
        raise TypeError("x is float64; quantizers take FP32 and narrower: x.astype(numpy.float32) is right")
    how = _quantizer_of(quantizer, rule)
    if axis not in (-1, -2) or codes.words.ndim < max(1, -axis):
        raise ValueError(
            f"axis is {axis!r} of an array of {codes.words.ndim} dimensions; -1, or -2 of at least two, is possible"
        )
    if seed is not None and not (hasattr(seed, "__index__") and 0 <= int(seed) < 1 << 64):
        raise ValueError(f"seed is {seed!r}; a whole number from 0 to 2**64 - 1 is needed")
    moved = _moved(_floats(codes), axis)
    matrix = _as_matrix(moved)
    shape = _core.scales_shape(how._numbers(), *matrix.shape)
    words, scales = np.empty(matrix.shape, np.uint8), np.empty(shape, np.float32)
    made_zero, saturated = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    headroom = np.empty(shape, np.float32)
    of_tensor = _core.quantize(
        how._numbers(),
        matrix,
        words,
        scales,
        made_zero,
        saturated,
        headroom,
        None if tensor_amax is None else float(tensor_amax),
        bool(tensor_scale),
        None if scale is None else float(scale),
        None if seed is None else int(seed),
        thread_count(threads),
    )
    like = x if codes.kind == "torch" else words

    def of_blocks(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Blocks of rows keep the array's dimensions."""
        return array if how.block[0] != 1 else _moved_back(array.reshape(*moved.shape[:-1], shape[1]), axis)

    return Quantized(
        how,
        axis,
        _like(like, _moved_back(words.reshape(moved.shape), axis)),
        _like(like, of_blocks(scales)),
        of_tensor,
        of_blocks(made_zero),
        of_blocks(saturated),
        of_blocks(headroom),
    )


def quantized_matmul(a: Quantized, b: Quantized, model: str = "", threads: int | None = None) -> Any:
    """The product of quantized arrays (m, k) and (k, n) with a tensor core's sums, in FP32.

    a: quantized along its rows (axis=-1), b along its columns (axis=-2). model: a name of models(); "" is the usual
    one: "blackwell-mxf4nvf4" for E2M1 and "blackwell-mxf8f6f4" for others with block scales, whose sums are then
    multiplied by the scales of the tensors; "hopper-wgmma" for FP32 scales, by which the sum of each block of K is
    promoted: result = fma(scale * scale, sum, result). Errors: ValueError or TypeError in one line: shapes, scales of
    two kinds, blocks of two lengths. Source: numerics/gemm/quantized_gemm.hpp.

    >>> import numpy, fp16lab
    >>> a = fp16lab.quantize(numpy.full((1, 32), 3, numpy.float32), "mxfp4")
    >>> b = fp16lab.quantize(numpy.full((32, 1), 0.5, numpy.float32), "mxfp4", axis=-2)
    >>> fp16lab.quantized_matmul(a, b)
    array([[48.]], dtype=float32)
    """
    for name, x, axis in (("a", a, -1), ("b", b, -2)):
        if not isinstance(x, Quantized):
            raise TypeError(f"{name} is of {type(x).__name__}; fp16lab.quantize({name}, ..., axis={axis}) is needed")
        if x.axis != axis or x.codes.ndim != 2:
            raise ValueError(
                f"{name} has {x.codes.ndim} dimensions and is quantized along axis {x.axis}; two and axis={axis} are"
                " needed"
            )
    if a.codes.shape[1] != b.codes.shape[0]:
        raise ValueError(
            f"a is {tuple(a.codes.shape)} and b {tuple(b.codes.shape)}: as many rows of b as columns of a are needed"
        )
    return product_of_rows(a, b, model, threads)


def product_of_rows(a: Quantized, b: Quantized, model: str, threads: int | None) -> Any:
    """The same of operands as they are: a's rows times b's, where blocks lie along both."""
    (left, left_scales), (right, right_scales) = a._rows(), b._rows()
    result = np.empty((left.shape[0], right.shape[0]), np.float32)
    _core.quantized_matmul(
        a.quantizer._numbers(),
        left,
        left_scales,
        a.tensor_scale,
        b.quantizer._numbers(),
        right,
        right_scales,
        b.tensor_scale,
        model,
        result,
        thread_count(threads),
    )
    return _like(a.codes, result)


def random_hadamard(x: Any, length: int = 16, signs: int | None = None, threads: int | None = None) -> Any:
    """Every `length` neighbours v along the last dimension become (v * signs) H / sqrt(length), in FP32.

    Bit i of signs is a minus for element i; the default is that of Transformer Engine's NVFP4 recipe. Two operands
    that are transformed along the dimension which their product sums over keep it, but for rounding. Errors:
    ValueError where length is no power of two of at most 32, or does not divide the dimension.

    >>> import numpy, fp16lab
    >>> fp16lab.random_hadamard(numpy.float32([4, 0, 0, 0]), 4, signs=0b0001)
    array([-2., -2., -2., -2.], dtype=float32)
    """
    codes = codes_of(x, "x")
    values = _floats(codes)
    if np.may_share_memory(values, codes.words):
        values = values.copy()
    if values.ndim == 0 or values.shape[-1] % length:
        raise ValueError(f"x has shape {values.shape}; a last dimension that is a multiple of {length} is needed")
    _core.random_hadamard(_as_matrix(values), length, signs, thread_count(threads))
    return _like(x if codes.kind == "torch" else values, values)


def _quantizer_of(quantizer: str | Quantizer, rule: str | None) -> Quantizer:
    if isinstance(quantizer, str):
        known = quantizers()
        quantizer, colon, own = quantizer.lower().partition(":")
        if colon and rule is None:
            rule = own
        if quantizer not in known:
            raise ValueError(f"there is no quantizer {quantizer!r}; {', '.join(known)} are")
        quantizer = known[quantizer]
    if not isinstance(quantizer, Quantizer):
        raise TypeError(f"quantizer is {quantizer!r}; a name of quantizers() or a Quantizer is needed")
    return quantizer if rule is None else replace(quantizer, rule=rule)


def _floats(codes: Codes) -> np.ndarray[Any, Any]:
    words = np.ascontiguousarray(codes.words).reshape(codes.words.shape)
    if codes.format == "f32":
        return words.view(np.float32)
    wide = np.empty(words.shape, "u4")
    _core.widen(words, codes.format, wide, 1)
    return wide.view(np.float32)


def _moved(array: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array if axis == -1 else np.moveaxis(array, axis, -1))


def _moved_back(array: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    return array if axis == -1 else np.ascontiguousarray(np.moveaxis(array, -1, axis))


def _as_matrix(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1, array.shape[-1]) if array.size else array.reshape(0, array.shape[-1])


def _like(x: Any, array: np.ndarray[Any, Any]) -> Any:
    """The array, as a tensor where x is one."""
    if isinstance(x, np.ndarray):
        return array
    import torch

    return torch.from_numpy(array)
