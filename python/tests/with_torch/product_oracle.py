"""What a product of PyTorch has to give, element by element, by `fp16lab mma`.

Operands of an output element are picked here, one by one, by the definition of the operation; the program
adds their products up as the tensor core does; numpy does the rest in FP32 and rounds. Nothing of
fp16lab.torch has a part in it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from support import filtered
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
FORMAT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "tf32"}

_Dot = tuple[list[Any], list[Any], torch.Tensor | None]  # a row, a column, what is added to their sum


class Recorder(TorchDispatchMode):
    """Keeps what products got and gave; entered inside of lab.emulate."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]  # what is written later
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _DOTS:
            given = [
                r.clone() if r is not None else r for r in (result if isinstance(result, tuple) else [result])
            ]
            self.calls.append((func, tuple(kept), kwargs or {}, given))
        return result


def _of_matrices(place: Any, a: Any, b: Any, c: Any = None) -> _Dot:
    i, j = place[-2:]
    batch = place[:-2]
    added = None if c is None else c.broadcast_to((*batch, a.shape[-2], b.shape[-1]))
    return list(a[(*batch, i)]), [row[j] for row in b[batch]], None if added is None else added[tuple(place)]


def _mm(place: Any, args: Any, which: int) -> _Dot:
    return _of_matrices(place, args[0], args[1])


def _addmm(place: Any, args: Any, which: int) -> _Dot:
    return _of_matrices(place, args[1], args[2], args[0])


def _mv(place: Any, args: Any, which: int) -> _Dot:
    return list(args[0][place[0]]), list(args[1]), None


def _dot(place: Any, args: Any, which: int) -> _Dot:
    return list(args[0]), list(args[1]), None


def _tap(t: Any, n: int, c: int, place: Any) -> Any:
    inside = all(0 <= at < extent for at, extent in zip(place, t.shape[2:]))
    return t[(n, c, *place)] if inside else t.new_zeros(())


def _is_last(*tensors: Any) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return any(
        t.ndim in formats and not t.is_contiguous() and t.is_contiguous(memory_format=formats[t.ndim])
        for t in tensors
    )


def _places(extents: Any) -> Any:
    return itertools.product(*map(range, extents))


class _Spatial:
    """The forward direction y = x * weight of a convolution, of any number of dimensions."""

    def __init__(self, stride: Any, padding: Any, dilation: Any, groups: int, dimensions: int) -> None:
        self.stride, self.padding, self.dilation = (
            list(each) * (dimensions // len(each)) for each in (stride, padding, dilation)
        )
        self.groups = groups

    def _read(self, place: Any, tap: Any) -> list[int]:
        """The place of x that an output at `place` reads by a tap."""
        terms = zip(place, self.stride, self.padding, tap, self.dilation)
        return [at * stride - padding + t * dilation for at, stride, padding, t, dilation in terms]

    def y(self, place: Any, x: Any, weight: Any, last: bool) -> tuple[list[Any], list[Any]]:
        n, k, *at = place
        first = k // (weight.shape[0] // self.groups) * weight.shape[1]
        terms = [(c, tap) for c in range(weight.shape[1]) for tap in _places(weight.shape[2:])]
        if last:
            terms.sort(key=lambda t: (t[1], t[0]))
        row = [weight[(k, c, *tap)] for c, tap in terms]
        return row, [_tap(x, n, first + c, self._read(at, tap)) for c, tap in terms]

    def x(self, place: Any, y: Any, weight: Any) -> tuple[list[Any], list[Any]]:
        n, c, *at = place
        of_group, inputs = weight.shape[0] // self.groups, weight.shape[1]
        group = c // inputs
        row, column = [], []
        for k in range(group * of_group, (group + 1) * of_group):
            for tap in _places(weight.shape[2:]):
                row.append(weight[(k, c % inputs, *tap)])
                reader = [out for out in _places(y.shape[2:]) if self._read(out, tap) == at]
                column.append(y[(n, k, *reader[0])] if reader else y.new_zeros(()))
        return row, column

    def weight(self, place: Any, x: Any, y: Any) -> tuple[list[Any], list[Any]]:
        k, c, *tap = place
        channel = k // (y.shape[1] // self.groups) * (x.shape[1] // self.groups) + c
        row, column = [], []
        for n in range(y.shape[0]):
            for out in _places(y.shape[2:]):
                row.append(y[(n, k, *out)])
                column.append(_tap(x, n, channel, self._read(out, tap)))
        return row, column


def _convolution(place: Any, args: Any, which: int) -> _Dot:
    x, weight, bias, stride, padding, dilation, transposed, _, groups = args
    conv = _Spatial(stride, padding, dilation, groups, x.ndim - 2)
    row, column = conv.x(place, x, weight) if transposed else conv.y(place, x, weight, _is_last(x, weight))
    return row, column, None if bias is None else bias[place[1]]


def _convolution_backward(place: Any, args: Any, which: int) -> _Dot:
    dy, x, weight, _, stride, padding, dilation, transposed, _, groups = args[:10]
    conv = _Spatial(stride, padding, dilation, groups, x.ndim - 2)
    if which == 0 and transposed:
        return (*conv.y(place, dy, weight, _is_last(x, weight)), None)
    if which == 0:
        return (*conv.x(place, dy, weight), None)
    return (*(conv.weight(place, dy, x) if transposed else conv.weight(place, x, dy)), None)


_DOTS = {
    aten.mm: _mm,
    aten.bmm: _mm,
    aten.addmm: _addmm,
    aten.baddbmm: _addmm,
    aten.mv: _mv,
    aten.dot: _dot,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
}


def _words(values: list[Any], dtype: torch.dtype) -> str:
    if not values:
        return ""
    codes = torch.stack([v.detach() for v in values]).view(
        torch.int32 if dtype == torch.float32 else torch.int16
    )
    width = 8 if dtype == torch.float32 else 4
    return " ".join(f"{code & (1 << 4 * width) - 1:0{width}x}" for code in codes.tolist())


def check(calls: list[Any], model: str, accumulator: str = "f32", samples: int = 3, seed: int = 1) -> int:
    """Compares sampled elements of every result with the program's; returns how many. AssertionError naming
    the operation and the element that differs."""
    random = np.random.default_rng(seed)
    lines: dict[tuple[str, str], list[str]] = {}
    expected: dict[tuple[str, str], list[Any]] = {}
    for func, args, kwargs, result in calls:
        assert not kwargs.get("alpha", 1) != 1 and not kwargs.get("beta", 1) != 1, "the oracle has no alpha"
        for which, values in enumerate(result[:2]):
            if values is None or values.numel() == 0 or values.dtype not in FORMAT:
                continue
            for _ in range(samples):
                place = tuple(int(random.integers(extent)) for extent in values.shape)
                row, column, added = _DOTS[func.overloadpacket](place, args, which)
                dtype = values.dtype
                half = accumulator == "f16" and dtype == torch.float16
                key = FORMAT[dtype], "f16" if half else "f32"
                lines.setdefault(key, []).append(
                    f"{_words(row, dtype)}\t{_words(column, dtype)}\t{'0000' if half else '00000000'}"
                )
                expected.setdefault(key, []).append((func, place, values[place], added))
    count = 0
    for key, questions in lines.items():
        answers = filtered(questions, "mma", "--model", model, "--in", key[0], "--acc", key[1])
        for answer, (func, place, value, added) in zip(answers, expected[key], strict=True):
            word = int(answer.split("\t")[3], 16)
            sums = (
                np.uint16(word).view(np.float16).astype(np.float32)
                if key[1] == "f16"
                else np.uint32(word).view(np.float32)
            )
            if added is not None:
                sums = np.float32(sums + np.float32(added.float().item()))
            rounded = torch.tensor(sums).to(value.dtype)
            assert torch.equal(rounded, value.detach()) or rounded.isnan() and value.isnan(), (
                f"{func.name()} at {place}: {value.item()!r}, by fp16lab mma {rounded.item()!r}"
            )
            count += 1
    return count
