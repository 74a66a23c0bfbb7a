"""Which operations made zeros, upstream of an operation that divides by one or takes its logarithm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .counting import is_countable
from .layers import LayerTracker, float_tensors, gives_views, op_name
from .wide_operations import NARROW, Place, Places, copies_of_written, in_fp32, numbers_of


@dataclass
class ZeroMaker:
    """An operation whose result holds zeros.

    count      how many of them are not zero in FP32 of the same operands
    greatest   magnitude of those in FP32
    constant   a number among the operands that rounds to zero, such as 1e-8
    upstream   what made zeros among the operands, the divisor first
    """

    place: Place
    dtype: torch.dtype
    count: int = 0
    greatest: float = 0.0
    constant: float | None = None
    upstream: list[ZeroMaker] = field(default_factory=list)


class ZeroTrail(TorchDispatchMode):
    """Runs along a step until the operation at `target` has its operands. `rounded` has then the operations
    upstream, nearest first, in which rounding to 16 bits made a zero that leads there."""

    def __init__(self, tracker: LayerTracker, target: Place) -> None:
        super().__init__()
        self._places, self._target = Places(tracker), target
        self._makers: dict[int, ZeroMaker] = {}  # by storage: a view has the zeros of what it shows
        self._ends: list[ZeroMaker] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self._ends is not None:
            return func(*args, **kwargs)
        place = self._places.next(op_name(func))
        upstream = self._upstream(place.op, args, kwargs)
        if place == self._target:
            self._ends, self._makers = upstream, {}
            return func(*args, **kwargs)
        before = copies_of_written(func, args, kwargs)
        result = func(*args, **kwargs)
        if not gives_views(func):
            for index, value in enumerate(float_tensors(result)):
                if is_countable(value):
                    self._take(place, func, *before, index, value, upstream)
        return result

    @property
    def rounded(self) -> list[ZeroMaker]:
        found: list[ZeroMaker] = list(self._ends or [])
        seen = {id(maker) for maker in found}
        for maker in found:  # which grows meanwhile
            for above in maker.upstream if maker.count == 0 else ():
                if id(above) not in seen:
                    seen.add(id(above))
                    found.append(above)
        return [maker for maker in found if maker.count > 0]

    def _upstream(self, op: str, args: tuple, kwargs: dict) -> list[ZeroMaker]:
        operands = [value for value in float_tensors((args, kwargs)) if is_countable(value)]
        makers = [self._makers.get(_storage(value)) for value in operands]
        known = [maker for maker in makers if maker is not None]
        return known[::-1] if op.startswith("div") else known

    def _take(
        self,
        place: Place,
        func: Any,
        args: tuple,
        kwargs: dict,
        index: int,
        value: torch.Tensor,
        upstream: list[ZeroMaker],
    ) -> None:
        storage = _storage(value)
        zero = value == 0
        if storage == 0 or not bool(zero.any()):
            self._makers.pop(storage, None)
            return
        maker = self._makers[storage] = ZeroMaker(place, value.dtype, upstream=upstream)
        if value.dtype not in NARROW or torch.Tag.nondeterministic_seeded in func.tags:
            return
        wide = in_fp32(func, args, kwargs, index)
        if wide is None or wide.shape != value.shape:
            return
        lost = wide[zero & (wide != 0) & torch.isfinite(wide)]
        maker.count = lost.numel()
        if maker.count > 0:
            maker.greatest = float(lost.abs().max())
            numbers = numbers_of(args, kwargs)
            maker.constant = next((x for x in numbers if _rounds_to_zero(x, value.dtype)), None)


def _storage(tensor: torch.Tensor) -> int:
    """Which memory it shows; 0: it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def _rounds_to_zero(number: float, dtype: torch.dtype) -> bool:
    return number != 0 and float(torch.tensor(number, dtype=dtype)) == 0
