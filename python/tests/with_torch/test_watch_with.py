"""lab.watch with DistributedDataParallel, activation checkpointing and torch.compile."""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from gloo import on_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab

TENSORS = ["gradients", "activations"]


def counted(w):
    return {
        (row.observed, row.tensor, row.step): (list(row.before.bins), row.before.zero)
        for row in w.recording.counts
    }


class Blocks(nn.Module):
    def __init__(self, how=None):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3))
        self.out, self.how = nn.Linear(8, 2), how

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.how is None else checkpoint(block, x, use_reentrant=self.how == "reentrant")
        return self.out(x)


def train(model, forward=None, steps=3, tensors=TENSORS, rank=0):
    torch.manual_seed(11 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, every=1, tensors=tensors, optimizer=optimizer) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (
                (model if forward is None else forward)(torch.randn(4, 8, requires_grad=True)).square().mean()
            )
            loss.backward()
            optimizer.step()
            w.step(loss=loss)
    return w


@pytest.mark.parametrize("how", ["reentrant", "non-reentrant"])
def test_activation_checkpointing_counts_as_if_there_were_none(how):
    runs = []
    for each in (None, how):
        torch.manual_seed(1)
        runs.append(counted(train(Blocks(each))))
    assert runs[0] == runs[1] and ("gradients", "blocks.1.0.input", 2) in runs[0]


def ddp_rank(rank, folder):
    model = nn.parallel.DistributedDataParallel(Blocks())
    path = train(model, rank=rank, tensors=[*TENSORS, "weights", "optimizer_state"]).save(os.path.join(folder, "mine"))
    assert path.name == f"mine-rank{rank}"
    named = lab.watch(model).save(os.path.join(folder, f"named-rank{rank}"))
    assert named.name == f"named-rank{rank}"  # and not named-rank0-rank0
    other = lab.watch(model).save(os.path.join(folder, "named-rank7"))
    assert other.name == f"named-rank7-rank{rank}"
    torch.distributed.barrier()
    if rank == 0:
        lab.merge([os.path.join(folder, f"mine-rank{each}") for each in range(2)], os.path.join(folder, "mine"))


def test_ddp_writes_a_folder_a_rank_and_merges_them(tmp_path):
    import json

    on_ranks(2, ddp_rank, tmp_path)

    def rows(name):
        lines = (tmp_path / name / "histograms.jsonl").read_text().splitlines()
        return {
            (row.get("observed", "gradients"), row["tensor"], row["step"]): row
            for row in map(json.loads, lines)
        }

    merged, ranks = rows("mine"), [rows("mine-rank0"), rows("mine-rank1")]
    assert merged.keys() == ranks[0].keys() == ranks[1].keys()
    assert ("gradients", "blocks.0.0.weight", 1) in merged  # without DDP's "module."
    for key, row in merged.items():
        values = [sum(each[key]["before"]["counts"]) + each[key]["before"]["zero"] for each in ranks]
        total = sum(row["before"]["counts"]) + row["before"]["zero"]
        assert total == (sum(values) if key[0] in ("gradients", "activations") else values[0])
        if key[0] == "weights":
            assert ranks[0][key] == ranks[1][key] == row
    # Step 1 of a rank alone: its own part of the batch, before the all-reduce.
    torch.manual_seed(1)
    alone = train(Blocks(), rank=1, steps=1)
    own = ranks[1][("gradients", "blocks.0.0.weight", 1)]["before"]
    assert own["counts"] == [int(n) for n in trimmed(alone.histogram("blocks.0.0.weight").bins)]


def trimmed(bins):
    used = [i for i, n in enumerate(bins) if n]
    return bins[used[0] : used[-1] + 1]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_module_has_its_parameters_gradients_counted(in_place):
    torch._dynamo.reset()
    plain, model = Blocks(), Blocks()
    model.load_state_dict(plain.state_dict())
    if in_place:
        model.compile(backend="eager")
        compiled = model
    else:
        compiled = torch.compile(model, backend="eager")
    ours, theirs = (
        train(each, tensors=["gradients", "weights", "optimizer_state"]) for each in (compiled, plain)
    )
    expected = {
        key: value
        for key, value in counted(theirs).items()
        if not key[1].endswith("input") and key[1] != "loss.prediction"
    }
    assert counted(ours) == expected and ("gradients", "out.weight", 3) in expected
    with pytest.raises(ValueError, match="torch.compile fuses the modules") as raised:
        lab.watch(compiled, tensors=["activations"])
    assert "\n" not in str(raised.value)


def test_watched_first_and_compiled_then():
    torch._dynamo.reset()
    plain, model = Blocks(), Blocks()
    model.load_state_dict(plain.state_dict())
    assert counted(train(model, torch.compile(model, backend="eager"))) == counted(train(plain))
