"""lab.explain_overflow: what made a step overflow, and the loss scale that clears it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from . import watching
from .first_culprit import CulpritFinder
from .layers import LayerTracker, float_tensors
from .networks import any_compiled, nonfinite_gradients, path_of, unwrapped
from .tensor_counts import uncounted

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
            return f"nothing overflowed at S = {_power(self.loss_scale)}"
        lines = [self._scales()]
        for culprit in self.culprits:
            line = f"{culprit['pass']}: {_core.description(culprit)}"
            if culprit["verdict"] != "lower_scale" or not self.finite_scale:  # what the first line tells
                line += f". Advice: {culprit['advice'] or 'none'}"
            lines.append(line + ("" if culprit["reached"] else " (it reached no gradient)"))
        if self.parameters:
            lines.append(f"gradients with an Inf or NaN, in order: {', '.join(self.parameters)}")
        return "\n".join(lines)

    def _scales(self) -> str:
        """Which loss scale was asked about, and which one cleared the step."""
        asked = f"at loss scale {_power(self.loss_scale)}, which was asked about,"
        if self.finite_scale is None:
            return f"{asked} the loss was not finite; no other scale was tried"
        if self.finite_scale == 0:
            return f"{asked} a gradient was not finite, nor at any lower one down to 2^-24 (tried)"
        return f"{asked} a gradient was not finite; at {_power(self.finite_scale)} all are (tried)"


def explain_overflow(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    *,
    scaler: torch.amp.GradScaler | None = None,
    scale: float | None = None,
    watch: watching.watch | None = None,
) -> Explanation:
    """Does a step again, looking at every operation, and tells which one made the first Inf or NaN.

    `step` does the forward passes of one iteration on the batch in question, under the user's own autocast,
    and returns the loss (one number, unscaled). It is called several times; each time with the same random
    numbers and the same buffers. The loss scale is `scale`, or the scaler's, or 1. Weights, gradients,
    buffers, random numbers, optimizer and scaler are afterwards what they were. A step with an overflow is
    done again at half the scale, and so on, until every gradient is finite. With `watch` its run folder gets
    the culprits, at the step that ended last; it counts nothing of what is done again. Every operation is
    looked at once, so it costs several times a step.

        if scaler.get_scale() < before:                      # the step was skipped
            print(lab.explain_overflow(model, lambda: loss_fn(model(x), y), scale=before))

    >>> model = nn.Linear(3, 2)
    >>> def step():
    ...     with torch.autocast("cpu", torch.float16):
    ...         return model(torch.ones(1, 3)).float().sum()
    >>> told = explain_overflow(model, step, scale=2.0**20)
    >>> told.parameters, told.finite_scale
    (['weight', 'bias'], 32768.0)

    TypeError: no module, or one of FSDP; `step` returns no loss. ValueError: a scale that is not above 0; a
    compiled module.
    """
    network = unwrapped(
        model,
        "lab.explain_overflow",
        "it does the step again and looks at whole gradients; explain that step of the network without FSDP",
    )
    if any_compiled(model):
        raise ValueError(
            "torch.compile fuses the operations of this network: give lab.explain_overflow the module "
            "before compiling"
        )
    if scale is None:
        scale = scaler.get_scale() if scaler is not None else 1.0
    try:
        scale = float(scale)
    except (TypeError, ValueError, OverflowError):
        told = f"explain_overflow: scale is {scale!r:.40}; a number above 0 that FP64 holds is needed"
        raise ValueError(told) from None
    if not scale > 0:
        raise ValueError(f"explain_overflow(scale={scale}): must be above 0")
    with _kept(network):
        culprits, parameters, loss_finite = _examine(network, step, scale)
    overflowed = bool(parameters) or not loss_finite
    finite_scale = _finite_scale(network, step, scale) if overflowed and loss_finite else None
    for culprit in culprits:
        culprit["reached"] = not loss_finite if culprit["pass"] == "forward" else bool(parameters)
        _advise(culprit, finite_scale, next(network.parameters()).device.type)
    culprits = culprits if overflowed else []
    if watch is not None:
        watch.note_culprits(culprits)
    return Explanation(overflowed, scale, finite_scale, parameters, culprits)


def _examine(
    model: nn.Module, step: Callable[[], torch.Tensor], scale: float
) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Culprits, parameters with a gradient that is not finite, and whether the loss is."""
    tracker = LayerTracker(model)
    finder = CulpritFinder(model, tracker, scale)
    order: list[str] = []
    hooks = [model.register_forward_pre_hook(_data_check(finder), with_kwargs=True)]
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            finder.note("forward", "parameter", path_of(name), parameter.detach())
        if parameter.requires_grad:
            hooks.append(parameter.register_hook(_order_check(order, path_of(name))))
    tracker.begin()
    try:
        with finder:
            loss = _loss(step)
            with _disable_current_modes():
                scaled = _times(loss, scale)
                if bool(torch.isfinite(loss)) and not bool(torch.isfinite(scaled)):
                    finder.note("backward", "loss_scale", "loss x loss_scale", scaled.detach())
            scaled.backward()
    finally:
        tracker.end()
        for hook in hooks:
            hook.remove()
    return finder.culprits, order or nonfinite_gradients(model), bool(torch.isfinite(loss))


def _finite_scale(model: nn.Module, step: Callable[[], torch.Tensor], scale: float) -> float:
    scale = min(scale, 2.0**128)  # the scales of policies without a guard may be infinite
    while scale > _SMALLEST_SCALE:
        scale /= 2
        with _kept(model):
            _times(_loss(step), scale).backward()
            if not nonfinite_gradients(model):
                return scale
    return 0.0


def _advise(culprit: dict[str, Any], finite_scale: float | None, device: str) -> None:
    """The C++ engine's verdict and advice; where to cast is said in PyTorch's words, not as configuration
    keys."""
    if culprit["pass"] == "backward":
        culprit["finite_scale"] = finite_scale
    layer = culprit.get("layer", "")
    verdict, binades, advice = _core.advice({**culprit, "op": "", "layer": ""})
    by_cast = verdict == "fp32_cast" or (culprit["cause"] == "operation" and "FP32 cast" in advice)
    if by_cast and layer:
        advice += f': torch.autocast("{device}", enabled=False) around {layer}, with FP32 inputs'
    culprit.update(verdict=verdict, binades=binades, advice=advice)


def _loss(step: Callable[[], torch.Tensor]) -> torch.Tensor:
    loss = step()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise TypeError(
            "explain_overflow: step must return the loss, a tensor of one element that requires grad, "
            f"not {type(loss).__name__}"
            + (f" of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else "")
        )
    return loss.reshape(())


def _times(loss: torch.Tensor, scale: float) -> torch.Tensor:
    """As GradScaler.scale does."""
    return loss * torch.full((), scale, dtype=torch.float64, device=loss.device).float()


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


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Random numbers, buffers and gradients are afterwards what they were; gradients begin as None."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.random.fork_rng(), uncounted():
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _power(scale: float) -> str:
    """ "2^24", or the number where it is no power of two."""
    significand, exponent = torch.frexp(torch.tensor(scale, dtype=torch.float64))
    return f"2^{int(exponent) - 1}" if float(significand) == 0.5 else f"{scale:g}"
