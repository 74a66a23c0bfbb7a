"""Operations of a step that are computed in FP32 where the user has 16 bits (for lab.explain_overflow)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

from .layers import LayerTracker, float_tensors, gives_views

NARROW = (torch.float16, torch.bfloat16)
NARROWER = {torch.float32: NARROW, torch.float64: (*NARROW, torch.float32)}
PRODUCTS = ("addmm", "mm", "bmm", "convolution", "convolution_backward")


class Place(NamedTuple):
    """The `number`-th call of `op` in a layer and a pass. It is the same when the step is done again in FP32,
    but for casts, some of which are then none."""

    pass_: str
    layer: str
    op: str
    number: int


def same_operation(there: Place, place: Place) -> bool:
    """The same operation of the same layer, or its recomputation in a backward pass (checkpointing)."""
    return place[:3] == there[:3] or (place.pass_ == "backward" and place.op == there.op)


class Places:
    """Numbers the operations of a step as they come."""

    def __init__(self, tracker: LayerTracker) -> None:
        self._tracker = tracker
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def next(self, op: str) -> Place:
        layer, pass_ = self._tracker.site()
        self._seen[(pass_, layer, op)] += 1
        return Place(pass_, layer, op, self._seen[(pass_, layer, op)])


#: What is called instead of an operation: (place, func, args, kwargs) -> result.
Call = Callable[[Place, Any, tuple, dict], Any]


def as_it_is(_: Place, func: Any, args: tuple, kwargs: dict) -> Any:
    return func(*args, **kwargs)


def kept_in_fp32(wanted: Callable[[Place, list[float]], bool], writes: bool = False) -> Call:
    """Operations compute in FP32, and give FP32, where `wanted` says so of their place and of the numbers
    among their arguments; and products in a backward pass, where gradients in FP32 meet values that were
    saved in 16 bits. One that is wanted and writes into a tensor of 16 bits is a RuntimeError; with `writes` it
    is left as it is."""

    def call(place: Place, func: Any, args: tuple, kwargs: dict) -> Any:
        if gives_views(func):
            return func(*args, **kwargs)
        into_narrow = any(value.dtype in NARROW for value in float_tensors(_written(func, args, kwargs)))
        if into_narrow and writes:
            return func(*args, **kwargs)
        if wanted(place, numbers_of(args, kwargs)):
            if into_narrow:
                raise RuntimeError(f"{place.op} writes into a tensor of 16 bits")
        elif into_narrow or place.pass_ == "forward" or place.op not in PRODUCTS or not _is_mixed(args):
            return func(*args, **kwargs)
        widened = _to(torch.float32)
        return func(*tree_map(widened, args), **tree_map(widened, kwargs))

    return call


def with_constant(there: Place, old: float, new: float) -> Call:
    """The same operation gets another number, whenever it is called with the old one."""

    def call(place: Place, func: Any, args: tuple, kwargs: dict) -> Any:
        if not same_operation(there, place):
            return func(*args, **kwargs)

        def changed(value: Any) -> Any:
            return new if isinstance(value, float) and value == old else value

        return func(*tree_map(changed, args), **tree_map(changed, kwargs))

    return call


def numbers_of(args: tuple, kwargs: dict) -> list[float]:
    return [value for value in (*args, *kwargs.values()) if isinstance(value, float)]


def in_fp32(func: Any, args: tuple, kwargs: dict, index: int) -> torch.Tensor | None:
    """The result of the same operation on the same operands, widened; None where it takes none."""
    tensors = in_wide(func, args, kwargs, torch.float32)
    return tensors[index] if index < len(tensors) else None


def in_wide(func: Any, args: tuple, kwargs: dict, wide: torch.dtype) -> list[torch.Tensor]:
    """The floating-point results of the same operation on the same operands, all widened to `wide`, float32 or
    float64; none where it takes none."""
    widened = _to(wide)
    try:
        return float_tensors(func(*tree_map(widened, args), **tree_map(widened, kwargs)))
    except (RuntimeError, TypeError, NotImplementedError):
        return []


def copies_of_written(func: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments as they are before an operation that writes into some of them."""
    written = {id(value) for value in float_tensors(_written(func, args, kwargs))}

    def kept(value: Any) -> Any:
        return value.detach().clone() if id(value) in written else value

    return (tree_map(kept, args), tree_map(kept, kwargs)) if written else (args, kwargs)


@contextmanager
def model_in_fp32(model: nn.Module) -> Iterator[None]:
    """Parameters and buffers of 16 bits are FP32 inside, and afterwards the very ones they were."""
    narrow = [value for value in (*model.parameters(), *model.buffers()) if value.dtype in NARROW]
    kept = [(value, value.data) for value in narrow]
    try:
        for value, data in kept:
            value.data = data.float()
        yield
    finally:
        for value, data in kept:
            value.data = data


def _to(wide: torch.dtype) -> Callable[[Any], Any]:
    """Widens tensors, and dtypes that are asked for."""

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(wide) if value.dtype in NARROWER[wide] else value
        return wide if isinstance(value, torch.dtype) and value in NARROWER[wide] else value

    return widened


def _is_mixed(args: tuple) -> bool:
    dtypes = {value.dtype for value in float_tensors(args) if value.dim() > 0}
    return torch.float32 in dtypes and not dtypes.isdisjoint(NARROW)


def _written(func: Any, args: tuple, kwargs: dict) -> list[Any]:
    return [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
