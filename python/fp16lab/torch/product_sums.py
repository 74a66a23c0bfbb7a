"""What the sums of emulated products were before they were rounded: lab.emulate counts them for lab.watch.

A product of 16-bit operands has sums in FP32, of which PyTorch sees nothing: it gets them rounded. While a
watch counts a step, their histogram is kept beside the memory that they were rounded into, for as long as
nothing else is written there, and so is that of a copy in another dtype, as autocast makes one of a weight's
gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _core
from .counting import FORMATS

_listeners: WeakSet[Any] = WeakSet()


class Sums(NamedTuple):
    """before: of the FP32 sums; format: what they were rounded to, "f16" or "bf16"."""

    before: _core.Histogram
    format: str


class _Kept(NamedTuple):
    storage: StorageWeakRef
    version: int
    elements: int
    sums: Sums


_kept: dict[int, _Kept] = {}


def listen(listener: object, wanted: bool) -> None:
    """Sums are counted as long as one listener needs them; every call discards what was kept."""
    (_listeners.add if wanted else _listeners.discard)(listener)
    _kept.clear()


def wanted() -> bool:
    return len(_listeners) > 0


def keep(result: torch.Tensor, before: _core.Histogram | None) -> None:
    """Keeps the sums of a product that was just rounded into `result`; None: not counted."""
    if before is not None and result.dtype in (torch.float16, torch.bfloat16):
        _keep(result, Sums(before, FORMATS[result.dtype]))


def follow(copy: torch.Tensor, source: torch.Tensor) -> None:
    """`copy` has the numbers of `source`, in memory of its own."""
    sums = of(source)
    if sums is not None:
        _keep(copy, sums)


def of(tensor: torch.Tensor) -> Sums | None:
    """The sums of a tensor that is all of a product's result, in any shape, or of a copy."""
    if not _kept or tensor.layout is not torch.strided or tensor.is_inference():
        return None
    kept = _kept.get(tensor.data_ptr())
    if kept is None or kept.elements != tensor.numel():
        return None
    return None if kept.storage.expired() or kept.version != tensor._version else kept.sums


def _keep(tensor: torch.Tensor, sums: Sums) -> None:
    if tensor.numel() > 0 and not tensor.is_inference():
        storage = StorageWeakRef(tensor.untyped_storage())
        _kept[tensor.data_ptr()] = _Kept(storage, tensor._version, tensor.numel(), sums)
