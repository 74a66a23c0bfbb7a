"""What lab.watch counts of the step under way: hooks on modules and parameters, and the histograms they
fill."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from ..tensor_memory import local_parts
from . import product_sums, recipes
from .counting import FORMATS, Counted, Tally, format_of, is_countable, on_host, unseen
from .networks import CAST_BY_AUTOCAST, first_tensor, is_of_fsdp, joined, observed_modules, path_of, some
from .passes import Passes
from .recording import Row
from .step_ends import optimizer_states

_uncounted = 0
#: Names of a layer's operands by those of lab.recipe: the gradient is of what the layer gives.
_OPERANDS = {"x": "input", "weight": "weight", "g": "output"}


@contextmanager
def uncounted() -> Iterator[None]:
    """Passes inside of it are no part of any training step."""
    global _uncounted
    _uncounted += 1
    try:
        yield
    finally:
        _uncounted -= 1


class StepCounts:
    """Histograms of one step at a time, by what is observed, tensor, kind and dtype; nothing between counted
    steps. Those of a device are known when `tally` was read."""

    def __init__(self, model: nn.Module, tensors: tuple[str, ...], tally: Tally) -> None:
        self._model, self._tensors, self._tally = model, tensors, tally
        self._listening = False
        self._hooked = WeakIdKeyDictionary()  # parameters, for their gradients
        self._names: set[str] = set()  # of these
        self._left_out: dict[str, dict[str, bool]] = {}  # by reason, names: reported already?
        self._called = False  # is the network under way, as a whole?
        self._passes = Passes()
        self.open(False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A network that is pickled or copied with its hooks is not counted where it is loaded."""
        return StepCounts, (nn.Module(), (), Tally())

    def open(self, counting: bool) -> None:
        """A step begins; the one before is forgotten."""
        self._wanted = counting
        product_sums.listen(self, counting and self._listening)
        if counting and self._listening:
            self._hook_parameters("", self._model)
        self._rows: dict[tuple[str, str, str, str], Row] = {}
        self._operands: dict[tuple[str, str], recipes.Losses] = {}
        self._passes.clear()
        self._cast: dict[str, torch.dtype] = {}  # of parameters, by autocast in the step's forward pass
        self._followed = WeakIdKeyDictionary()  # by tensor: its version and the names of its gradient
        self._weights_counted = False

    @property
    def counting(self) -> bool:
        """Is what happens now part of a step that is counted?"""
        return self._wanted and not _uncounted

    def listen(self, scope: ExitStack, modules: bool) -> None:
        """Begins to listen, to modules too or to parameters alone, until `scope` closes."""
        if modules:
            self._hook_modules(scope)
        scope.callback(self._listen, False)
        self._listen(True)

    def _listen(self, listening: bool) -> None:
        self._listening = listening
        named = self._model.named_modules() if listening else ()
        self._paths = {module: path_of(name) for name, module in named}
        (recipes.listeners.add if listening else recipes.listeners.discard)(self)
        product_sums.listen(self, listening and self._wanted)
        if listening:
            self._hook_parameters("", self._model)
        else:
            for hook in self._hooked.values():
                hook.remove()
            self._hooked.clear()
            self._names.clear()

    def count_weights(self) -> None:
        """As the forward pass had them: called before the update, counted once a step."""
        if self.counting and "weights" in self._tensors and not self._weights_counted:
            self._weights_counted = True
            for name, parameter in self._model.named_parameters():
                self._add("weights", path_of(name), "weight", parameter, self._cast.get(path_of(name)))

    def count_optimizer_state(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        if self.counting and "optimizer_state" in self._tensors:
            for name, tensor in optimizer_states(optimizers, self._model):
                self._add("optimizer_state", name, "weight", tensor)

    def rows(self) -> list[Row]:
        """The rows of the step that ends."""
        self._passes.finish()
        if self.counting:
            self._tell_what_is_left_out()
        return list(self._rows.values())

    def operands(self) -> list[dict[str, Any]]:
        """What lab.recipe left of the operands of products in the step that ends, as recipe.jsonl has it."""
        return [
            {"tensor": tensor, "product": product, **lost.row()}
            for (tensor, product), lost in self._operands.items()
        ]

    def on_operand(self, module: nn.Module | None, product: str, operand: str, lost: recipes.Losses) -> None:
        """recipes.Listener."""
        if not self.counting:
            return
        if module is None:
            self._leave_out("operands", "lab.recipe", "it was given no model")
        elif module in self._paths:
            tensor = joined(self._paths[module], _OPERANDS[operand])
            if product != "forward":
                self._passes.backward()
            elif not (self._is_part_of_step() and self._passes.counts(f"{tensor}, quantized")):
                return
            self._passes.add(partial(self._add_losses, (tensor, product), lost))

    # ---- hooks

    def _hook_parameters(self, path: str, module: nn.Module) -> None:
        """Those that there are: they may have been replaced, or frozen, since the last time, and FSDP2 has whole ones
        during a module's forward pass alone. (What torch.func.functional_call puts in their place are none.)"""
        if "gradients" not in self._tensors:
            return
        for name, parameter in module.named_parameters(path):
            if isinstance(parameter, nn.Parameter) and parameter.requires_grad and parameter not in self._hooked:
                self._names.add(path_of(name))
                self._hooked[parameter] = parameter.register_hook(
                    partial(self._on_gradient, [path_of(name)], "weight")
                )

    def _hook_modules(self, scope: ExitStack) -> None:
        inner = {"gradients", "activations"} & set(self._tensors)
        if inner:
            scope.callback(self._model.register_forward_pre_hook(self._on_call).remove)
        if "activations" in self._tensors:
            after = self._model.register_forward_hook(self._after_call, always_call=True)
            scope.callback(after.remove)
        for path, module in observed_modules(self._model) if inner else []:
            before = partial(self._on_input, path)
            scope.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            if "activations" in self._tensors:
                scope.callback(module.register_forward_hook(partial(self._on_output, path)).remove)
        if "gradients" in self._tensors:
            scope.callback(self._model.register_forward_hook(self._on_prediction).remove)
        if "weights" in self._tensors:
            for name, module in self._model.named_modules():
                if isinstance(module, CAST_BY_AUTOCAST):
                    hook = partial(self._on_cast, path_of(name))
                    scope.callback(module.register_forward_pre_hook(hook).remove)

    @torch.compiler.disable
    def _on_call(self, *_: object) -> None:
        if self.counting:
            self._hook_parameters("", self._model)
        if "activations" in self._tensors and self._is_part_of_step():
            self._called = True
            self._passes.begin()

    @torch.compiler.disable
    def _after_call(self, _: nn.Module, __: tuple, output: object) -> None:
        tensor = first_tensor(output)
        if self._called and tensor is not None:
            self._passes.follow(tensor)
        self._called = False

    @torch.compiler.disable
    def _on_input(self, path: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if not self._is_part_of_step():
            return
        self._hook_parameters(path, module)
        tensor = first_tensor(args if args else kwargs)
        if tensor is None:
            return
        name = joined(path, "input")
        if "activations" in self._tensors and not self._called:
            self._passes.begin()
        if "activations" in self._tensors and self._passes.counts(name):
            dtype = _autocast_dtype(tensor) if isinstance(module, CAST_BY_AUTOCAST) else None
            self._add("activations", name, "activation", tensor, dtype)
        if "gradients" in self._tensors:
            self._follow(name, tensor)

    @torch.compiler.disable
    def _on_output(self, path: str, _: nn.Module, __: tuple, output: object) -> None:
        tensor, name = first_tensor(output), joined(path, "output")
        if tensor is not None and self._is_part_of_step() and self._passes.counts(name):
            self._add("activations", name, "activation", tensor)
            self._passes.follow(tensor)

    @torch.compiler.disable
    def _on_prediction(self, _: nn.Module, __: tuple, output: object) -> None:
        tensor = first_tensor(output)
        if tensor is not None and tensor.ndim > 0 and self._is_part_of_step():
            self._follow("loss.prediction", tensor)

    def _is_part_of_step(self) -> bool:
        """Can the forward pass under way be one of a step that is counted?"""
        if not (self.counting and self._model.training):
            return False
        self._passes.forward()
        return True

    @torch.compiler.disable
    def _on_cast(self, path: str, module: nn.Module, _: tuple) -> None:
        if self.counting:
            for name, parameter in module.named_parameters():
                dtype = _autocast_dtype(parameter)
                if dtype is not None:
                    self._cast[joined(path, path_of(name))] = dtype

    def _follow(self, name: str, tensor: torch.Tensor) -> None:
        """Its gradient, once a step where several modules get the same tensor: by the name of the first, or as the
        network's prediction. What was written to in place since is another tensor."""
        if not tensor.requires_grad or tensor.is_leaf:
            return
        version, names = self._followed.get(tensor, (None, []))
        if version != tensor._version:
            self._followed[tensor] = tensor._version, [name]
            tensor.register_hook(partial(self._on_gradient, self._followed[tensor][1], "activation"))
        elif name == "loss.prediction":
            names[0] = name

    def _on_gradient(self, names: list[str], kind: str, gradient: torch.Tensor) -> None:
        if self.counting:
            self._passes.backward()
            self._add("gradients", names[0], kind, gradient)

    def _add(
        self, observed: str, name: str, kind: str, tensor: torch.Tensor, cast_to: torch.dtype | None = None
    ) -> None:
        if not is_countable(tensor):
            if tensor.is_floating_point() or tensor.is_complex():
                dtype = "" if tensor.dtype in FORMATS else f"{tensor.dtype}"
                self._leave_out(observed, name, dtype or f"class {type(tensor).__name__}, which wraps other tensors")
            return
        with unseen():
            rounded = tensor if cast_to is None else tensor.detach().to(cast_to)
            after = self._tally.count(rounded)
            sums = product_sums.of(tensor) if cast_to is None else None
            if sums is not None:
                row, before = (observed, name, kind, sums.format), Counted(sums.before)
            else:
                row = (observed, name, kind, format_of(rounded))
                before = after if rounded is tensor else self._tally.count(tensor)
        counting = partial(self._add_to, row, before, after)
        if observed in ("gradients", "activations"):
            self._passes.add(counting)
        else:  # no pass decides about what the update finds and leaves
            counting()

    def _leave_out(self, observed: str, name: str, why: str) -> None:
        self._left_out.setdefault(f"{observed}, {why}", {}).setdefault(name, False)

    def not_counted(self, untold_only: bool = False) -> list[str]:
        """What was left out so far, and why: "gradients of a, b (torch.complex64)"."""
        parts = []
        for reason, names in self._left_out.items():
            observed, _, why = reason.partition(", ")
            if left := [name for name, told in names.items() if not (told and untold_only)]:
                parts.append(f"{observed} of {some(left)} ({why})")
        return parts

    def _tell_what_is_left_out(self) -> None:
        """Once."""
        self._look_for_fsdp()
        self._look_for_gradients_set_by_hand()
        if parts := self.not_counted(untold_only=True):
            warnings.warn("lab.watch does not count " + "; ".join(parts), stacklevel=2)
        for names in self._left_out.values():
            names.update(dict.fromkeys(names, True))

    def _look_for_fsdp(self) -> None:
        """It fills gradients of parameters without telling them, or puts parameters of its own in their place."""
        left = self._names - {name for observed, name, *_ in self._rows if observed == "gradients"}
        parts = tuple(name for name, module in self._model.named_modules() if is_of_fsdp(module))
        for name, parameter in self._model.named_parameters() if left else ():
            own = path_of(name)
            if own in left and (name.startswith(parts) or getattr(parameter, "_fsdp_flattened", False)):
                self._leave_out("gradients", own, "FSDP, applied after lab.watch was entered")
            left.discard(own)
        for name in sorted(left):
            self._leave_out("gradients", name, "no parameter of the network any more")

    def _look_for_gradients_set_by_hand(self) -> None:
        """No hook sees them. Zeros may be what zero_grad(set_to_none=False) left; those of a device are not read."""
        if "gradients" not in self._tensors:
            return
        seen = {name for observed, name, *_ in self._rows if observed == "gradients"}
        seen.update(*(names for reason, names in self._left_out.items() if reason.startswith("gradients")))
        for name, parameter in self._model.named_parameters():
            own, gradient = path_of(name), parameter.grad
            if own not in seen and gradient is not None and on_host(gradient) and is_countable(gradient):
                with unseen():
                    if any(bool(part.any()) for part in local_parts(gradient)):
                        why = "no completed backward pass of the step made them, as where they are set by hand"
                        self._leave_out("gradients", own, why)

    def _add_to(self, key: tuple[str, str, str, str], before: Counted, after: Counted) -> None:
        self._rows.setdefault(key, Row(*key)).sides.append((before, after))

    def _add_losses(self, place: tuple[str, str], lost: recipes.Losses) -> None:
        self._operands.setdefault(place, recipes.Losses()).add(lost)


def _autocast_dtype(tensor: torch.Tensor) -> torch.dtype | None:
    """What autocast casts it to, where it is FP32 and autocast is on."""
    device = tensor.device.type
    if tensor.dtype != torch.float32 or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)
