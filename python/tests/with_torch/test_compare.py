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
    assert lab.compare(a, copy.deepcopy(a).half()).first is None
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
    assert lab.compare(grads, scaled, scale_b=2.0**10).first is None
