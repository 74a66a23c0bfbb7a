"""lab.explain_overflow: what made a step overflow, and the loss scale that clears it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import _core
from . import watching
from .first_culprit import CulpritFinder
from .layers import LayerTracker, float_tensors
from .networks import nonfinite_gradients, path_of
from .redoing import kept, loss_of, network_of, run_once, scale_of, times
from .rounded_zeros import ZeroTrail
from .trying import Examined, Tries, ZeroCause, scale_text
from .wide_operations import Call, Place, as_it_is

CALL = "explain_overflow"
_SMALLEST_SCALE = 2.0**-24


@dataclass(frozen=True)
class Explanation:
    """What a step showed. `print` it; or ask

    overflowed     a gradient was not finite, or the loss
    loss_scale     the scale that was asked about
    finite_scale   the greatest loss_scale * 2^-k at which every gradient was finite when the step was done
                   again; 0: none down to 2^-24; None: not tried, because nothing overflowed or the loss did
    parameters     whose gradients held an Inf or NaN, in the order in which the backward pass reached them
    culprits       one of each pass at most: dictionaries with the keys of culprits.jsonl (pass, cause, op,
                   layer, tensor, dtype, shape, element, value, wide_value, operands, reached, verdict,
                   binades, advice)
    """

    overflowed: bool
    loss_scale: float
    finite_scale: float | None
    parameters: list[str]
    culprits: list[dict[str, Any]]

    def __str__(self) -> str:
        if not self.overflowed:
            return f"nothing overflowed at S = {scale_text(self.loss_scale)}"
        lines = [self._scales()]
        for culprit in self.culprits:
            line = f"{culprit['pass']}: {_core.description(culprit)}"
            if culprit["verdict"] != "lower_scale" or not self.finite_scale:  # what the first line shows
                line += f". Advice: {culprit['advice'] or 'none'}"
            lines.append(line + ("" if culprit["reached"] else " (it reached no gradient)"))
        if self.parameters:
            lines.append(f"gradients with an Inf or NaN, in order: {', '.join(self.parameters)}")
        return "\n".join(lines)

    def _scales(self) -> str:
        """Which loss scale was asked about, and which one cleared the step."""
        asked = f"at loss scale {scale_text(self.loss_scale)}, which was asked about,"
        if self.finite_scale is None:
            return f"{asked} the loss was not finite; no other scale was tried"
        if self.finite_scale == 0:
            return f"{asked} a gradient was not finite, nor at any lower one down to 2^-24 (tried)"
        return f"{asked} a gradient was not finite; at {scale_text(self.finite_scale)} all are (tried)"


def explain_overflow(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    *,
    scaler: torch.amp.GradScaler | None = None,
    scale: float | None = None,
    watch: watching.watch | None = None,
) -> Explanation:
    """Does a step again, looking at every operation, and names the one that made the first Inf or NaN.

    `step` does the forward passes of one iteration on the batch in question, under the user's own autocast,
    and returns the loss (one number, unscaled). It is called several times; each time with the same random
    numbers and the same buffers. The loss scale is `scale`, or the scaler's, or 1. Weights, gradients,
    buffers, random numbers, optimizer and scaler are afterwards what they were. A step with an overflow is
    done again at half the scale, and so on, until every gradient is finite. What no scale helps is tried in
    FP32: all of the step, to know whether it is the model's; the operation that rounded a divisor to zero;
    the layers for which FP16 was too narrow. Advice says how the step ended so, or why it was not tried. With
    `watch` its run folder gets the culprits, at the step that ended last; it counts nothing of what is done
    again. Every operation is looked at, so it costs many times a step.

        if scaler.get_scale() < before:                      # the step was skipped
            print(lab.explain_overflow(model, lambda: loss_fn(model(x), y), scale=before))

    >>> model = nn.Linear(3, 2)
    >>> def step():
    ...     with torch.autocast("cpu", torch.float16):
    ...         return model(torch.ones(1, 3)).float().sum()
    >>> told = explain_overflow(model, step, scale=2.0**20)
    >>> told.parameters, told.finite_scale
    (['weight', 'bias'], 32768.0)

    TypeError: no module, or one of FSDP; `step` needs an argument, or returns no loss. ValueError: a scale
    that is not above 0; a compiled module.
    """
    network = network_of(model, step, CALL)
    scale = scale_of(scale, scaler, CALL)
    with kept(network):
        examined = _examine(network, step, scale)
    overflowed = not examined.finite
    finite_scale = _finite_scale(network, step, scale) if overflowed and examined.loss_finite else None
    culprits = _advised(network, step, scale, examined, finite_scale) if overflowed else []
    if watch is not None:
        watch.note_culprits(culprits)
    return Explanation(overflowed, scale, finite_scale, examined.parameters, culprits)


def _examine(
    model: nn.Module, step: Callable[[], torch.Tensor], scale: float, call: Call = as_it_is
) -> Examined:
    tracker = LayerTracker(model)
    finder = CulpritFinder(model, tracker, scale, call)
    order: list[str] = []
    hooks = [model.register_forward_pre_hook(_data_check(finder), with_kwargs=True)]
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            finder.note("forward", "parameter", path_of(name), parameter.detach())
        if parameter.requires_grad:
            hooks.append(parameter.register_hook(_order_check(order, path_of(name))))
    try:
        loss = run_once(tracker, finder, step, scale, CALL, _product_check(finder))
    finally:
        for hook in hooks:
            hook.remove()
    return Examined(finder, order or nonfinite_gradients(model), bool(torch.isfinite(loss)))


def _finite_scale(model: nn.Module, step: Callable[[], torch.Tensor], scale: float) -> float:
    scale = min(scale, 2.0**128)  # the scales of policies without a guard may be infinite
    while scale > _SMALLEST_SCALE:
        scale /= 2
        with kept(model):
            times(loss_of(step, CALL), scale).backward()
            if not nonfinite_gradients(model):
                return scale
    return 0.0


def _advised(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    scale: float,
    examined: Examined,
    finite_scale: float | None,
) -> list[dict[str, Any]]:
    """The culprits, with verdict and advice: the C++ engine's, but for what is tried here."""

    def trail(make: Callable[[LayerTracker], ZeroTrail]) -> ZeroTrail:
        tracker = LayerTracker(model)
        mode = make(tracker)
        run_once(tracker, mode, step, scale, CALL)
        return mode

    device = next(model.parameters()).device.type
    tries = Tries(
        model, device, lambda call: _examine(model, step, scale, call), trail, lambda: kept(model)
    )
    places = dict(examined.finder.places)
    causes: list[ZeroCause] = []
    culprits = _with_logarithms(examined, tries, places)
    for culprit in culprits:
        backward = culprit["pass"] == "backward"
        if backward:
            culprit["finite_scale"] = finite_scale
        culprit["reached"] = bool(examined.parameters) if backward else not examined.loss_finite
        verdict, binades, advice = _core.advice({**culprit, "op": "", "layer": ""})
        place = places.get((culprit["pass"], culprit["cause"]))
        if place is None or verdict == "lower_scale":
            pass
        elif culprit["cause"] == "infinity" or not math.isfinite(culprit.get("wide_value", 0.0)):
            verdict, advice = tries.verdict(culprit, place, advice, causes)
        elif verdict == "fp32_cast":
            advice = tries.cast(place)
        elif culprit["layer"] and "FP32 cast" in advice:
            advice += f': torch.autocast("{device}", enabled=False) around {culprit["layer"]}'
        culprit.update(verdict=verdict, binades=binades, advice=advice)
    return culprits


def _with_logarithms(
    examined: Examined, tries: Tries, places: dict[tuple[str, str], Place]
) -> list[dict[str, Any]]:
    """The culprits; a logarithm of zero is the forward pass's where it is finite in FP32. `places` gets where
    it is."""
    culprits = examined.finder.culprits
    logs = {place: row for place, row in examined.finder.logs.items() if place.pass_ == "forward"}
    if not logs or any(row["cause"] in ("parameter", "data") for row in culprits):
        return culprits
    wide = tries.in_fp32()
    made = [place for place in logs if isinstance(wide, Examined) and not wide.fails_at(place)]
    if not made:
        return culprits
    places[("forward", "operation")] = made[0]
    return [logs[made[0]], *(row for row in culprits if row["pass"] == "backward")]


def _product_check(finder: CulpritFinder) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Notes a loss that only its scale makes infinite."""

    def hook(loss: torch.Tensor, scaled: torch.Tensor) -> None:
        if bool(torch.isfinite(loss)) and not bool(torch.isfinite(scaled)):
            finder.note("backward", "loss_scale", "loss x loss_scale", scaled.detach())

    return hook


def _order_check(order: list[str], name: str) -> Callable[[torch.Tensor], None]:
    def hook(gradient: torch.Tensor) -> None:
        if name not in order and not bool(torch.isfinite(gradient).all()):
            order.append(name)

    return hook


def _data_check(finder: CulpritFinder) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple, kwargs: dict) -> None:
        for tensor in float_tensors((args, kwargs)):
            if not bool(torch.isfinite(tensor).all()):
                finder.note("forward", "data", "inputs", tensor.detach())

    return hook
