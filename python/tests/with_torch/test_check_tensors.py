"""lab.check_tensors: where the first Inf or NaN was made, and in which steps, layers, operations and passes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fp16lab.torch as lab


def training(model: nn.Module, optimizer: torch.optim.Optimizer, inputs, scale: float = 1.0) -> None:
    for x in inputs:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().mean()
        (loss * scale).backward()
        optimizer.step()


def made() -> tuple[nn.Module, torch.optim.Optimizer, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    inputs = [torch.full((2, 4), 7e4 if step == 3 else 1.0) for step in range(1, 6)]
    return model, torch.optim.SGD(model.parameters(), lr=0.0), inputs


def test_the_step_layer_and_operation():
    model, optimizer, inputs = made()
    with pytest.raises(lab.NonFiniteError, match="^step 3, forward: cast in 0 gave 0.input") as told:
        with lab.check_tensors(model, optimizer=optimizer):
            training(model, optimizer, inputs)
    assert (told.value.step, told.value.culprit["layer"], told.value.culprit["wide_value"]) == (3, "0", 70000.0)
    training(model, optimizer, inputs)  # nothing stays


@pytest.mark.parametrize(
    ("chosen", "steps"),
    [
        ({"steps": (1, 2)}, []),
        ({"steps": (3, 3)}, [3]),
        ({"steps": (4, None)}, []),
        ({"include": "^2$"}, []),
        ({"include": ["^0$", "none"]}, [3]),
        ({"skip": "0"}, []),
        ({"ops": "tanh"}, []),
        ({"skip_ops": ["cast", "addmm"]}, []),
        ({"passes": "backward"}, []),
    ],
)
def test_what_is_looked_at(chosen, steps):
    model, optimizer, inputs = made()
    with lab.check_tensors(model, optimizer=optimizer, stop=False, **chosen) as checked:
        training(model, optimizer, inputs)
    assert [row["step"] for row in checked.found if row["pass"] == "forward"] == steps
    assert checked.step == 6 and len(checked._tracker._numbers) < 20, "what earlier steps left is forgotten"


def test_backward_scalers_and_refusals():
    model, optimizer, _ = made()
    ones = [torch.ones(2, 4)] * 2
    with pytest.raises(lab.NonFiniteError, match="^step 1, backward: ") as told:
        with lab.check_tensors(model, optimizer=optimizer):
            training(model, optimizer, ones, scale=2.0**20)
    assert (told.value.culprit["op"], told.value.culprit["tensor"]) == ("cast", "2.output")
    with lab.check_tensors(model, optimizer=optimizer, passes="forward"):
        training(model, optimizer, ones, scale=2.0**20)
    with lab.emulate("volta"), lab.check_tensors(model, stop=False) as checked:
        training(model, optimizer, ones, scale=2.0**20)
        checked.next_step()
    assert [(row["step"], row["pass"]) for row in checked.found] == [(1, "backward")] and checked.step == 2
    with pytest.raises(ValueError, match="steps is"):
        lab.check_tensors(model, steps=(0, 3))
    with pytest.raises(TypeError, match="Module is needed"):
        lab.check_tensors(None)
