"""lab.check_tensors: stops a training at the first Inf or NaN, and says which operation made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from .first_culprit import CulpritFinder
from .layers import LayerTracker
from .networks import any_compiled, unwrapped
from .sensitivity import layer_filter
from .step_ends import StepEnds
from .wide_operations import Place


class NonFiniteError(ArithmeticError):
    """An operation gave an Inf or NaN; `culprit` is a dictionary as of lab.explain_overflow, `step` counts from 1."""

    def __init__(self, message: str, step: int, culprit: dict[str, Any]) -> None:
        super().__init__(message)
        self.step, self.culprit = step, culprit


class check_tensors(TorchDispatchMode):
    """Looks at the result of every operation of a training inside of it, as Paddle's tensor checker and
    TransformerEngine's debug features do.

    model: an nn.Module, whose layers are named. optimizer, scaler: where a step ends, as for lab.watch; without
    either, next_step() says so. steps: (first, last) of those that are looked at, from 1; None for last: to the end.
    include, skip: regular expressions of layers' names; ops, skip_ops: of operations' ("softmax", "mm"); passes: of
    "forward" and "backward" (a scaler that tries high scales makes Infs in the backward pass, and skips them).
    stop: raise NonFiniteError at the first Inf or NaN that an operation made of finite operands; False: go on, and
    `found` gets a dictionary for the first of each step, pass and cause. Masks that are filled with infinities
    are left alone, as by lab.explain_overflow. It costs some microseconds an operation and a pass over its
    result.

    >>> model = nn.Sequential(nn.Linear(4, 4))
    >>> with check_tensors(model, stop=False) as checked, torch.autocast("cpu", torch.float16):
    ...     _ = model(torch.full((2, 4), 7e4))
    >>> [(row["step"], row["layer"], row["op"], row["value"], row["wide_value"]) for row in checked.found]
    [(1, '0', 'cast', inf, 70000.0)]

    TypeError, ValueError: as lab.watch; steps that are no range; a regular expression that is none; a compiled module.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: torch.optim.Optimizer | list[torch.optim.Optimizer] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        steps: tuple[int, int | None] = (1, None),
        include: str | Sequence[str] = (),
        skip: str | Sequence[str] = (),
        ops: str | Sequence[str] = (),
        skip_ops: str | Sequence[str] = (),
        passes: str | Sequence[str] = (),
        stop: bool = True,
    ) -> None:
        super().__init__()
        self._model = unwrapped(model, "lab.check_tensors", "check the network without FSDP")
        if any_compiled(model):
            raise ValueError("torch.compile fuses the operations of this network: check it before compiling")
        first, last = steps
        if not (isinstance(first, int) and first >= 1 and (last is None or isinstance(last, int) and last >= first)):
            raise ValueError(f"check_tensors: steps is {steps!r}; (first, last) from 1 on, or (first, None), is needed")
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer] if optimizer is not None else []
        self._first, self._last, self._stop = first, last, stop
        layers, kinds, sides = layer_filter(include, skip), layer_filter(ops, skip_ops), layer_filter(passes, ())
        self._wanted = lambda place: layers(place.layer) and kinds(place.op) and sides(place.pass_)
        self._ends = StepEnds(optimizers, scaler, self)
        self._tracker = LayerTracker(self._model)
        self._scope = ExitStack()
        self.step = 1
        self.found: list[dict[str, Any]] = []

    def __enter__(self) -> check_tensors:
        self._begin()
        self._ends.listen(self._scope)
        self._tracker.begin()
        self._scope.callback(self._tracker.end)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._scope.close()

    def next_step(self) -> None:
        """A step has ended; where an optimizer or a scaler is given, they say so."""
        self.step += 1
        self._begin()

    def before_update(self) -> None:
        pass

    def end_step(self, found_inf: bool | None) -> None:
        self.next_step()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not self._looks:
            return func(*args, **(kwargs or {}))
        return self._finder.__torch_dispatch__(func, types, args, kwargs)

    def _begin(self) -> None:
        self._looks = self.step >= self._first and (self._last is None or self.step <= self._last)
        self._tracker.forget()
        self._finder = _Finder(self._model, self._tracker, self._wanted, self._note)

    def _note(self, culprit: dict[str, Any]) -> None:
        row = {"step": self.step, **culprit}
        self.found.append(row)
        if self._stop:
            raise NonFiniteError(f"step {self.step}, {culprit['pass']}: {_core.description(culprit)}", self.step, row)


class _Finder(CulpritFinder):
    """Calls `tell` for every culprit at the requested places."""

    def __init__(
        self,
        model: nn.Module,
        tracker: LayerTracker,
        wanted: Callable[[Place], bool],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(model, tracker, 1.0)
        self._wanted, self._tell = wanted, tell

    def _look(self, place: Place, *of: Any) -> None:
        if self._wanted(place):
            super()._look(place, *of)

    def note(self, pass_: str, cause: str, tensor: str, value: torch.Tensor, **facts: Any) -> None:
        known = (pass_, cause) in self._first
        super().note(pass_, cause, tensor, value, **facts)
        if not known:
            self._tell(self._first[(pass_, cause)])
