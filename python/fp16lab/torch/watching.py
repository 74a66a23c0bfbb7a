"""lab.watch: exponent histograms of a training as it runs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from .. import _core
from .counting import count, format_of, is_countable, unseen
from .networks import (CAST_BY_AUTOCAST, any_compiled, first_tensor, joined, observed_modules, path_of, unwrapped)
from .recording import Counts, Recording, Step, packed, toml
from .step_ends import StepEnds, first_hash, hash_fold, optimizer_states, weights_digest

_OBSERVED = ("gradients", "activations", "weights", "optimizer_state")


class watch:
    """Counts exponents of a training's tensors, in the steps 1, every, 2 every, ...

        with lab.watch(model, every=10, optimizer=optimizer, scaler=scaler) as w:
            for batch, target in loader:
                ...                        # the loop as it is
                w.step(loss=loss)          # optional: tells the loss of the step that has just ended
        print(w.table())
        w.save("results/mine")             # fp16lab hist, replay, compare, report

    A step ends at `scaler.update()`; without a scaler, when the last one of `optimizer` (one, or a list) has
    stepped; without both, at `w.step()`, which is then needed. What is counted, by `tensors`:

    gradients        of parameters ("fc1.weight"), each micro-batch as it arrives and, with
    DistributedDataParallel,
                     before the all-reduce; of what goes into layers ("fc2.input"); and of what the network
                     gives ("loss.prediction"). With a scaler they carry its scale (column loss_scale)
    activations      "fc1.input", "fc1.output" of modules without children, while the network is in training
    mode;
                     what is recomputed in a backward pass (activation checkpointing) is not counted again
    weights          as the step's forward pass has them (an optimizer or a scaler is needed)
    optimizer_state  as the step leaves it: "fc1.weight.second_moment" (an optimizer is needed)

    A row's dtype is the tensor's own, and its two histograms are the same; inputs and weights that autocast
    casts to 16 bits inside of Linear, convolutions, attention and RNNs have its dtype, and are counted before
    and after the rounding. PyTorch rounds gradients inside of its products: what underflowed there arrives as
    exact zeros. Numbers are kept, never tensors: about 150 bytes a tensor and counted step. Tensors on a GPU
    are copied to the host to be counted. steps.csv: loss as told to `step`, else as given to `scaler.scale`
    (mean over micro-batches), else NaN; grad_norm as `optimizer.step` finds it, behind `scaler.unscale_`;
    state_hash a digest of the weights in counted steps, and of norm and scale in each.

    ValueError: an unknown name in `tensors`, every < 1, what needs an optimizer without one; activations of a
    compiled module. TypeError: no module, or an FSDP one.
    """

    def __init__(self, model: nn.Module, *, every: int = 10, tensors: Iterable[str] = ("gradients",),
                 optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
                 scaler: torch.amp.GradScaler | None = None) -> None:
        self._compiled = isinstance(model, nn.Module) and any_compiled(model)
        self._model = unwrapped(model)
        self._every = every
        self._tensors = (tensors,) if isinstance(tensors, str) else tuple(tensors)
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer or [])
        self._ends = StepEnds(optimizers, scaler, self)
        self._refuse_what_cannot_be_watched()
        self._config = self._config_text(optimizers, scaler)
        self.recording = Recording()
        self._hash = first_hash
        self._untold = False  # a step has ended whose loss may yet be told
        self._hooks: list[Any] = []
        self._cast: dict[str, torch.dtype] = {}  # of parameters, by autocast in this step
        self._open_step()
        self._end = "stopped"

    # ---- for users

    def __enter__(self) -> watch:
        if self._hooks:
            raise RuntimeError("this watch has begun already; make another one")
        self._began = time.perf_counter()
        if "gradients" in self._tensors:
            for name, parameter in self._model.named_parameters():
                if parameter.requires_grad:
                    self._hooks.append(parameter.register_hook(partial(self._on_gradient, path_of(name), "weight")))
        if not self._compiled:
            self._hook_modules()
        self._hooks += self._ends.hook()
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._end = "finished" if error_type is None else "failed"

    def step(self, loss: float | torch.Tensor | None = None, *, grad_norm: float | torch.Tensor | None = None) -> None:
        """Behind `optimizer.step()` (`scaler.update()`): tells loss or gradient norm of the step that has
        just ended. With neither optimizer nor scaler it is what ends the step. RuntimeError: no step has
        ended since."""
        if not self._ends.automatic:
            self._ends.note_norm([parameter for parameter in self._model.parameters()], 1.0)
            self.end_step(found_inf=None)
        if not self._untold:
            raise RuntimeError("w.step: no step has ended since the last call; call it behind optimizer.step(), "
                               "or scaler.update() where there is a scaler")
        self._untold = False
        if loss is not None:
            self.recording.steps[-1].loss = _number(loss)
        if grad_norm is not None:
            self.recording.steps[-1].grad_norm = _number(grad_norm)

    def histogram(self, tensor: str, observed: str = "gradients", step: int | None = None) -> _core.Histogram:
        """Of one tensor, "fc1.weight", in one step or summed over all counted ones. KeyError: never
        counted."""
        return self.recording.histogram(tensor, observed, step)

    def table(self, step: int | None = None, format: str = "f16") -> str:
        """A line a tensor of one counted step, the last one without `step`: where its values lie in
        `format`."""
        return self.recording.table(step, format)

    def save(self, folder: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Writes a run folder and returns its path. In a distributed training each rank writes its own,
        FOLDER-rank0, ...; `lab.merge` makes one of them. FileExistsError where it exists, but for
        replace=True."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            if torch.distributed.get_world_size() > 1:
                folder = f"{os.fspath(folder)}-rank{torch.distributed.get_rank()}"
        return self.recording.save(folder, type(self._model).__name__, self._config, self._end, replace)

    def note_culprits(self, culprits: list[dict[str, Any]]) -> None:
        """What lab.explain_overflow found, of the step that ended last. RuntimeError: none has."""
        if not self.recording.steps:
            raise RuntimeError("no step has ended yet whose overflow could be explained")
        number = self.recording.steps[-1].step
        self.recording.culprits.setdefault(number, []).extend({**culprit, "step": number} for culprit in culprits)

    # ---- hooks

    def _hook_modules(self) -> None:
        inner = {"gradients", "activations"} & set(self._tensors)
        for path, module in observed_modules(self._model) if inner else []:
            self._hooks.append(module.register_forward_pre_hook(partial(self._on_input, path), with_kwargs=True))
            if "activations" in self._tensors:
                self._hooks.append(module.register_forward_hook(partial(self._on_output, path)))
        if "gradients" in self._tensors:
            self._hooks.append(self._model.register_forward_hook(self._on_prediction))
        if "weights" in self._tensors:
            for name, module in self._model.named_modules():
                if isinstance(module, CAST_BY_AUTOCAST):
                    self._hooks.append(module.register_forward_pre_hook(partial(self._on_cast, path_of(name))))

    @torch.compiler.disable
    def _on_input(self, path: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if not (self._counting and self._model.training):
            return
        tensor = first_tensor(args if args else kwargs)
        if not is_countable(tensor):
            return
        name = joined(path, "input")
        if "activations" in self._tensors and not _in_backward():
            dtype = _autocast_dtype(tensor) if isinstance(module, CAST_BY_AUTOCAST) else None
            self._add("activations", name, "activation", tensor, dtype)
        if "gradients" in self._tensors:
            self._follow(name, tensor)

    @torch.compiler.disable
    def _on_output(self, path: str, _: nn.Module, __: tuple, output: object) -> None:
        tensor = first_tensor(output)
        if self._counting and self._model.training and is_countable(tensor) and not _in_backward():
            self._add("activations", joined(path, "output"), "activation", tensor)

    @torch.compiler.disable
    def _on_prediction(self, _: nn.Module, __: tuple, output: object) -> None:
        tensor = first_tensor(output)
        if self._counting and self._model.training and is_countable(tensor) and tensor.ndim > 0:
            self._follow("loss.prediction", tensor)

    @torch.compiler.disable
    def _on_cast(self, path: str, module: nn.Module, _: tuple) -> None:
        if self._counting:
            for name, parameter in module.named_parameters():
                dtype = _autocast_dtype(parameter)
                if dtype is not None:
                    self._cast[joined(path, path_of(name))] = dtype

    def _follow(self, name: str, tensor: torch.Tensor) -> None:
        """Its gradient, once a step where several modules get the same tensor: by the name of the first."""
        if tensor.requires_grad and not tensor.is_leaf and tensor not in self._followed:
            self._followed[tensor] = True
            tensor.register_hook(partial(self._on_gradient, name, "activation"))

    def _on_gradient(self, name: str, kind: str, gradient: torch.Tensor) -> None:
        if self._counting:
            self._add("gradients", name, kind, gradient)

    # ---- a step; StepEnds calls these

    def before_update(self) -> None:
        """Weights, as the forward pass had them; once a step."""
        if self._counting and "weights" in self._tensors and not self._weights_counted:
            self._weights_counted = True
            for name, parameter in self._model.named_parameters():
                if is_countable(parameter):
                    self._add("weights", path_of(name), "weight", parameter, self._cast.get(path_of(name)))

    def end_step(self, found_inf: bool | None) -> None:
        """`found_inf` None: nobody looked, the norm tells."""
        self.before_update()
        if self._counting and "optimizer_state" in self._tensors:
            for name, tensor in optimizer_states(self._ends.optimizers, self._model):
                self._add("optimizer_state", name, "weight", tensor)
        scale, norm, lr, losses = self._ends.numbers()
        if found_inf is None:
            found_inf, skipped = not math.isfinite(norm) and not math.isnan(norm), False
        else:
            skipped = found_inf
        for (observed, name, kind, dtype), (before, after) in self._now.items():
            carried = scale if observed == "gradients" else 1.0
            self.recording.counts.append(Counts(self._number, observed, name, kind, dtype, carried, packed(before),
                                                None if after is None else packed(after)))
        if found_inf:
            self.recording.overflows[self._number] = self._nonfinite_gradients()
        if self._counting:
            self._hash = weights_digest(self._model, self._hash)
        self._hash = hash_fold(self._hash, norm, scale)
        now = time.perf_counter()
        self.recording.steps.append(Step(
            self._number, sum(losses) / len(losses) if losses else math.nan, scale, found_inf, skipped, norm, lr,
            self._hash, now - self._began))
        self._began = now
        self._untold = True
        self._open_step()

    def _open_step(self) -> None:
        self._number = len(self.recording.steps) + 1
        self._counting = self._number == 1 or self._number % self._every == 0
        self._now: dict[tuple[str, str, str, str], list[_core.Histogram | None]] = {}
        self._followed = WeakIdKeyDictionary()
        self._weights_counted = False

    def _add(self, observed: str, name: str, kind: str, tensor: torch.Tensor,
             cast_to: torch.dtype | None = None) -> None:
        with unseen():
            rounded = tensor.detach().to(cast_to) if cast_to is not None else None
            dtype = format_of(tensor if rounded is None else rounded)
            sides = self._now.setdefault((observed, name, kind, dtype), [None, None])
            sides[0] = count(tensor, sides[0])
            if rounded is not None:
                sides[1] = count(rounded, sides[1])

    # ---- inside

    def _refuse_what_cannot_be_watched(self) -> None:
        for name in self._tensors:
            if name not in _OBSERVED:
                why = "updates need a copy of every weight" if name == "updates" else f"there is no '{name}'"
                raise ValueError(f"watch(tensors=...): {why}; known are {', '.join(_OBSERVED)}")
        if not isinstance(self._every, int) or self._every < 1:
            raise ValueError(f"watch(every={self._every!r}): a whole number of steps, 1 or more, is needed")
        if "optimizer_state" in self._tensors and not self._ends.optimizers:
            raise ValueError("watch(tensors=[\"optimizer_state\"]) needs optimizer=")
        if "weights" in self._tensors and not self._ends.automatic:
            raise ValueError("watch(tensors=[\"weights\"]) needs optimizer= or scaler=: it counts them before the update")
        if self._compiled and "activations" in self._tensors:
            raise ValueError("torch.compile fuses the modules of this network, which then have no activations to "
                             "count: watch it before compiling, or tensors=[\"gradients\", \"weights\"]")

    def _config_text(self, optimizers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler | None) -> str:
        tables: dict[str, dict[str, object]] = {"model": {"name": type(self._model).__name__}}
        if optimizers:
            tables["optimizer"] = {"type": type(optimizers[0]).__name__.lower(),
                                   "lr": float(optimizers[0].param_groups[0]["lr"])}
        tables["scaler"] = {"policy": "none"}
        if scaler is not None and scaler.is_enabled():
            tables["scaler"] = {"policy": getattr(scaler, "policy", "torch"), "initial_scale": scaler.get_scale()}
        tables["observe"] = {"histograms_every": self._every, "tensors": list(self._tensors)}
        return toml(tables)

    def _nonfinite_gradients(self) -> list[str]:
        return [path_of(name) for name, parameter in self._model.named_parameters()
                if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())]


def _number(value: float | torch.Tensor) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _in_backward() -> bool:
    """A forward pass within a backward pass is a recomputation."""
    return torch._C._current_graph_task_id() != -1


def _autocast_dtype(tensor: torch.Tensor) -> torch.dtype | None:
    """What autocast casts it to, where it is FP32 and autocast is on."""
    device = tensor.device.type
    if tensor.dtype != torch.float32 or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)
