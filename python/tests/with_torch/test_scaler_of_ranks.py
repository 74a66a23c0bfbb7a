"""lab.GradScaler where each rank holds a part of the model: one scale for all, or a refusal."""

from __future__ import annotations

import pytest
import torch
from gloo import on_ranks
from torch import nn

import fp16lab.torch as lab

SPREAD = ("FSDP1", "FSDP1 with its parameters", "FSDP2", "tensor parallel")


def spread(kind: str) -> nn.Module:
    """A network of which each of two ranks has a part."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    network = nn.Linear(4, 8, bias=False)
    mesh = init_device_mesh("cpu", (2,))
    if kind == "FSDP2":
        return fully_shard(network, mesh=mesh)
    if kind == "tensor parallel":
        return parallelize_module(network, mesh, ColwiseParallel())
    own = kind == "FSDP1 with its parameters"
    return FullyShardedDataParallel(network, use_orig_params=own, device_id=torch.device("cpu"))


def local(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


def scales(kind: str, policy: str, rank: int) -> list[float]:
    """After each of five steps; in the third one part of a gradient, of rank 1 alone, is infinite."""
    network = spread(kind)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    if policy == "ShardedGradScaler":
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        scaler = ShardedGradScaler("cpu")
    else:
        scaler = lab.GradScaler(policy, device="cpu", process_group=torch.distributed.group.WORLD)
    found = []
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(network(torch.ones(2, 4)).square().mean()).backward()
        if step == 2 and rank == 1:
            local(next(iter(network.parameters())))[...] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    return found


def work(rank: int, folder: str) -> None:
    for kind in SPREAD:
        check(rank, kind)


def check(rank: int, kind: str) -> None:
    for policy in ("torch", "lost-mass", "megatron"):
        mine = scales(kind, policy, rank)
        both: list = [None, None]
        torch.distributed.all_gather_object(both, mine)
        assert both[0] == both[1], (kind, policy)
        if policy != "megatron":  # which has patience
            assert mine[2] < mine[1], (kind, policy)
        if policy == "torch" and kind.startswith("FSDP1"):
            assert mine == scales(kind, "ShardedGradScaler", rank), kind
    network = spread(kind)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    scaler = lab.GradScaler("torch", device="cpu")
    scaler.scale(network(torch.ones(2, 4)).square().mean()).backward()
    with pytest.raises(ValueError, match="process_group="):
        scaler.step(optimizer)


def test_one_scale_for_all_ranks(tmp_path):
    on_ranks(2, work, tmp_path)
