"""lab.comm_hook: NCCL's order hop by hop, and what a 16-bit wire loses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gloo import on_ranks
from torch import nn

import fp16lab.torch as lab


def ring(rows, wire):
    """((x[c+1] + x[c+2]) + ...) + x[c] for chunk c, every partial sum rounded to the wire."""
    ranks, count = rows.shape
    x = rows.astype(wire)
    result = np.empty(count, wire)
    size = -(-count // ranks)
    for i in range(count):
        c = i // size
        total = x[(c + 1) % ranks, i]
        for hop in range(2, ranks + 1):
            total = wire(np.float32(total) + np.float32(x[(c + hop) % ranks, i]))
        result[i] = total
    return result.astype(np.float32)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("predivide", ["1", "n", "sqrt"])
def test_a_ring_hop_by_hop(ranks, predivide):
    values = np.random.default_rng(ranks).standard_normal((ranks, 7 * ranks)).astype(np.float32)
    before = {"1": np.float32(1), "n": np.float32(ranks), "sqrt": np.float32(np.sqrt(np.float32(ranks)))}[
        predivide
    ]
    after = np.float32(np.float32(ranks) / before)
    hook = lab.comm_hook("f16", "nccl-ring", predivide)
    mean = hook.mean(list(torch.from_numpy(values)))
    with np.errstate(all="ignore"):
        expected = ring(values / before, np.float16) / after
    assert mean.numpy().tobytes() == expected.tobytes()


def test_what_is_counted():
    rows = [
        torch.tensor([2.0**-26, 1.0, 60000.0, 2.0**-24]),
        torch.tensor([2.0**-26, 2.0, 60000.0, 2.0**-20]),
    ]
    divided = lab.comm_hook("f16", predivide="n")
    assert divided.mean(rows).tolist()[:3] == [0.0, 1.5, 60000.0]
    assert (divided.means[0].lost, divided.means[0].overflow, divided.means[0].subnormal) == (1, 0, 1)
    whole = lab.comm_hook("f16", predivide="1")
    assert whole.mean(rows)[2] == torch.inf
    assert (whole.means[0].lost, whole.means[0].overflow) == (1, 1)
    exact = lab.comm_hook("f32")
    exact.mean(rows)
    assert exact.means[0].error == 0 and exact.means[0].lost == 0
    assert "lost %" in whole.table() and "25.000" in whole.table()


def test_names_are_checked():
    with pytest.raises(ValueError, match="order is 'ring'; one of nccl-ring, nccl-tree"):
        lab.comm_hook(order="ring")
    with pytest.raises(ValueError, match="predivide is '2'"):
        lab.comm_hook(predivide=2)


def ddp_rank(rank, folder):
    network = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    model = nn.parallel.DistributedDataParallel(network)
    hook = lab.comm_hook("f16", "nccl-tree")
    model.register_comm_hook(None, hook)
    torch.manual_seed(10 + rank)
    for _ in range(3):
        network.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
    gathered = [None] * 3
    torch.distributed.all_gather_object(gathered, [p.grad.tolist() for p in network.parameters()])
    assert all(each == gathered[0] for each in gathered)
    assert [mean.call for mean in hook.means] == [1, 2, 3] and hook.means[0].ranks == 3
    assert 0 < hook.means[0].error < 2**-9
    if rank == 0:
        lines = hook.save(folder).read_text().splitlines()
        assert lines[0].startswith("call,bucket,ranks,values,error,lost") and len(lines) == 4


def test_distributed_data_parallel(tmp_path):
    on_ranks(3, ddp_rank, tmp_path)
