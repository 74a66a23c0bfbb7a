"""Tensor parallelism and FSDP2: lab.emulate gives the products of each rank, and lab.watch counts its part."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from gloo import on_ranks
from torch import nn

import fp16lab
import fp16lab.torch as lab

X = torch.linspace(-2, 2, 48).reshape(12, 4)


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def spread(kind: str) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    whole = network()
    if kind == "tensor parallel":
        return parallelize_module(whole, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for part in (whole[0], whole[2], whole):
        fully_shard(part, mesh=mesh)
    return whole


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def emulate(kind: str) -> None:
    """All products of a rank are emulated, with the values of one process."""
    alone, model = network(), spread(kind)
    with lab.emulate("hopper", f32="tf32") as run:
        plain = alone(X)
        plain.square().mean().backward()
        products = run.total("emulated")
        got = model(X)
        got.square().mean().backward()
    assert run.total("native") == 0 and run.total("emulated") == 2 * products
    if kind == "FSDP2":  # computes with whole weights
        assert torch.equal(got, plain)
        pairs = zip(alone.parameters(), model.parameters())
        assert all(torch.equal(whole(b.grad), a.grad) for a, b in pairs)
    else:
        assert torch.allclose(whole(got.wait() if hasattr(got, "wait") else got), plain, atol=1e-5)


def watch(kind: str, folder: Path) -> None:
    """Each rank counts its part."""
    alone, model = network(), spread(kind)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, model)]
    with (
        lab.watch(alone, every=1, optimizer=optimizers[0], tensors=["gradients", "weights"]) as one,
        lab.watch(model, every=1, optimizer=optimizers[1], tensors=["gradients", "weights"]) as both,
    ):
        for each, optimizer in zip((alone, model), optimizers):
            each(X).square().mean().backward()
            optimizer.step()
    for observed in ("gradients", "weights"):
        mine = both.histogram("0.weight", observed)
        parts: list = [None, None]
        torch.distributed.all_gather_object(parts, mine)
        parts[0] += parts[1]
        assert mine.total == 16 and parts[0].total == 32
        if observed == "weights":  # sums of gradients have another order
            assert parts[0].__getstate__() == one.histogram("0.weight", observed).__getstate__()
    assert both.recording.steps[0].grad_norm == pytest.approx(one.recording.steps[0].grad_norm, rel=1e-5)
    both.save(folder / "run")  # run-rank0, run-rank1
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        lab.merge([folder / "run-rank0", folder / "run-rank1"], folder / "run")
        rows = fp16lab.load_run(folder / "run").histograms
        totals = {
            (name, observed): before.total
            for name, observed, before in zip(rows["tensor"], rows["observed"], rows["before"])
        }
        for name, parameter in alone.named_parameters():
            assert totals[name, "weights"] == parameter.numel()
        assert totals["0.weight", "gradients"] == 32


def refuse() -> None:
    """What cannot be watched, or moved by ulps."""
    sharded = spread("FSDP2")
    for call, remedy in (
        (lambda: lab.watch(sharded, every=1), "lab.watch: FSDP has spread .* enter it before fully_shard"),
        (lambda: lab.watch(nn.Sequential(sharded), every=1), "lab.watch: FSDP has spread"),
        (lambda: lab.perturb_ulps(sharded, 1), "lab.perturb_ulps: FSDP .* on every rank, before FSDP is applied"),
        (lambda: lab.explain_overflow(sharded, lambda: None), "lab.explain_overflow: FSDP .* of the network without"),
        (lambda: lab.op_stats(sharded), r"lab.op_stats: FSDP .* lab.op_stats\(\) without a network"),
    ):
        with pytest.raises(TypeError, match=remedy):
            call()
    with pytest.raises(ValueError, match="DTensor"):
        lab.perturb_ulps(spread("tensor parallel"), seed=1)


def shard_after_the_watch_began(by_layer: bool) -> None:
    """As the refusal of FSDP advises: gradients are counted whole, before they are reduced."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def rows(shard) -> dict[str, int]:
        whole = network()
        with lab.watch(whole, every=1) as w:
            sharded = shard(whole)
            w.optimizer = optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
            for _ in range(2):
                loss = sharded(X).square().mean()
                loss.backward()
                optimizer.step()
                w.step(loss=loss)
        assert [step.lr for step in w.recording.steps] == [0.1, 0.1]
        return {row.tensor: row.before.total for row in w.recording.counts if row.step == 2}

    def by_fsdp2(whole: nn.Module) -> nn.Module:
        mesh = init_device_mesh("cpu", (2,))
        for part in (whole[0], whole[2], whole) if by_layer else (whole,):
            fully_shard(part, mesh=mesh)
        return whole

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="lab.watch")
        alone = rows(lambda whole: whole)
        assert rows(by_fsdp2) == alone and alone["2.weight"] == 16
    names = "gradients of 0.weight, 0.bias, 2.weight, 2.bias .FSDP, applied after lab.watch was entered"
    with pytest.warns(UserWarning, match=f"lab.watch does not count {names}"):
        told = rows(lambda whole: FullyShardedDataParallel(whole, device_id="cpu", use_orig_params=True))
    assert told == {name: total for name, total in alone.items() if name.endswith(("prediction", "input"))}


def zero_redundancy(folder: Path) -> None:
    """Each rank counts the states that it has; all gradients are in the norm of each."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    scaler = lab.GradScaler("lost-mass", device="cpu")
    with lab.watch(model, every=1, optimizer=optimizer, scaler=scaler, tensors=["optimizer_state"]) as w:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    norms = torch.stack([parameter.grad.norm() for parameter in model.parameters()])
    assert w.recording.steps[1].grad_norm == pytest.approx(float(norms.norm()), rel=1e-5)
    parts: list = [None, None]
    torch.distributed.all_gather_object(parts, {row.tensor for row in w.recording.counts})
    assert parts[0] and parts[1] and not parts[0] & parts[1] and len(parts[0] | parts[1]) == 8
    w.save(folder / "zero")
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        lab.merge([folder / "zero-rank0", folder / "zero-rank1"], folder / "zero")
        assert set(fp16lab.load_run(folder / "zero").histograms["tensor"]) == parts[0] | parts[1]


def work(rank: int, folder: str) -> None:
    emulate("tensor parallel")
    emulate("FSDP2")
    watch("tensor parallel", Path(folder))
    refuse()
    zero_redundancy(Path(folder))
    for by_layer in (False, True):
        shard_after_the_watch_began(by_layer)


def test_spread_models_are_emulated_and_counted(tmp_path):
    on_ranks(2, work, tmp_path)
