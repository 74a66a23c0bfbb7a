"""Where a training's steps end, and what is known of one then: scale, gradient norm, learning rate,
losses."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn

from ..tensor_memory import in_memory, local_parts
from .counting import number, on_host, unseen
from .device_counts import digest
from .networks import STATE_NAMES, path_of, unwrapped_optimizer


#: A tensor has one element, on a device.
Number = float | torch.Tensor


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that has ended; no norm: there were no gradients. of_parameters: ids of parameters with gradients on
    devices, and their norms, which are not finite where an element is not."""

    scale: Number
    norms: list[Number]
    lr: Number
    losses: list[Number]
    of_parameters: list[tuple[list[int], torch.Tensor]]


class StepEnds:
    """Listens to optimizers by their hooks, and to a scaler by its methods, whose calls pass through
    unchanged.

    `listener` gets before_update() before the first optimizer of a step updates, and end_step(flags) when the step has
    ended: at scaler.update(), with the scaler's found_inf, or without a scaler when the last optimizer has stepped,
    with None. Nothing here waits for a device: a Number of one stays there.
    """

    def __init__(
        self, optimizers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler | None, listener: Any
    ) -> None:
        self._hooks: ExitStack | None = None  # of optimizers, while this listens
        self.take(optimizers)
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise TypeError(f"scaler= takes a torch.amp.GradScaler, not {type(scaler).__name__}")
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._disabled = scaler if self._scaler is None else None  # whose `scale` still sees losses
        self._listener = listener
        self._clear()

    @property
    def automatic(self) -> bool:
        """Does a step end by itself?"""
        return bool(self.optimizers) or self._scaler is not None

    def take(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Listens to these from here on, and no longer to those of before. TypeError: one that is no Optimizer."""
        optimizers = [unwrapped_optimizer(each) for each in optimizers]
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise TypeError(
                    f"optimizer= takes torch.optim.Optimizer, or a list of them, not "
                    f"{type(optimizer).__name__}"
                )
        self.optimizers = optimizers
        if self._hooks is not None:
            self._hooks.close()
            self._listen_to_optimizers(self._hooks)

    def awaited(self) -> str:
        """What ends a step: for an error that says that none has ended."""
        if self._scaler is not None:
            return f"no update() of the {type(self._scaler).__name__} of scaler= followed its step(optimizer)"
        if not self.optimizers:
            return "steps end by themselves with optimizer= (and scaler=), without them where w.step() is called"
        return (
            f"the {type(self.optimizers[-1]).__name__} of optimizer= has not stepped: give the one that steps"
            " (w.optimizer = it, where it is made after fully_shard), or none, and w.step() ends each step"
        )

    def listen(self, scope: ExitStack) -> None:
        """Begins to listen, until `scope` closes."""
        self._hooks = scope.enter_context(ExitStack())
        scope.callback(setattr, self, "_hooks", None)
        self._listen_to_optimizers(self._hooks)
        if self._scaler is not None:
            update = partial(self._update, self._scaler)
            for name, wrap in (("scale", self._scale), ("unscale_", self._unscale), ("update", update)):
                scope.callback(_Wrapped(self._scaler, name, wrap).end)
        elif self._disabled is not None:
            scope.callback(_Wrapped(self._disabled, "scale", self._scale).end)

    def _listen_to_optimizers(self, hooks: ExitStack) -> None:
        for optimizer in self.optimizers:
            hooks.callback(optimizer.register_step_pre_hook(self._before_step).remove)
            hooks.callback(optimizer.register_step_post_hook(self._after_step).remove)

    def __reduce__(self) -> tuple[Any, ...]:
        """An optimizer that is pickled with its hooks is not watched where it is loaded."""
        return StepEnds, ([], None, None)

    def note_norm(self, parameters: Iterable[torch.Tensor], scale: Number) -> None:
        """Adds the gradients of `parameters`, which carry `scale`, to the norm of the step."""
        groups: dict[torch.device, tuple[list[int], list[torch.Tensor]]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                gradient = parameter.grad
                ids, gradients = groups.setdefault(gradient.device, ([], []))
                ids.append(id(parameter))
                gradients.append(gradient.coalesce().values() if gradient.is_sparse else gradient)
        with unseen():
            for ids, gradients in groups.values():
                norms = torch.stack(_norms_of(gradients))
                norm = torch.linalg.vector_norm(norms)
                self._of_parameters.append((ids, norms))
                if on_host(norm):
                    self._norms.append(norm.item() / scale)
                else:
                    self._norms.append(norm / (scale.to(norm.device) if isinstance(scale, torch.Tensor) else scale))

    def ended(self) -> Ended:
        """What is known of the step that has ended; then forgets it."""
        lr = number(self.optimizers[0].param_groups[0]["lr"]) if self.optimizers else math.nan
        on_devices = any(not on_host(norms) for _, norms in self._of_parameters)
        of_parameters = self._of_parameters if on_devices else []
        result = Ended(self._step_scale, self._norms, lr, self._losses, of_parameters)
        self._clear()
        return result

    # ---- inside

    def _clear(self) -> None:
        self._step_scale: Number = 1.0
        self._norms: list[Number] = []
        self._of_parameters: list[tuple[list[int], torch.Tensor]] = []
        self._noted: set[int] = set()
        self._losses: list[Number] = []

    def _note(self, optimizer: torch.optim.Optimizer, scale: Number) -> None:
        optimizer = unwrapped_optimizer(optimizer)
        if id(optimizer) not in self._noted:
            self._noted.add(id(optimizer))
            self.note_norm((p for group in optimizer.param_groups for p in group["params"]), scale)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure", args[1] if len(args) > 1 else None) is None:  # a closure makes the gradients
            self._note_step(optimizer)
        self._listener.before_update()

    def _note_step(self, optimizer: torch.optim.Optimizer) -> None:
        # An optimizer that unscales by itself has the scale.
        carried = getattr(optimizer, "grad_scale", None)
        self._note(optimizer, 1.0 if carried is None else number(carried))

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._note_step(optimizer)
        if self._scaler is None and optimizer is self.optimizers[-1]:
            self._listener.end_step(None)

    def _scale(self, original: Callable, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            self._losses.append(number(outputs))
        return original(outputs)

    def _unscale(self, original: Callable, optimizer: torch.optim.Optimizer) -> None:
        original(optimizer)
        if not self.optimizers:
            self.optimizers = [unwrapped_optimizer(optimizer)]  # the learning rate's
        self._note(optimizer, 1.0)

    def _update(self, scaler: torch.amp.GradScaler, original: Callable, new_scale: Any = None) -> None:
        scale = scaler._get_scale_async()
        self._step_scale = scaler.get_scale() if scale is None else number(scale)
        flags = [
            number(flag)
            for state in scaler._per_optimizer_states.values()
            for flag in state["found_inf_per_device"].values()
        ]
        checked = len(scaler._per_optimizer_states) > 0
        self._listener.before_update()
        try:
            original(new_scale)
        finally:
            if checked:  # a scale set by hand between two steps ends none
                self._listener.end_step(flags)


class _Wrapped:
    """A method of one object that goes through `wrap(original, ...)` until end(), in whatever order several end;
    pickled, it is the method."""

    def __init__(self, owner: object, name: str, wrap: Callable) -> None:
        self._owner, self._name, self._before = owner, name, owner.__dict__.get(name)
        self._original: Callable = getattr(owner, name)
        self._wrap: Callable | None = wrap
        owner.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs) if self._wrap is None else self._wrap(self._original, *args, **kwargs)

    def end(self) -> None:
        self._wrap = None
        methods = self._owner.__dict__
        while isinstance(last := methods.get(self._name), _Wrapped) and last._wrap is None:
            if last._before is None:
                del methods[self._name]
            else:
                methods[self._name] = last._before

    def __reduce__(self) -> tuple[Any, ...]:
        return _bound, (type(self._owner), self._name, self._owner)


def _bound(of: type, name: str, owner: object) -> MethodType:
    return MethodType(getattr(of, name), owner)


def optimizer_states(
    optimizers: Iterable[torch.optim.Optimizer], model: nn.Module
) -> Iterator[tuple[str, torch.Tensor]]:
    """("fc1.weight.second_moment", tensor) for every state of the shape of its parameter."""
    names = {id(parameter): path_of(name) for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        local = getattr(optimizer, "optim", None)  # ZeroRedundancyOptimizer has this rank's states in one of its own
        if not isinstance(local, torch.optim.Optimizer):
            local = optimizer
        for parameter, state in local.state.items():
            for key, value in state.items():
                if (
                    id(parameter) in names
                    and isinstance(value, torch.Tensor)
                    and (value.is_floating_point() or value.is_complex())
                    and value.shape == parameter.shape
                    and key != "step"
                ):
                    yield f"{names[id(parameter)]}.{STATE_NAMES.get(key, key)}", value


first_hash = 0xCBF29CE484222325


def hash_fold(digest: int, *numbers: float) -> int:
    """FNV-1a over 64-bit words."""
    for number in numbers:
        digest = (digest ^ int.from_bytes(struct.pack("<d", number), "little")) * 0x100000001B3 % 2**64
    return digest


def norm_of(norms: list[float]) -> float | None:
    """The norm of a step from those of its parts; None: there are none."""
    if any(math.isnan(each) for each in norms):  # hypot(inf, nan) is inf
        return math.nan
    return math.hypot(*norms) if norms else None


def _norms_of(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Norms of tensors of one device, in FP64, which FP32 on the host and FP64 elsewhere add in (MPS has none)."""
    groups: dict[torch.dtype, list[int]] = {}
    found = list(gradients)
    for place, gradient in enumerate(gradients):
        wide = torch.promote_types(gradient.dtype, torch.float32)
        if not on_host(gradient) and gradient.device.type != "mps" and not wide.is_complex:
            wide = torch.float64
        if type(gradient) in (torch.Tensor, nn.Parameter):
            groups.setdefault(wide, []).append(place)
        else:
            norm = torch.linalg.vector_norm(gradient, dtype=wide)
            found[place] = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    for wide, places in groups.items():
        for place, norm in zip(places, torch._foreach_norm([gradients[place] for place in places], 2, wide)):
            found[place] = norm
    return [norm if norm.device.type == "mps" else norm.double() for norm in found]


def weights_digest(model: nn.Module) -> list[Number]:
    """The digest of all parameters and buffers, in order; a DTensor gives this rank's part. On the host their
    CRC-32; where one is on a device, the sum of what `digest` has of each, a word a device, in two halves that FP64
    holds."""
    parts = [
        part for tensor in (*model.parameters(), *model.buffers()) for part in local_parts(tensor.detach())
    ]
    if all(on_host(part) for part in parts):
        crc = 0
        for part in parts:
            crc = zlib.crc32(in_memory(part, "a parameter").contiguous().reshape(-1).view(torch.uint8).numpy().data, crc)
        return [float(crc)]
    sums: dict[torch.device, torch.Tensor] = {}
    with unseen():
        for key, part in enumerate(parts):
            own = digest(part, key)
            sums[part.device] = sums[part.device] + own if part.device in sums else own
        return [half for each in sums.values() for half in (each >> 32, each & 0xFFFFFFFF)]
