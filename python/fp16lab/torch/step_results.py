"""lab.step_results: what every operation of a step gave, in order, to be compared with that of another step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .counting import is_countable
from .first_culprit import UNWRITTEN
from .layers import LayerTracker, float_tensors, gives_views, op_name
from .networks import joined, path_of
from .redoing import kept, network_of, run_once, scale_of
from .wide_operations import Places

CALL = "step_results"


class StepResults(dict[str, torch.Tensor]):
    """Tensors by the operation that gave them, "backward: fc1.mm 2", in order; then "gradient: fc1.weight". `scale_of`
    is what `compare` asks: what the numbers of a name carry, the loss scale in the backward pass and 1 before."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def scale_of(self, name: str) -> float:
        return 1.0 if name.startswith("forward: ") else self.scale


def step_results(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    *,
    scaler: torch.amp.GradScaler | None = None,
    scale: float | None = None,
) -> StepResults:
    """Does a step again and keeps a copy of what each operation gave, forward and backward, and of the gradients.

    `step`, scaler and scale are those of lab.explain_overflow. Casts, views and what writes into memory that it was
    given are left out: so the same step in another precision has the same names, and lab.compare of both says which
    operation's result differs first, and by how much. It needs memory for all results of the step.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    >>> def step(enabled):
    ...     with torch.autocast("cpu", torch.float16, enabled=enabled):
    ...         return model(torch.ones(2, 4)).float().sum()
    >>> wide = step_results(model, lambda: step(False))
    >>> narrow = step_results(model, lambda: step(True), scale=2.0**10)
    >>> list(wide)[:3]
    ['forward: ones 1', 'forward: 0.addmm 1', 'forward: 1.tanh 1']
    >>> from fp16lab import compare
    >>> compare(wide, narrow).first["tensor"]
    'forward: 0.addmm 1'

    TypeError, ValueError: as lab.explain_overflow.
    """
    network = network_of(model, step, CALL)
    results = StepResults(scale_of(scale, scaler, CALL))
    tracker = LayerTracker(network)
    with kept(network):
        run_once(tracker, _Keeper(tracker, results), step, results.scale, CALL)
        for name, parameter in network.named_parameters():
            if parameter.grad is not None:
                results[f"gradient: {path_of(name)}"] = parameter.grad.detach().clone()
    return results


class _Keeper(TorchDispatchMode):
    def __init__(self, tracker: LayerTracker, results: StepResults) -> None:
        super().__init__()
        self._places, self._results = Places(tracker), results

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        place = self._places.next(op_name(func))
        result = func(*args, **(kwargs or {}))
        if place.op in ("cast", *UNWRITTEN) or gives_views(func) or func._schema.is_mutable:
            return result
        with _disable_current_modes():
            values = [value for value in float_tensors(result) if is_countable(value)]
            for index, value in enumerate(values):
                part = f"[{index}]" if len(values) > 1 else ""
                name = f"{place.pass_}: {joined(place.layer, place.op)} {place.number}{part}"
                self._results[name] = value.detach().clone()
        return result
