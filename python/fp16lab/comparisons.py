"""What two computations differ by, tensor by tensor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from . import _core
from .arrays import codes_of, is_tensor
from .tensor_memory import in_memory

_NUMBERS = ("largest", "relative_l2", "norm_a", "norm_b", "cosine", "scale_a", "scale_b")


class Comparison:
    """What `compare` found; `print` it for the headline and the tensors that differ, in order.

    equal      the same tensors, of the same dtypes and numbers
    headline   the answer in a few sentences
    tensors    a dictionary for each, in order: differing, beyond_cast (what no cast explains), ulps (numbers of the
               narrower format, ulps_of, from one to the other), largest (|a - b|), relative_l2, cosine, and first
               and first_beyond_cast: index in row-major order, numbers and bits of that element, or None
    """

    def __init__(self, core: _core.DumpComparison) -> None:
        self._core = core

    @property
    def equal(self) -> bool:
        return self._core.equal

    @property
    def headline(self) -> str:
        return self._core.headline

    @cached_property
    def tensors(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self._core.json())["tensors"]
        for row in rows:  # JSON has no Inf and NaN
            row.update({name: float(row[name]) for name in _NUMBERS if row[name] is not None})
            for element in filter(None, (row["first"], row["first_beyond_cast"])):
                element.update(a=float(element["a"]), b=float(element["b"]))
        return rows

    @property
    def first(self) -> dict[str, Any] | None:
        """The first tensor that differs by more than a cast, or is on one side only; where there is none, the first
        that differs; None: nothing does."""
        beyond = (row for row in self.tensors if _differs(row))
        return next(beyond, None) or next((row for row in self.tensors if row["differing"]), None)

    def table(self, most: int | None = 30) -> str:
        """The first `most` tensors that differ; None: all of them."""
        return self._core.text(most)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"Comparison({self.headline!r})"


def compare(a: Any, b: Any, scale_a: float = 1.0, scale_b: float = 1.0, threshold: float = 0.01) -> Comparison:
    """Compares what two computations gave: where do they part first, by how much, and does a cast explain it?

    a, b: arrays or tensors of any device; dictionaries of them, nested or not, as state_dict gives; modules, whose
    state_dict counts; what lab.step_results gives; or paths of dumps (.npy, .npz, .safetensors, folders
    of them), both. Tensors belong together by name, without what torch's wrappers add; order is a's, of
    .safetensors files by name. scale_a,
    scale_b: the loss scales that their numbers carry, which are taken out. threshold: the relative L2 from which
    a tensor is named as far.

    Of two dtypes the one of fewer significant bits is the grid: a cast alone explains an element where rounding the
    other one to it, at its own scale, gives the same bits, and ulps count the numbers of the grid between the two.
    Inf and NaN are counted, and left out of norms. The answer is that of `fp16lab compare`.
    Errors: ValueError, TypeError. Source: analysis/value_difference.hpp.

    >>> import numpy, fp16lab
    >>> x = {"w": numpy.float32([1 / 3, 1]), "b": numpy.float32([2])}
    >>> y = {"w": numpy.float16([1 / 3, 1.001]), "b": numpy.float32([2])}
    >>> found = fp16lab.compare(x, y)
    >>> found.first["tensor"], found.first["differing"], found.first["beyond_cast"], found.first["ulps"]
    ('w', 2, 1, 1)
    """
    paths = [isinstance(side, (str, os.PathLike)) for side in (a, b)]
    if all(paths):
        return Comparison(_core.compare_files(os.fspath(a), os.fspath(b), scale_a, scale_b, threshold))
    if any(paths):
        raise TypeError("compare: one side is a path, the other is not; two paths are needed, or two loaded sides")
    core = _core.DumpComparison("a", "b", threshold)
    scales = [_scales(a, scale_a), _scales(b, scale_b)]
    in_b = dict(_leaves(b, ""))
    for name, x in _leaves(a, ""):
        if name in in_b:
            add_pair(core, name, x, scales[0](name), in_b.pop(name), scales[1](name))
        else:
            core.add_other(name, _described(x), "")
    for name, y in in_b.items():
        core.add_other(name, "", _described(y))
    return Comparison(core)


def _differs(row: dict[str, Any]) -> bool:
    return bool(row["beyond_cast"] or row["trouble"] or not (row["type_a"] and row["type_b"]))


def _scales(side: Any, scale: float) -> Callable[[str], float]:
    """What a name's numbers carry: what `side` says of it (lab.step_results), times `scale`."""
    return lambda name: scale * (side.scale_of(name) if hasattr(side, "scale_of") else 1.0)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Arrays, tensors and numbers by their names; what is nothing of these (None, text) is left out."""
    if hasattr(value, "state_dict") and hasattr(value, "named_parameters"):
        value = value.state_dict()
    if isinstance(value, (list, tuple)) and not all(isinstance(part, (int, float)) for part in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, part in value.items():
            own = _core.plain_name(str(key))
            yield from _leaves(part, f"{name}.{own}" if name else own)
    elif value is not None and not isinstance(value, (str, bytes)):
        yield name or "array", value if is_tensor(value) else np.asarray(value)


def add_pair(core: _core.DumpComparison, name: str, x: Any, scale_a: float, y: Any, scale_b: float) -> None:
    """Adds what `name` is on both sides."""
    told = _described(x), _described(y)
    if tuple(x.shape) != tuple(y.shape):
        core.add_other(name, *told, "other shapes")
        return
    (words_a, type_a), (words_b, type_b) = _words(x, f"a['{name}']"), _words(y, f"b['{name}']")
    integers = [type[0] in "iu" or type == "boolean" for type in (type_a, type_b)]
    if any(integers) and type_a != type_b:
        core.add_other(name, *told, "other types")
        return
    scales = (1.0, 1.0) if any(integers) else (scale_a, scale_b)
    core.add_both(name, told[0], words_a, type_a, scales[0], told[1], words_b, type_b, scales[1])


def _words(x: Any, name: str) -> tuple[np.ndarray[Any, Any], str]:
    """Codes, and the name of their type."""
    if is_tensor(x):
        x = x.detach()
        x = x.cpu() if x.device.type not in ("cpu", "meta") else x
        if not x.is_floating_point() and not x.is_complex():
            x = in_memory(x, name).numpy()
    if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
        type = "boolean" if x.dtype.kind == "b" else f"{x.dtype.kind}{8 * x.dtype.itemsize}"
        words = x.astype(x.dtype.newbyteorder("=")).view(f"u{x.dtype.itemsize}")
    else:
        codes = codes_of(x, name)
        words, type = codes.words, codes.format
    return (words if words.flags.c_contiguous else words.copy(order="C")), type


def _described(x: Any) -> str:
    """ "float32 3x4"."""
    shape = "x".join(map(str, x.shape))
    return f"{str(x.dtype).removeprefix('torch.')}{' ' if shape else ''}{shape}"


__all__ = ["Comparison", "compare"]
