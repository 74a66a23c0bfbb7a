"""Names of a PyTorch network as run folders have them: "fc1.weight", "encoder.0.attn.input"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

#: Whose inputs and parameters autocast casts to 16 bits. (Products written with F.linear or @ are not seen.)
CAST_BY_AUTOCAST = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase)

#: What these wrappers put into module paths.
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")


def unwrapped(model: nn.Module, call: str, instead: str) -> nn.Module:
    """The user's network inside of DistributedDataParallel, DataParallel, Fabric's wrapper and torch.compile.
    TypeError: no module, or one of FSDP, which spreads parameters over ranks: then `call` ("lab.watch") does not do
    what it does to parameters, and `instead` says what helps."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{call}: a torch.nn.Module is needed, not {type(model).__name__}")
    if any(is_of_fsdp(part) for part in model.modules()):
        raise TypeError(f"{call}: FSDP has spread the parameters of this network over ranks: {instead}")
    wrappers = nn.parallel.DistributedDataParallel, nn.DataParallel
    while isinstance(model, wrappers) or type(model).__name__ == "_FabricModule" or is_compiled(model):
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if inner is None:  # compiled in place
            break
        model = inner
    return model


def unwrapped_optimizer(optimizer: Any) -> Any:
    """What steps inside of the wrappers of accelerate, Lightning and Fabric, which have no hooks of their own."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer) and inner is not optimizer:
        optimizer = inner
    return optimizer


def is_of_fsdp(module: nn.Module) -> bool:
    return "FullyShardedDataParallel" in type(module).__name__ or hasattr(module, "_get_fsdp_state")


def some(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    names = list(names)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def is_compiled(model: nn.Module) -> bool:
    """By torch.compile(model) or model.compile()."""
    return hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None


def any_compiled(model: nn.Module) -> bool:
    return any(is_compiled(module) for module in model.modules())


def path_of(name: str) -> str:
    """A module's or parameter's name without what wrappers added."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def observed_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules without children, and attention, whose children are not called; each once, by its path."""
    found: list[tuple[str, nn.Module]] = []
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            inside += (name + ".",)
            found.append((path_of(name), module))
        elif not any(True for _ in module.children()) and not name.startswith(inside or ("\0",)):
            found.append((path_of(name), module))
    return found


def first_tensor(value: object) -> torch.Tensor | None:
    """The tensor, or the first one of a tuple, list or dictionary."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for each in value:
            found = first_tensor(each)
            if found is not None:
                return found
    return None


#: Names of optimizer states in checkpoints of fp16lab, by torch's.
STATE_NAMES = {
    "exp_avg": "first_moment",
    "exp_avg_sq": "second_moment",
    "momentum_buffer": "velocity",
    "square_avg": "square_average",
    "grad_avg": "gradient_average",
}


def nonfinite_gradients(model: nn.Module) -> list[str]:
    """Parameters whose gradients hold an Inf or NaN."""
    return [
        path_of(name)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
    ]
