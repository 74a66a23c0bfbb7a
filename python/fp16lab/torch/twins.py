"""lab.perturb_ulps: the twin of a training run, which shows how far last bits alone lead."""

from __future__ import annotations

import torch
from torch import nn

from .. import _core
from ..tensor_memory import in_memory
from .networks import path_of, unwrapped


def perturb_ulps(model: nn.Module, seed: int, ulps: int = 1) -> None:
    """Moves every FP32 parameter that is not zero by `ulps` units in the last place, up or down by `seed`.

    A run from such weights is the twin of the run without: what the two differ by after training is what
    chance makes of nothing, the null band of fp16lab.verdict. Element i of parameter NAME moves as
    train.perturb_ulps of the command line moves it. No sign changes, nothing becomes zero or infinite.
    Buffers, and parameters of other dtypes, stay.

    TypeError: no module, or one of FSDP, which is moved before FSDP is applied. ValueError: ulps not from 1 to
    2^22; a seed not from 0 to 2^64 - 1; a model without FP32 parameters; parameters that are no plain tensors
    (DTensor), which are moved before they are spread.

    >>> model = nn.Linear(2, 1)
    >>> before = model.weight.detach().clone()
    >>> perturb_ulps(model, seed=1)
    >>> bool((model.weight != before).all() and model.weight.allclose(before, 2**-22))
    True
    """
    if not hasattr(ulps, "__index__") or not 1 <= ulps <= 1 << 22:
        raise ValueError(f"perturb_ulps: ulps is {ulps!r}; a whole number from 1 to 2^22 is needed")
    if not hasattr(seed, "__index__") or not 0 <= seed < 1 << 64:
        raise ValueError(f"perturb_ulps: seed is {seed!r}; a whole number from 0 to 2^64 - 1 is needed")
    moved = False
    network = unwrapped(
        model,
        "lab.perturb_ulps",
        "it moves each element by its place in the whole tensor; call it on every rank, before FSDP is applied",
    )
    for name, parameter in network.named_parameters():
        if parameter.dtype != torch.float32:
            continue
        values = in_memory(parameter.cpu(), name).contiguous().clone()
        _core.perturb(values.numpy(), path_of(name), ulps, seed)
        with torch.no_grad():
            parameter.copy_(values)
        moved = True
    if not moved:
        raise ValueError("perturb_ulps: the model has no parameters in float32")
