"""What lab.explain_overflow tries before it says what would help: the step again, with something in FP32."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import _core
from .first_culprit import CulpritFinder
from .layers import LayerTracker
from .rounded_zeros import ZeroMaker, ZeroTrail
from .wide_operations import Call, Place, kept_in_fp32, model_in_fp32, same_operation, with_constant

#: So many operations that made zeros, or layers that overflow one after the other, are tried.
_MOST = 8
#: A number that FP16 holds as a normal one, with some room: 2^-14 is 6.1e-5.
_EPSILON = 1e-4
_DIVIDES = ("div", "div_", "reciprocal")
_LOGARITHMS = ("log", "log2", "log10")


@dataclass(frozen=True)
class Examined:
    """A step that was done once: `parameters` are those with a gradient that is not finite."""

    finder: CulpritFinder
    parameters: list[str]
    loss_finite: bool

    @property
    def finite(self) -> bool:
        return self.loss_finite and not self.parameters

    def fails_at(self, place: Place) -> bool:
        return place in self.finder.places.values() or place in self.finder.logs

    def outcome(self) -> str:
        """ "the loss and every gradient are finite then", or what is not."""
        if self.finite:
            return "the loss and every gradient are finite then"
        culprits = self.finder.culprits
        first = f": {short_name(culprits[-1 if self.loss_finite else 0])}" if culprits else ""
        if self.loss_finite:
            return f"the loss is finite then, a gradient is not{first}"
        return f"the loss is not finite then either{first}"


@dataclass(frozen=True)
class ZeroCause:
    """What made the zero that a culprit has met: the advice, and the step without that zero."""

    advice: str
    without: Examined


class Tries:
    """Does the step of an explanation again. `examine(call)` does it once and `trail(make)` under the mode
    that `make` gives; `kept()` is the context in which everything is afterwards as it was."""

    def __init__(
        self,
        model: nn.Module,
        device: str,
        examine: Callable[[Call], Examined],
        trail: Callable[[Callable[[LayerTracker], ZeroTrail]], ZeroTrail],
        kept: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._model, self._device = model, device
        self._examine, self._trail, self._kept = examine, trail, kept
        self._wide: Examined | str | None = None

    def in_fp32(self) -> Examined | str:
        """The whole step in FP32 from its start; or why it cannot be done so."""
        if self._wide is None:
            with self._kept(), model_in_fp32(self._model):
                self._wide = self._tried(kept_in_fp32(lambda place, numbers: True))
        return self._wide

    def verdict(
        self, culprit: dict[str, Any], place: Place, advice: str, causes: list[ZeroCause]
    ) -> tuple[str, str]:
        """Verdict and advice for what is not finite in FP32 of the same operands either. `advice` is what
        holds where it is the model's; `causes` gets what made the zero, of this culprit and those before."""
        wide = self.in_fp32()
        infinity = culprit["cause"] == "infinity"
        what = "NaN" if math.isnan(culprit["value"]) else "Inf"
        if isinstance(wide, Examined) and wide.fails_at(place):
            if infinity:
                return "model", advice
            scale = culprit["loss_scale"]
            at = f", with S = {scale_text(scale)}" if culprit["pass"] == "backward" and scale > 1 else ""
            return "model", f"the model: {what} in FP32 too (the step was run in FP32){at}"
        for cause in causes:
            if not cause.without.fails_at(place):
                return "fp32_cast", "it comes of the same zero as the one of the forward pass (tried)"
        if not infinity and (zero := self.cause_of_zero(culprit, place)) is not None:
            causes.append(zero)
            return "fp32_cast", zero.advice
        if isinstance(wide, str):
            of = "of operands with infinities" if infinity else "also when computed in FP32 of these operands"
            return "unknown", f"{what} {of}; the step was not tried in FP32, because {wide}"
        tried = f"all of the step was tried in FP32: {wide.outcome()}"
        if infinity:
            return "fp32_cast", f"infinities met that 16 bits had made before ({tried})"
        return "fp32_cast", (
            f"16 bits rounded what leads here: keep this operation and what leads to it in FP32 ({tried})"
        )

    def cause_of_zero(self, culprit: dict[str, Any], place: Place) -> ZeroCause | None:
        """The operation whose result 16 bits rounded to zero, so that there is a culprit at `place`; None: of
        those that were tried, none is."""
        with self._kept():
            trail = self._trail(lambda tracker: ZeroTrail(tracker, place))
        for maker in trail.rounded[:_MOST]:
            cause = self._tried_zero(culprit, place, maker)
            if cause is not None:
                return cause
        return None

    def cast(self, place: Place) -> str:
        """Advice where FP16 was too narrow for a value: its layer in FP32, with those that then overflow."""
        layers: list[str] = []
        places: list[Place] = []
        while True:
            if place.layer:
                layers.append(place.layer)
            else:
                places.append(place)
            chosen = _listed([*layers, *(kept.op for kept in places)])
            run = self._again(kept_in_fp32(_in_any(layers, places)))
            if isinstance(run, str) or len(layers) + len(places) == _MOST:
                break
            following = run.finder.culprits[0] if run.finder.culprits else None
            next_place = run.finder.places.get(("forward", "operation"))
            if following is None or next_place is None or not _too_large(following):
                break
            if next_place.layer in layers or next_place in places:
                break
            place = next_place
        if isinstance(run, Examined):
            text = f"FP32 for {chosen} (tried: {run.outcome()})"
        else:
            text = f"FP32 for {chosen} would have saved this value (the step was not tried so, because {run})"
        around = _listed([f"around {layer}" for layer in layers])
        if around:
            text += f': torch.autocast("{self._device}", enabled=False) {around}, with FP32 inputs'
        return text

    def _tried_zero(self, culprit: dict[str, Any], place: Place, maker: ZeroMaker) -> ZeroCause | None:
        kept = self._again(kept_in_fp32(_this_operation(maker)))
        ways = [("keep this operation in FP32", kept)]
        if maker.constant is not None and maker.dtype == torch.float16:
            epsilon = math.copysign(_EPSILON, maker.constant)
            run = self._again(with_constant(maker.place, maker.constant, epsilon))
            ways.append((f"use 1e-4 or more instead of {maker.constant:g}", run))
        runs = [run for _, run in ways if isinstance(run, Examined) and not run.fails_at(place)]
        if not runs:
            return None
        tried = [
            f"{way} ({f'not tried, because {run}' if isinstance(run, str) else f'tried: {run.outcome()}'})"
            for way, run in ways
        ]
        advice = f"{_rounding(maker)}, and {_use(culprit, place)}: {', or '.join(tried)}"
        wide = self.in_fp32()
        if not any(run.finite for run in runs) and isinstance(wide, Examined) and wide.finite:
            advice += "; all of the step in FP32 is finite (tried)"
        return ZeroCause(advice, runs[0])

    def _again(self, call: Call) -> Examined | str:
        with self._kept():
            return self._tried(call)

    def _tried(self, call: Call) -> Examined | str:
        try:
            return self._examine(call)
        except Exception as error:  # the user's code, with dtypes that it has never seen
            return (str(error).strip().splitlines() or [type(error).__name__])[0]


def short_name(culprit: dict[str, Any]) -> str:
    """ "the backward of div (mul) in fc1 gave fc1.input = nan"."""
    text = f"{culprit['tensor']} = {culprit['value']:g}"
    if not culprit.get("op"):
        return text
    part = f" ({culprit['part']})" if culprit["part"] else ""
    layer = f" in {culprit['layer']}" if culprit["layer"] else ""
    backward = "the backward of " if culprit["pass"] == "backward" else ""
    return f"{backward}{culprit['op']}{part}{layer} gave {text}"


def scale_text(scale: float) -> str:
    """ "2^24", or the number where it is no power of two."""
    significand, exponent = torch.frexp(torch.tensor(scale, dtype=torch.float64))
    return f"2^{int(exponent) - 1}" if float(significand) == 0.5 else f"{scale:g}"


def _rounding(maker: ZeroMaker) -> str:
    layer = f" in {maker.place.layer}" if maker.place.layer else ""
    op = ("the backward's " if maker.place.pass_ == "backward" else "") + maker.place.op
    what = f"{maker.constant:g}" if maker.constant is not None else f"values up to {maker.greatest:.2g}"
    name, smallest = ("FP16", 2.0**-24) if maker.dtype == torch.float16 else ("BF16", 2.0**-133)
    return f"{op}{layer} rounded {what} to zero ({name}'s smallest number is {smallest:.0e})"


def _use(culprit: dict[str, Any], place: Place) -> str:
    """ "div then divides by it"."""
    of = f"the backward of {culprit['op']}" if culprit["pass"] == "backward" else place.op
    if place.op in _DIVIDES:
        return f"{of} then divides by it"
    if place.op in _LOGARITHMS:
        return f"{of} then takes its logarithm"
    if place.op == "rsqrt":
        return f"{of} then divides by its root"
    return f"{of} then makes {'NaN' if math.isnan(culprit['value']) else 'Inf'} of it"


def _too_large(culprit: dict[str, Any]) -> bool:
    """Finite in FP32, and too large for its dtype."""
    verdict = _core.advice({**culprit, "op": "", "layer": ""})[0]
    return bool(culprit["cause"] == "operation" and verdict == "fp32_cast")


def _in_any(layers: list[str], places: list[Place]) -> Callable[[Place, list[float]], bool]:
    return lambda there, _: there in places or (there.pass_ == "forward" and there.layer in layers)


def _this_operation(maker: ZeroMaker) -> Callable[[Place, list[float]], bool]:
    """That call of it; with a constant that rounds to zero, all calls with it in the layer."""
    if maker.constant is None:
        return lambda there, _: there == maker.place
    return lambda there, numbers: maker.constant in numbers and same_operation(maker.place, there)


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
