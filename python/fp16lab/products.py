"""Products of tensor cores: every bit of D = C + A B as a GPU generation computes it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from . import _core
from .arrays import FORMATS, Codes, codes_of, numpy_dtype, thread_count

_OUTPUTS = ("f32", "f16", "bf16", "e4m3", "e5m2")
_BYTES = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")  # operands of 8, 6 and 4 bits, of which any two may be multiplied


@dataclass(frozen=True)
class Plan:
    """How a library call sums over K out of instructions: a name of plans(), and what its rule asks.

    parts: of K, as cuBLAS's heuristics choose them (split-K), and join, "serial" or "pairwise", how it adds
    them. partials: "f16" or "bf16" where the parts' sums are rounded before they are added, as
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction permits (plan "split-k").
    fast_accumulation: of cuBLASLt's FP8, as
    torch._scaled_mm's use_fast_accum. threads: of the library, on which oneDNN's order depends; None: torch's number
    for tensors, 1 for other arrays.
    """

    name: str = "instruction"
    parts: int = 1
    join: str = "serial"
    fast_accumulation: bool = False
    threads: int | None = None
    partials: str = "f32"


def matmul(
    a: Any,
    b: Any,
    model: str = "hopper",
    accumulator: str = "f32",
    out: str | None = None,
    c: Any = None,
    threads: int | None = None,
    plan: str | Plan = "instruction",
    scale_a: Any = None,
    scale_b: Any = None,
) -> Any:
    """The product c + a b, bit for bit as a tensor core computes it.

    a: (..., m, k), b: (..., k, n), batches broadcast, one-dimensional operands as in numpy.matmul; any
    strides, and transposes are read in place. float16, ml_dtypes' bfloat16, float8_e4m3fn, float8_e5m2,
    float6_e3m2fn, float6_e2m3fn and float4_e2m1fn (those may be mixed), and float32, which is a TF32 register:
    its low 13 bits are ignored; torch tensors and DLPack arrays of the CPU alike.
    model: a name of models(), "volta" to "blackwell-mxf4nvf4", or a chip, "v100" to "b200", in any case.
    accumulator: "f32" or "f16", the format of sums.
    out: "f32", "f16", "bf16", "e4m3" or "e5m2": the accumulator, rounded once to nearest even; default: the
    operands' dtype, for FP8 the accumulator's.
    c: broadcast to the result; numbers of the accumulator's format in any dtype.
    plan: of a library call, a name of plans() or a Plan: which rows it takes, where chains over K begin again,
    and how K is split, by the shape and by which operand memory holds transposed. "instruction": one chain. "onednn"
    is PyTorch's with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (where a processor has AMX, set it before torch is imported).
    scale_a, scale_b: block scales, for the models that have them (MXFP8, MXFP6 and MXFP4: "blackwell-mxf8f6f4"
    and "blackwell-mxf4nvf4"; NVFP4: the second). One for 32 or 16 neighbouring elements of K, so (..., m, k / 32)
    and (..., k / 32, n): ml_dtypes' float8_e8m0fnu, float8_e4m3fn (NVFP4's, signs ignored), or codes as uint8
    where the model has one format.
    Result: as a, or as b where that is torch's, in the dtype of `out`. Bits never depend on threads, strides
    or batching.

    Errors: ValueError or TypeError in one line: shapes, formats that a model does not multiply, calls for which
    a plan has no rule, c with a plan. Source: numerics/gemm/gemm.hpp, numerics/gemm/library_plan.hpp and
    numerics/tensor_core/tensor_core_model.hpp, where the papers are.

    >>> import numpy, fp16lab
    >>> a = numpy.array([[1.0, 2.0**-12, -1.0]], numpy.float16)
    >>> b = numpy.array([[1.0], [2.0**-12], [1.0]], numpy.float16)
    >>> [float(fp16lab.matmul(a, b, m, out="f32")[0, 0]) for m in ("volta", "hopper")]
    [0.0, 5.960464477539063e-08]
    >>> fp16lab.matmul(a, b, c=0.5)
    array([[0.5]], dtype=float16)
    """
    left, right = _operand(a, "a"), _operand(b, "b")
    if left.words.ndim == 0 or right.words.ndim == 0:
        raise ValueError("a and b need at least one dimension; a number times an array is *")
    a_format, b_format = _register(left.format), _register(right.format)
    _require_formats(left, right, model, accumulator)
    if out is None:
        out = accumulator if left.format in _BYTES else left.format
    if out not in _OUTPUTS:
        raise ValueError(f"out is {out!r}; one of {', '.join(_OUTPUTS)} is needed")
    kind = right if right.kind == "torch" else left
    if kind.kind != "torch":
        numpy_dtype(out)  # ml_dtypes is missed before anything is computed
    count = thread_count(threads)
    planned = Plan(plan) if isinstance(plan, str) else plan
    if not isinstance(planned, Plan):
        raise TypeError(f"plan is {plan!r}; a name of plans() or a Plan is needed")
    kind_of_call = _kind_of_call(left.words.ndim, right.words.ndim)
    if planned.name != "instruction" and not kind_of_call:
        raise ValueError(f"plan '{planned.name}' has no rule for matrices of a batch times a vector")
    library_threads = planned.threads
    if library_threads is None:
        library_threads = sys.modules["torch"].get_num_threads() if kind.kind == "torch" else 1

    rows = left.words if left.words.ndim > 1 else left.words[np.newaxis, :]
    columns = right.words if right.words.ndim > 1 else right.words[:, np.newaxis]
    if rows.shape[-1] != columns.shape[-2]:
        raise ValueError(
            f"a is {left.words.shape} and b is {right.words.shape}: {rows.shape[-1]} columns of a need as"
            f" many rows of b, not {columns.shape[-2]}"
        )
    try:
        batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    except ValueError:
        raise ValueError(
            f"the batches {rows.shape[:-2]} of a and {columns.shape[:-2]} of b do not broadcast"
        ) from None
    sums = np.empty((*batch, rows.shape[-2], columns.shape[-1]), "u4" if accumulator == "f32" else "u2")
    shape = batch + left.words.shape[-2:-1] + (right.words.shape[-1:] if right.words.ndim > 1 else ())
    if c is not None:
        words = _accumulators(c, accumulator)
        try:
            np.copyto(sums.reshape(shape), words)
        except ValueError:
            raise ValueError(f"c is {words.shape} and does not broadcast to the result's {shape}") from None
    scales = _scales(scale_a, scale_b, model, left.words.ndim, right.words.ndim, rows.shape[-1])
    if scales.block and planned.name != "instruction":
        raise ValueError(f"plan '{planned.name}' has no rule for block scales; plan=\"instruction\" is one chain")
    try:
        _core.matmul(
            np.broadcast_to(rows, batch + rows.shape[-2:]),
            a_format,
            np.broadcast_to(columns, batch + columns.shape[-2:]),
            b_format,
            model,
            accumulator,
            c is not None,
            sums,
            planned.name,
            planned.parts,
            planned.join,
            planned.partials,
            planned.fast_accumulation,
            library_threads,
            kind_of_call or "bmm",
            count,
            scales.of("scale_a", scales.a, (*batch, rows.shape[-2], scales.count)),
            scales.of("scale_b", scales.b, (*batch, scales.count, columns.shape[-1])),
            scales.format,
            scales.block,
        )
    except ValueError as error:
        if a_format != "tf32":
            raise
        hint = "float32 arrays are TF32; .astype(numpy.float16) rounds them to FP16"
        raise ValueError(f"{error}; {hint}") from None
    return kind.wrap_as_array(_rounded(sums, accumulator, out, count).reshape(shape), out)


def models() -> dict[str, tuple[dict[str, Any], ...]]:
    """The tensor-core generations, oldest first, each with its rows.

    A row: hardware, operands, accumulator, block_size (products in a fused block), fraction_bits (kept in
    alignment), output (rounding), scales (pairs of a format and the elements of K that have one), evidence and
    source. Source: numerics/tensor_core/tensor_core_model.cpp.

    >>> import fp16lab
    >>> list(fp16lab.models())[:5]
    ['volta', 'turing', 'ampere', 'ada', 'hopper']
    >>> fp16lab.models()["volta"][0]["block_size"]
    4
    """
    return _core.models()


def plans() -> dict[str, dict[str, str]]:
    """The plans of library calls: library, rows, rule, unknown (which calls are refused), evidence, source.

    >>> import fp16lab
    >>> list(fp16lab.plans())
    ['instruction', 'onednn', 'cublaslt-12.8', 'split-k']
    """
    return _core.plans()


def _kind_of_call(left: int, right: int) -> str:
    """What torch.matmul calls for operands of so many dimensions; "" where it folds a batch."""
    if max(left, right) > 2:
        return "bmm" if min(left, right) > 1 else ""
    return "mm" if right == 2 else "mv" if left == 2 else "dot"


def _operand(x: Any, name: str) -> Codes:
    codes = codes_of(x, name)
    if codes.format == "f64":
        raise TypeError(
            f"{name} is float64, which no model multiplies; {name}.astype(numpy.float16) is right, or float32"
            " for TF32"
        )
    return codes


def _require_formats(left: Codes, right: Codes, model: str, accumulator: str) -> None:
    if not isinstance(model, str):
        raise TypeError(f"model is {model!r}; a name of models() is needed")
    if left.format != right.format and not {left.format, right.format} <= set(_BYTES):
        raise ValueError(
            f"a is {left.format} and b is {right.format}; a tensor core multiplies one format, or any two of"
            " 8, 6 and 4 bits: .astype makes them alike"
        )
    if accumulator not in ("f32", "f16"):
        raise ValueError(f'accumulator is {accumulator!r}; "f32" or "f16" is needed')


@dataclass(frozen=True)
class _Scales:
    """Block scales as codes of a format, for `block` elements of K each; block 0: none."""

    format: str = ""
    block: int = 0
    count: int = 0  # of blocks along K
    a: np.ndarray[Any, Any] | None = None
    b: np.ndarray[Any, Any] | None = None

    def of(self, name: str, codes: np.ndarray[Any, Any] | None, shape: tuple[int, ...]) -> Any:
        if codes is None:
            return np.empty((1, 1), "u1")
        try:
            return np.broadcast_to(codes, shape)
        except ValueError:
            raise ValueError(f"{name} has shape {codes.shape}; {shape} is needed") from None


def _scale_codes(x: Any, name: str) -> tuple[np.ndarray[Any, Any], str]:
    """Codes and their format, "" where they are numbers of uint8."""
    if str(getattr(x, "dtype", "")).removeprefix("torch.") == "uint8":
        return np.asarray(x), ""
    codes = codes_of(x, name)
    if codes.format not in ("e8m0", "e4m3"):
        raise TypeError(
            f"{name} has dtype {x.dtype}; ml_dtypes' float8_e8m0fnu, or float8_e4m3fn for NVFP4, or codes as"
            " uint8 are needed"
        )
    return codes.words, "e8m0" if codes.format == "e8m0" else "ue4m3"


def _scales(scale_a: Any, scale_b: Any, model: str, a_ndim: int, b_ndim: int, k: int) -> _Scales:
    if scale_a is None and scale_b is None:
        return _Scales()
    if scale_a is None or scale_b is None:
        raise ValueError("scale_a and scale_b are needed together: a block-scaled product scales both operands")
    (a, a_format), (b, b_format) = _scale_codes(scale_a, "scale_a"), _scale_codes(scale_b, "scale_b")
    known = [kind for row in models().get(model.lower(), ()) for kind in row["scales"]]
    formats = {format for format in (a_format, b_format) if format} or {format for format, _ in known}
    if len(formats) > 1:
        raise ValueError(
            f"scale_a and scale_b: {' and '.join(sorted(formats))} are possible here and one is needed;"
            " .view(ml_dtypes.float8_e8m0fnu) or .view(ml_dtypes.float8_e4m3fn) says which"
        )
    if a.ndim != a_ndim or b.ndim != b_ndim:
        raise ValueError(f"scale_a has shape {a.shape} and scale_b {b.shape}; as many dimensions as a and b are needed")
    rows, columns = a if a.ndim > 1 else a[np.newaxis, :], b if b.ndim > 1 else b[:, np.newaxis]
    count = rows.shape[-1]
    possible = [k // block for _, block in known if k % block == 0]
    if columns.shape[-2] != count or count == 0 or (known and count not in possible):
        raise ValueError(
            f"scale_a is {a.shape} and scale_b is {b.shape}; for K = {k} and scales of {sorted(set(known))} as"
            f" (format, elements), {' or '.join(map(str, sorted(set(possible)))) or 'another K'} along K are needed"
        )
    return _Scales(formats.pop() if formats else "e8m0", k // count, count, rows, columns)


def _register(format: str) -> str:
    return "tf32" if format == "f32" else format


def _accumulators(c: Any, accumulator: str) -> np.ndarray[Any, Any]:
    """c as words of the accumulator's format; every number of it must be one."""
    codes = codes_of(c, "c")
    words, format = np.ascontiguousarray(codes.words).reshape(codes.words.shape), codes.format
    if format == accumulator:
        return words
    if format not in ("f32", "f64"):
        words, format = _widened(words, format, 1), "f32"
        if accumulator == "f32":
            return words
    target = FORMATS[accumulator].exponent_bits, FORMATS[accumulator].precision
    rounded, result = np.empty_like(words), np.empty(words.shape, "u4" if accumulator == "f32" else "u2")
    _core.round(words, format, target, "nearest_even", None, False, rounded, False, 1)
    _core.round(words, format, target, "nearest_even", None, False, result, True, 1)
    # Words, not numbers: a thread that flushes subnormals compares them as zeros.
    if ((rounded != words) & ~np.isnan(words.view(f"f{words.itemsize}"))).any():
        dtype = "float32" if accumulator == "f32" else "float16"
        raise ValueError(
            f"c has numbers that are none of {accumulator}, which accumulates; numpy.{dtype}(c) rounds them"
        )
    return result


def _widened(words: np.ndarray[Any, Any], format: str, threads: int) -> np.ndarray[Any, Any]:
    wide = np.empty(words.shape, "u4")
    _core.widen(words, format, wide, threads)
    return wide


def _rounded(sums: np.ndarray[Any, Any], accumulator: str, out: str, threads: int) -> np.ndarray[Any, Any]:
    """Accumulators as codes of `out`, once more rounded where that is narrower."""
    if out == accumulator:
        return sums
    if accumulator == "f16":
        sums = _widened(sums, "f16", threads)
    if out == "f32":
        return sums
    result = np.empty(sums.shape, "u1" if out in ("e4m3", "e5m2") else "u2")
    _core.round(sums, "f32", out, "nearest_even", None, False, result, True, threads)
    return result


@dataclass(frozen=True)
class Term:
    """A summand of a step: a product (or "padding", after the end of K; or "group", products from k on that are added
    exactly), the accumulator, or the two blocks before an addition.

    value: exact, a Fraction, or a float where it is infinite or NaN. kept + dropped == value where the sum is
    finite: what alignment keeps of it, and what it drops.
    """

    source: str
    k: int | None
    value: Fraction | float
    exponent: int
    kept: Fraction
    dropped: Fraction


@dataclass(frozen=True)
class Step:
    """A fused block (with FP8 on some hardware also an ordinary addition) and the accumulator it gives."""

    fused: bool
    terms: tuple[Term, ...]
    max_exponent: int
    unit_exponent: int
    sum: Fraction | float
    word: int
    result: Fraction | float


@dataclass(frozen=True)
class Explanation:
    """One dot product, step by step.

    word, result: what the tensor core gives. exact: c + sum(a[k] * b[k]). nearest_word, nearest: `exact`
    rounded once to nearest even. error: result - exact; None where one is not finite. operand_error: its part
    from bits of FP32 operands that TF32 cuts. ulp_exponent: 2**ulp_exponent is the spacing of the accumulator's
    format there.
    """

    steps: tuple[Step, ...]
    word: int
    result: Fraction | float
    exact: Fraction | float
    nearest_word: int
    nearest: Fraction | float
    ulp_exponent: int
    error: Fraction | None
    operand_error: Fraction

    @property
    def error_in_ulp(self) -> Fraction | None:
        return None if self.error is None else self.error / Fraction(2) ** self.ulp_exponent


def explain(
    a_row: Any,
    b_col: Any,
    c: Any = 0.0,
    model: str = "hopper",
    accumulator: str = "f32",
    scale_a: Any = None,
    scale_b: Any = None,
) -> Explanation:
    """A tensor core's dot product taken apart: terms, what alignment drops, roundings, the exact sum.

    a_row, b_col: one dimension, the same length; dtypes, model, accumulator and scales as in matmul. c: a number of
    the accumulator's format. Numbers are exact fractions. Errors: ValueError or TypeError in one line.
    Source: numerics/tensor_core/explained_dot.hpp.

    >>> import numpy, fp16lab
    >>> half = numpy.float16
    >>> dot = fp16lab.explain(half([1, 2**-12]), half([1, 2**-14]), numpy.float32(0), "volta")
    >>> dot.exact - dot.result
    Fraction(1, 67108864)
    >>> [str(term.dropped) for term in dot.steps[0].terms]
    ['0', '0', '1/67108864']
    """
    left, right = _operand(a_row, "a_row"), _operand(b_col, "b_col")
    for codes, name in ((left, "a_row"), (right, "b_col")):
        if codes.words.ndim != 1:
            raise ValueError(
                f"{name} has shape {codes.words.shape}; one dimension is needed: a row of a, a column of b"
            )
    if left.words.shape != right.words.shape:
        raise ValueError(
            f"a_row has {left.words.size} elements and b_col has {right.words.size}; they must agree"
        )
    _require_formats(left, right, model, accumulator)
    word = _accumulators(c, accumulator)
    if word.size != 1:
        raise ValueError(f"c has shape {word.shape}; one number is needed")
    scales = _scales(scale_a, scale_b, model, 1, 1, left.words.size)
    dot = _core.explain(
        left.words.tolist(),
        _register(left.format),
        right.words.tolist(),
        _register(right.format),
        int(word.reshape(())),
        model,
        accumulator,
        [] if scales.a is None else scales.a.ravel().tolist(),
        [] if scales.b is None else scales.b.ravel().tolist(),
        scales.format,
        scales.block,
    )
    return Explanation(
        tuple(_step(step) for step in dot["steps"]),
        dot["word"],
        _number(dot["result"]),
        _number(dot["exact"]),
        dot["nearest_word"],
        _number(dot["nearest"]),
        dot["ulp_exponent"],
        None if dot["error"] is None else _fraction(dot["error"]),
        _fraction(dot["operand_error"]),
    )


def _fraction(digits: tuple[str, str]) -> Fraction:
    return Fraction(int(digits[0]), int(digits[1]))


def _number(number: tuple[str, bool, str, str]) -> Fraction | float:
    kind, negative, *digits = number
    if kind == "finite":
        return _fraction((digits[0], digits[1]))
    return float("nan") if kind == "nan" else float("-inf" if negative else "inf")


def _step(step: dict[str, Any]) -> Step:
    terms = tuple(
        Term(
            term["source"],
            term["k"],
            _number(term["number"]),
            term["exponent"],
            _fraction(term["kept"]),
            _fraction(term["dropped"]),
        )
        for term in step["terms"]
    )
    return Step(
        step["fused"],
        terms,
        step["max_exponent"],
        step["unit_exponent"],
        _number(step["sum"]),
        step["word"],
        _number(step["result"]),
    )
