"""A training step that is done again, under a mode that looks at its operations or changes them; afterwards everything
is as it was."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .layers import LayerTracker
from .networks import any_compiled, unwrapped
from .tensor_counts import uncounted


def run_once(
    tracker: LayerTracker,
    mode: TorchDispatchMode,
    step: Callable[[], torch.Tensor],
    scale: float,
    call: str,
    seen: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """Forward and backward once under `mode`; gives the loss. `seen` gets the loss, and the loss times the scale."""
    tracker.begin()
    try:
        with mode:
            loss = loss_of(step, call)
            with _disable_current_modes():
                scaled = times(loss, scale)
                if seen is not None:
                    seen(loss, scaled)
            scaled.backward()
    finally:
        tracker.end()
    return loss


def network_of(model: nn.Module, step: Callable[[], torch.Tensor], call: str) -> nn.Module:
    """The network whose step `lab.CALL` can do again. TypeError: no module, or one of FSDP; `step` needs an argument.
    ValueError: a compiled module."""
    network = unwrapped(
        model,
        f"lab.{call}",
        "it does the step again and looks at whole gradients; explain that step of the network without FSDP",
    )
    if any_compiled(model):
        raise ValueError(
            f"torch.compile fuses the operations of this network: give lab.{call} the module before compiling"
        )
    try:
        inspect.signature(step).bind()
    except TypeError as error:
        told = f"{call} calls step() without arguments; lambda: step(batch) gives it one"
        raise TypeError(f"{told} ({error})") from None
    except ValueError:  # a callable that has no signature
        pass
    return network


def scale_of(scale: float | None, scaler: torch.amp.GradScaler | None, call: str) -> float:
    """The loss scale that was asked for, or the scaler's, or 1; ValueError unless it is above 0."""
    if scale is None:
        scale = scaler.get_scale() if scaler is not None else 1.0
    try:
        number = float(scale)
    except (TypeError, ValueError, OverflowError):
        told = f"{call}: scale is {scale!r:.40}; a number above 0 that FP64 holds is needed"
        raise ValueError(told) from None
    if not number > 0:
        raise ValueError(f"{call}(scale={number}): must be above 0")
    return number


def loss_of(step: Callable[[], torch.Tensor], call: str) -> torch.Tensor:
    loss = step()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise TypeError(
            f"{call}: step must return the loss, a tensor of one element that requires grad, "
            f"not {type(loss).__name__}"
            + (f" of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else "")
        )
    return loss.reshape(())


def times(loss: torch.Tensor, scale: float) -> torch.Tensor:
    """As GradScaler.scale does."""
    return loss * torch.full((), scale, dtype=torch.float64, device=loss.device).float()


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Random numbers, buffers and gradients are afterwards what they were. Gradients begin as None, and no
    cast of a weight that autocast has kept gets in or out."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    torch.clear_autocast_cache()
    try:
        with torch.random.fork_rng(), uncounted():
            yield
    finally:
        torch.clear_autocast_cache()
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
