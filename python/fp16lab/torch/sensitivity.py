"""lab.sensitivity: what 16 bits do to each operation of a step, and the shortest list of modules to keep in FP32."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from ..comparisons import Comparison, add_pair
from .counting import format_of, is_countable
from .first_culprit import CulpritFinder
from .keeping_lines import lines_for
from .layers import LayerTracker, float_tensors, op_name
from .networks import path_of, some
from .redoing import kept, network_of, run_once, scale_of
from .tables import aligned
from .wide_operations import Call, Place, Places, copies_of_written, in_wide, kept_in_fp32, model_in_fp32

CALL = "sensitivity"
_REFERENCES = {"f32": torch.float32, "f64": torch.float64}
#: Backward operations that give several gradients: of the input first, then of parameters.
_OF_SEVERAL = re.compile("(convolution|(layer|batch|group|rms)_norm)_backward")
#: A gradient counts against its own norm, or against this part of all gradients' norm where that is more.
_LEAST_SHARE = 1e-3
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Outcome:
    """How far a step's loss and gradients are from those of the step in FP32: |loss - its loss| / |its loss|, and the
    greatest relative L2 error of a parameter's gradient, which `parameter` has. Of the gradients below a thousandth
    of all gradients' norm, which count against that, `small` has the greatest error by its own norm: `small_error`."""

    loss: float
    gradients: float
    parameter: str
    small: str = ""
    small_error: float = 0.0

    @property
    def error(self) -> float:
        return max(self.loss, self.gradients)

    def __str__(self) -> str:
        of = f" ({self.parameter})" if self.parameter else ""
        return f"error of the loss {self.loss:.2g}, error of the gradients {self.gradients:.2g}{of}"


@dataclass(frozen=True)
class Sensitivity:
    """What a step showed. `print` it; or ask

    errors    a dictionary for each operation, in order: layer, op, part ("forward", "dX", "dW"), dtype, relative_l2,
              ulps, beyond_cast and elements of its result, against `reference` of the same operands; nonfinite: how
              many of them are Inf or NaN and are not in `reference`
    damage    by layer, the greater of the two errors of `Outcome` with that layer alone in 16 bits
    modules   the list: with it in FP32, each module with all that is inside of it, loss and gradients are within
              `margin`; without any one of it they are not
    without, within, whole   Outcome with nothing, with `modules`, and with every layer in FP32
    tried     how often the step was done
    """

    margin: float
    errors: list[dict[str, Any]]
    damage: dict[str, float]
    modules: list[str]
    without: Outcome
    within: Outcome
    whole: Outcome
    tried: int
    device: str = "cpu"
    _ops: list[str] = field(default_factory=list, repr=False)

    @property
    def restored(self) -> bool:
        return self.within.error <= self.margin

    def lines(self, framework: str = "torch") -> str:
        """What keeps `modules` in FP32: "torch" or "pytorch", "paddle", "mindspore". ValueError: another framework."""
        return lines_for(framework, self.modules, self._ops, self.device)

    def _hidden(self, outcome: Outcome) -> str:
        """An error above the margin which counts as less, in words."""
        if outcome.small_error <= self.margin:
            return ""
        told = "a gradient below a thousandth of all gradients' norm counts against that:"
        return f"\n{told} the error of {outcome.small} by its own norm is {outcome.small_error:.2g}"

    def table(self, most: int = 12) -> str:
        """The operations that are farthest from their wide results, farthest first."""
        rows = sorted(self.errors, key=lambda row: (-row["nonfinite"], -row["relative_l2"]))[:most]
        head = ["layer", "operation", "part", "dtype", "rel. L2", "ulps", "beyond cast", "Inf, NaN"]
        return aligned(
            [head]
            + [
                [row["layer"] or "(model)", row["op"], row["part"], row["dtype"], f"{row['relative_l2']:.2g}"]
                + [str(row["ulps"]), str(row["beyond_cast"]), str(row["nonfinite"])]
                for row in rows
            ]
        )

    def __str__(self) -> str:
        head = f"as it is: {self.without}; margin {self.margin:g}"
        if not self.modules:
            return f"{head}: no module needs FP32{self._hidden(self.without)}\n\n{self.table()}"
        names = some(name or "what no module computes" for name in self.modules)
        if not self.restored:
            whole = f"with every layer in FP32: {self.whole}"
            told = f"{head}; {whole}, so no list of modules restores it ({self.tried} steps)"
            return f"{told}\n\n{self.table()}"
        told = f"{head}\nin FP32: {names}\nthen: {self.within}; each of them is needed ({self.tried} steps tried)"
        told += self._hidden(self.within)
        if any(row["nonfinite"] and row["part"] != "forward" for row in self.errors):
            told += "\ngradients overflow at this loss scale; at a lower one fewer modules may do"
        return f"{told}\n\n{self.lines()}\n\n{self.table()}"


def sensitivity(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    *,
    scaler: torch.amp.GradScaler | None = None,
    scale: float | None = None,
    margin: float = 0.05,
    reference: str = "f64",
    include: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
) -> Sensitivity:
    """Which layers must stay in FP32? Does a step again, looking at every operation, and tries lists of modules.

    `step` is that of lab.explain_overflow: it does the forward passes of one iteration under the user's own autocast
    (or lab.autocast, inside of an open lab.emulate too) and returns the loss. The loss scale is `scale`, or the
    scaler's, or 1. First every operation that gives 16 bits, or FP32 where `reference` is "f64", is compared with the
    same operation of the same operands in "f64" or "f32": what it loses by itself, forward and of the gradients of
    its input (dX) and its weights (dW). Then the step is done with sets of layers in FP32, a layer being a module with
    what it computes itself, and its loss and gradients are compared with those of the whole step in FP32. Layers
    are ranked by the error with that one alone in 16 bits where it is above `margin`, then by what their operations
    lose; the fewest of that ranking which bring both errors to `margin` are looked for, and then any of them that can
    be left out is. A module of the list is in FP32 with all that is inside of it. So each of the list is needed,
    which was tried; another list might be shorter. A parameter's error is relative to its gradient's norm, or to a thousandth
    of all gradients' norm where that is more. include, skip: regular expressions of layers' names; the others are
    neither compared nor put in FP32. Weights, gradients, buffers, random numbers and scaler are afterwards what they
    were. It costs about as many steps as there are layers, each many times a step.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    >>> _ = model[1].weight.data.mul_(1e6)                             # its output overflows in FP16
    >>> def step():
    ...     with torch.autocast("cpu", torch.float16):
    ...         return model(torch.ones(2, 8)).float().abs().mean().log()
    >>> sensitivity(model, step).modules
    ['1', '2']

    TypeError, ValueError: as lab.explain_overflow; a margin that is not above 0; an unknown reference; a loss that is
    not finite in FP32 either. RuntimeError: the step cannot be done in FP32.
    """
    if reference not in _REFERENCES:
        raise ValueError(f'sensitivity: reference is {reference!r}; "f64" or "f32" is needed')
    if not (isinstance(margin, (int, float)) and margin > 0):
        raise ValueError(f"sensitivity: margin is {margin!r}; a number above 0 is needed")
    network = network_of(model, step, CALL)
    wanted = layer_filter(include, skip)
    steps = _Steps(network, step, scale_of(scale, scaler, CALL))
    errors = OperationErrors(network, steps.tracker, _REFERENCES[reference], wanted)
    without = steps.done(errors)
    layers = list(dict.fromkeys(row["layer"] for row in errors.rows if row["dtype"] in ("f16", "bf16")))
    outcomes = {frozenset[str](): without}

    def error_with(wide: Iterable[str]) -> float:
        key = frozenset(wide)
        if key not in outcomes:
            outcomes[key] = steps.in_fp32(key)
        return outcomes[key].error

    found = _core.shortest_list(layers, margin, error_with, [_harm(errors.rows, layer) for layer in layers])
    modules, wide = found.layers, frozenset(found.layers)
    skipped = [path_of(name) for name, _ in network.named_modules() if not wanted(path_of(name))]
    outermost = _outermost(modules, layers, skipped)
    if found.restored and (outermost != modules or _inside(modules, layers) != wide):
        whole = _core.shortest_list(outermost, margin, lambda names: error_with(_inside(names, layers)), [])
        if whole.restored:
            modules, wide = whole.layers, _inside(whole.layers, layers)
    ops = [row["op"] for row in errors.rows if row["layer"] in wide and row["part"] == "forward"]
    return Sensitivity(
        margin=margin,
        errors=errors.rows,
        damage=found.damage,
        modules=modules,
        without=without,
        within=outcomes[wide],
        whole=outcomes.get(frozenset(layers), without),
        tried=steps.count,
        device=next(network.parameters()).device.type,
        _ops=list(dict.fromkeys(ops)),
    )


def _harm(rows: Sequence[dict[str, Any]], layer: str) -> float:
    """How far a layer's worst operation is from its wide result; Inf and NaN are farther than all numbers."""
    own = [row for row in rows if row["layer"] == layer and row["dtype"] in ("f16", "bf16")]
    return max(float(2 + row["nonfinite"] if row["nonfinite"] else row["relative_l2"]) for row in own)


def _inside(modules: Sequence[str], layers: Sequence[str]) -> frozenset[str]:
    """Those of `layers` that are in FP32 with these modules; "" is what no module computes, and has none inside."""
    return frozenset(
        layer for layer in layers for name in modules if layer == name or (name and layer.startswith(f"{name}."))
    )


def _outermost(modules: Sequence[str], layers: Sequence[str], skipped: Sequence[str]) -> list[str]:
    """The fewest modules in which all of `modules` are, with all that is inside of them, and none else of `layers`
    (nor of `skipped`); and the smallest ones of these."""
    wide = _inside(modules, layers)
    names = {}
    for name in modules:
        ends = [at for at, letter in enumerate(name) if letter == "."]
        for outer in (*(name[:end] for end in ends), name):  # an inner one last, which replaces an equal outer one
            if outer in modules or not _inside([outer], skipped):
                names[_inside([outer], layers)] = outer
    full = {inside: name for inside, name in names.items() if inside <= wide}
    return [name for inside, name in full.items() if not any(inside < other for other in full)]


def layer_filter(include: str | Sequence[str], skip: str | Sequence[str]) -> Callable[[str], bool]:
    """By regular expressions that a layer's name contains; ValueError: one that is none."""

    def compiled(name: str, given: str | Sequence[str]) -> list[re.Pattern[str]]:
        try:
            return [re.compile(each) for each in ([given] if isinstance(given, str) else given)]
        except re.error as error:
            raise ValueError(f"{name}={given!r} is no regular expression: {error}") from None

    included, skipped = compiled("include", include), compiled("skip", skip)

    def wanted(layer: str) -> bool:
        chosen = not included or any(each.search(layer) for each in included)
        return chosen and not any(each.search(layer) for each in skipped)

    return wanted


class OperationErrors(CulpritFinder):
    """Compares every result with that of the same operation in a wider format; `rows` has one for each."""

    def __init__(
        self, model: nn.Module, tracker: LayerTracker, wide: torch.dtype, wanted: Callable[[str], bool]
    ) -> None:
        super().__init__(model, tracker, 1.0)
        self._wide, self._wanted = wide, wanted
        self._before: tuple[tuple, dict] = ((), {})
        self._sites: list[tuple[str, str, str, str]] = []
        self._found = _core.DumpComparison("as computed", "wide", 0.01)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self._before = copies_of_written(func, args, kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _look(
        self,
        place: Place,
        func: Any,
        args: tuple,
        kwargs: dict,
        operands: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> None:
        if not self._wanted(place.layer) or torch.Tag.nondeterministic_seeded in func.tags:
            return
        if not any(_narrower(value, self._wide) for value in results):
            return
        values = in_wide(func, *self._before, self._wide)
        for index, (value, wide) in enumerate(zip(results, values)):
            if not _narrower(value, self._wide) or value.shape != wide.shape:
                continue
            part = "forward"
            if place.pass_ == "backward":
                part = self._part(place, operands, value, index if len(values) > 1 else None)
            self._sites.append((place.layer, place.op, part, format_of(value)))
            add_pair(self._found, str(len(self._sites)), value, 1.0, wide, 1.0)

    def _part(self, place: Place, operands: list[torch.Tensor], value: torch.Tensor, index: int | None) -> str:
        if index is not None and _OF_SEVERAL.search(place.op):
            return "dX" if index == 0 else "dW"
        if place.op == "sum" and value.shape[:1] == (1,):  # of a bias, which is then shown without this dimension
            value = value[0]
        node = torch._C._current_autograd_node()
        name = self._tensor_name(place.op, place.layer, place.pass_, node, operands, value)
        return "dW" if name in self._parameters else "dX"

    @property
    def rows(self) -> list[dict[str, Any]]:
        keys = ("relative_l2", "ulps", "beyond_cast", "elements")
        compared = Comparison(self._found).tensors
        return [
            {
                **{"layer": layer, "op": op, "part": part, "dtype": dtype},
                **{key: row[key] for key in keys},
                "nonfinite": max(row["nonfinite_a"] - row["nonfinite_b"], 0),
            }
            for (layer, op, part, dtype), row in zip(self._sites, compared)
        ]


def _narrower(value: torch.Tensor, wide: torch.dtype) -> bool:
    return is_countable(value) and torch.finfo(value.dtype).bits < torch.finfo(wide).bits


class _Operations(TorchDispatchMode):
    """Has `call` compute every operation."""

    def __init__(self, tracker: LayerTracker, call: Call) -> None:
        super().__init__()
        self._places, self._call = Places(tracker), call

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self._call(self._places.next(op_name(func)), func, args, kwargs or {})


class _Steps:
    """Does the step and compares it with that in FP32."""

    def __init__(self, model: nn.Module, step: Callable[[], torch.Tensor], scale: float) -> None:
        self._model, self._step, self._scale = model, step, scale
        self.tracker, self.count = LayerTracker(model), 0
        try:
            with model_in_fp32(model):
                whole = _Operations(self.tracker, kept_in_fp32(lambda place, numbers: True))
                self._loss, self._gradients = self._once(whole)
        except RuntimeError as error:
            raise RuntimeError(f"sensitivity: the step cannot be done in FP32: {error}") from error
        if not math.isfinite(self._loss):
            raise ValueError(
                f"sensitivity: the loss is {self._loss} in FP32 too; lab.explain_overflow says which operation made it"
            )
        self._norms = {name: float(value.norm()) for name, value in self._gradients.items()}
        self._least = _LEAST_SHARE * math.hypot(*self._norms.values())

    def in_fp32(self, layers: frozenset[str]) -> Outcome:
        """With these layers in FP32; infinite where an operation does not take the dtypes which it gets then."""
        call = kept_in_fp32(lambda place, _: place.pass_ == "forward" and place.layer in layers, writes=True)
        try:
            return self.done(_Operations(self.tracker, call))
        except RuntimeError as error:
            return Outcome(math.inf, math.inf, str(error).partition("\n")[0])

    def done(self, mode: TorchDispatchMode) -> Outcome:
        loss, gradients = self._once(mode)
        worst, parameter, worst_small, small = 0.0, "", 0.0, ""
        for name, reference in self._gradients.items():
            value = gradients.get(name)
            distance = float("inf") if value is None else float((value - reference).norm())
            norm = self._norms[name]
            error = distance / max(norm, self._least) if distance else 0.0
            if not error <= worst:  # NaN too
                worst, parameter = (error if error < math.inf else math.inf), name
            if norm < self._least and distance and not distance / max(norm, _TINY) <= worst_small:
                own = distance / max(norm, _TINY)
                worst_small, small = (own if own < math.inf else math.inf), name
        loss_error = abs(loss - self._loss) / max(abs(self._loss), _TINY)
        return Outcome(loss_error if loss_error < math.inf else math.inf, worst, parameter, small, worst_small)

    def _once(self, mode: TorchDispatchMode) -> tuple[float, dict[str, torch.Tensor]]:
        """The loss, and the gradients without the loss scale, in FP64."""
        self.count += 1
        with kept(self._model):
            loss = run_once(self.tracker, mode, self._step, self._scale, CALL)
            return float(loss.detach()), {
                path_of(name): parameter.grad.detach().double() / self._scale
                for name, parameter in self._model.named_parameters()
                if parameter.grad is not None
            }
