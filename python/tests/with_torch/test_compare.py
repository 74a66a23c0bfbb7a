"""lab.compare of modules, optimizers and tensors of any dtype."""

from __future__ import annotations

import copy

import torch
from torch import nn

import fp16lab.torch as lab


def test_modules_optimizers_and_dtypes():
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    b = copy.deepcopy(a)
    assert lab.compare(a, nn.DataParallel(b)).equal  # "module." is left out
    with torch.no_grad():
        b[2].weight[1, 3] += 1
    found = lab.compare(a, b)
    assert found.first is not None and found.first["tensor"] == "2.weight" and found.first["first"]["index"] == 7
    cast = lab.compare(a, copy.deepcopy(a).half())
    assert cast.first["tensor"] == "0.weight" and cast.first["beyond_cast"] == 0
    narrow = copy.deepcopy(a).bfloat16()
    assert lab.compare(a.state_dict(), narrow).tensors[0]["ulps_of"] == "bf16"
    optimizers = [torch.optim.Adam(model.parameters()) for model in (a, b)]
    for model, optimizer in zip((a, b), optimizers):
        model(torch.ones(3, 5)).sum().backward()
        optimizer.step()
    states = [optimizer.state_dict() for optimizer in optimizers]
    names = [row["tensor"] for row in lab.compare(*states).tensors]
    assert "state.0.exp_avg" in names and lab.compare(states[0], states[0]).equal
    grads = {name: p.grad for name, p in a.named_parameters()}
    scaled = {name: (g * 2**10).half() for name, g in grads.items()}
    assert not any(row["beyond_cast"] for row in lab.compare(grads, scaled, scale_b=2.0**10).tensors)


def test_two_steps_operation_by_operation():
    torch.manual_seed(1)
    # No bias before the norm: its gradient is zero but for rounding.
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 3))
    x, y = torch.randn(9, 6), torch.randint(3, (9,))

    def step_of(enabled, x=x):
        def step():
            with torch.autocast("cpu", torch.float16, enabled=enabled):
                return nn.functional.cross_entropy(model(x).float(), y)

        return step

    before = copy.deepcopy(model.state_dict())
    wide = lab.step_results(model, step_of(False))
    again = lab.step_results(model, step_of(False))
    assert lab.compare(wide, again).equal and lab.compare(before, model).equal and model[0].weight.grad is None
    narrow = lab.step_results(model, step_of(True), scale=2.0**12)
    assert list(narrow) == list(wide), "a step in another precision has the same names"
    found = lab.compare(wide, narrow)
    assert found.first["tensor"] == "forward: 0.mm 1"
    # The loss scale is taken out of the backward pass alone; nowhere is FP16 off by more than a few per cent.
    assert max(row["relative_l2"] for row in found.tensors) < 0.05
    assert [row["scale_b"] for row in found.tensors][:: len(found.tensors) - 1] == [1.0, 2.0**12]
    assert narrow["forward: 0.mm 1"].dtype == torch.float16
    exact = nn.functional.linear(x, model[0].weight)
    assert torch.equal(wide["forward: 0.mm 1"], exact)
    model.zero_grad()
    torch.manual_seed(1)
    other = lab.step_results(model, step_of(False, torch.cat([x[:8], x[:1]])))
    assert lab.compare(wide, other).first["tensor"] == "forward: 0.mm 1"
