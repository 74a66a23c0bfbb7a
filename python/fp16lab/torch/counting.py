"""Exponent histograms of PyTorch tensors, counted where they are: without a copy by the C++ library on the host, and
in a buffer of the device (device_counts.py) elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ..tensor_memory import flat, has_parts, local_parts
from .device_counts import DeviceCounts, how

#: What a histogram counts of a tensor, by dtype.
FORMATS = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}


@contextmanager
def unseen() -> Iterator[None]:
    """What is computed inside belongs to no graph, to no mode such as lab.op_stats, and to no transformation of
    torch.func."""
    with ExitStack() as scope:
        scope.enter_context(torch.no_grad())
        if torch._C._len_torch_dispatch_stack() > 0:
            scope.enter_context(_disable_current_modes())
        if torch._C._functorch.peek_interpreter_stack() is not None:
            scope.enter_context(temporarily_clear_interpreter_stack())
        yield


def is_countable(value: object) -> TypeGuard[torch.Tensor]:
    """Is it a tensor of one of `FORMATS`, with numbers in this process (no meta or fake tensor)?"""
    return isinstance(value, torch.Tensor) and value.dtype in FORMATS and has_parts(value)


def format_of(tensor: torch.Tensor) -> str:
    """ "f64", "f32", "f16" or "bf16"; TypeError for other dtypes."""
    if tensor.dtype not in FORMATS:
        known = ", ".join(str(dtype) for dtype in FORMATS)
        raise TypeError(f"a histogram counts {known}, not {tensor.dtype}")
    return FORMATS[tensor.dtype]


def on_host(tensor: torch.Tensor) -> bool:
    """May it be read at once? Reading a tensor of a device waits for the device's queued work."""
    return tensor.device.type == "cpu"


@dataclass(eq=False, slots=True)
class Counted:
    """Counts of one or several tensors; those of a device enter `histogram` when its Tally is read."""

    histogram: _core.Histogram = field(default_factory=_core.Histogram)
    rows: dict[torch.device, int] = field(default_factory=dict)  # that are not read yet


class Tally:
    """Counts tensors: those of the host at once, those of a device into its buffer, until `read`."""

    def __init__(self) -> None:
        self._devices: dict[torch.device, DeviceCounts] = {}
        self.waiting: list[Counted] = []  # for `read`

    def count(self, tensor: torch.Tensor, counted: Counted | None = None) -> Counted:
        """Adds every element to `counted` (a new one without) and returns it.

        `tensor`: any shape and strides, of float32, float16, bfloat16 or float64 (what is beyond FP32's range is
        in the first bin or the last, as fp16lab.histogram has it); of a sparse one the values are counted, the zeros
        between them not; of a DTensor this rank's part. TypeError for other dtypes. Counts never depend on the order
        of elements, so a transposed tensor is not copied.
        """
        counted = Counted() if counted is None else counted
        name = format_of(tensor)
        with unseen():
            for part in local_parts(tensor):
                if on_host(part):
                    counted.histogram._count(flat(part), name, 1)  # which reads it by DLPack
                else:
                    with torch.inference_mode(False):  # whose tensors could not be added to elsewhere
                        self._enqueue(part, counted)
        return counted

    def _enqueue(self, part: torch.Tensor, counted: Counted) -> None:
        if part.device not in self._devices:
            self._devices[part.device] = DeviceCounts(part.device)
        counts = self._devices[part.device]
        if not counted.rows:
            self.waiting.append(counted)
        if part.device not in counted.rows:
            counted.rows[part.device] = counts.new_row()
        counts.add(counted.rows[part.device], part)

    def read(self) -> None:
        """Everything that was counted enters its histogram: one copy from each device."""
        if not self.waiting:
            return
        with unseen(), torch.inference_mode(False):
            found = {device: counts.read() for device, counts in self._devices.items()}
        for counted in self.waiting:
            for device, row in counted.rows.items():
                counted.histogram += found[device][row]
            counted.rows.clear()
        self.waiting.clear()

    def notes(self) -> str:
        """A line a device: what counts there."""
        return "".join(f"Counted on {device} {how(device)}.\n" for device in self._devices)

    def __reduce__(self) -> tuple[Any, ...]:
        """Buffers stay with their process."""
        return Tally, ()


def count(tensor: torch.Tensor) -> _core.Histogram:
    """The histogram of a tensor (Tally.count), read at once.

    >>> count(torch.tensor([1.0, 0.5, 0.0])).zero
    1
    """
    tally = Tally()
    counted = tally.count(tensor)
    tally.read()
    return counted.histogram


def number(value: float | torch.Tensor) -> float | torch.Tensor:
    """A float; of a tensor with one element on a device, a copy of it there."""
    if not isinstance(value, torch.Tensor):
        return float(value)
    value = value.detach()
    return float(value) if on_host(value) else value.reshape(()).clone()


def fetched(values: Sequence[Any]) -> list[Any]:
    """`values`, in which tensors of at most one dimension became numbers or lists of numbers: one copy to the host
    for each device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            groups.setdefault((value.device, value.dtype), []).append(place)
    found = list(values)
    for places in groups.values():
        numbers = iter(torch.cat([values[place].reshape(-1) for place in places]).tolist())
        for place in places:
            own = list(islice(numbers, values[place].numel()))
            found[place] = own if values[place].ndim else own[0]
    return found
