"""lab.watch within lab.emulate: both sides of the rounding of what products give."""

import csv
import json
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import numpy as np
from torch import nn

import fp16lab
import fp16lab.torch as lab
from fp16lab.torch import product_sums

SCALE = 2.0**-19  # of the loss: gradients that FP16 loses in part


class Kept:
    """What a layer got, gave, and the gradient of what it gave."""

    def __init__(self, layer):
        layer.register_forward_hook(self._forward)

    def _forward(self, _, args, output):
        self.x = args[0].detach()
        output.register_hook(lambda gradient: setattr(self, "dy", gradient.detach()))


def trained(network, x, emulated=True, steps=1, tensors=("gradients",)):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    watch = lab.watch(network, every=1, tensors=tensors, optimizer=optimizer)
    scope = lab.emulate("hopper") if emulated else lab.op_stats()
    with scope, watch, lab.autocast(torch.float16):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (network(x).float().square() * SCALE).sum()
            loss.backward()
            optimizer.step()
    return watch


def row(watch, tensor, observed="gradients"):
    (found,) = [r for r in watch.recording.counts if (r.tensor, r.observed) == (tensor, observed)]
    return found


def sums(a, b):
    """The FP32 sums of FP16 matrices."""
    exact = fp16lab.matmul(a.half().contiguous().numpy(), b.half().contiguous().numpy(), "hopper", out="f32")
    return fp16lab.histogram(exact), fp16lab.histogram(np.float16(exact))


def network():
    return nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 8))


def test_gradients_have_the_sums_that_were_rounded():
    model, x = network(), torch.randn(16, 24)
    first, last = Kept(model[0]), Kept(model[2])
    w = trained(model, x)
    for found, (before, after) in (
        (row(w, "0.weight"), sums(first.dy.mT, first.x)),
        (row(w, "2.weight"), sums(last.dy.mT, last.x)),
        (row(w, "2.input"), sums(last.dy, model[2].weight.detach())),
    ):
        assert (found.before, found.after, found.dtype) == (before, after, "f16"), found.tensor
        assert after.zero > before.zero and found.underflowed == after.zero - before.zero
        assert found.values == before.total - before.zero
    # What no product gave: autocast's cast of the prediction, and a bias's sum.
    for tensor, dtype in (("loss.prediction", "f16"), ("2.bias", "f32")):
        assert row(w, tensor).packed_after is None and row(w, tensor).dtype == dtype


def test_the_run_folder_tells_what_underflowed(tmp_path):
    torch.manual_seed(4)
    w = trained(network(), torch.randn(16, 24), steps=2)
    folder = w.save(tmp_path / "run")
    rows = [r for r in w.recording.counts if r.packed_after is not None]
    assert {r.tensor for r in rows} == {"0.weight", "2.weight", "2.input"}
    share = sum(r.underflowed for r in rows) / sum(r.values for r in rows)
    with open(folder / "steps.csv") as file:
        rates = [float(line["underflow_rate"]) for line in csv.DictReader(file)]
    assert share > 0 and sum(rates) / 2 == pytest.approx(share)
    told = subprocess.run(["fp16lab", "hist", folder, "--json"], capture_output=True, text=True, check=True).stdout
    (casts,) = json.loads(told)["all_steps"]["casts"]
    assert casts["underflow"] == sum(r.underflowed for r in rows) and casts["values"] == sum(r.values for r in rows)
    lines = w.table().split("\n\n")[1].splitlines()[2:]
    lost = {line.split()[0]: line.split()[5] for line in lines}
    found = row_of_step(rows, "2.weight", 2)
    assert float(lost["2.weight"]) == pytest.approx(100 * found.underflowed / found.before.total, abs=0.01)


def row_of_step(rows, tensor, step):
    (found,) = [r for r in rows if (r.tensor, r.step) == (tensor, step)]
    return found


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("convolution, extents", [(nn.Conv2d, (5, 4)), (nn.Conv3d, (5, 2, 2))])
def test_convolutions_too(convolution, extents, last):
    model = nn.Sequential(convolution(6, 6, 1), convolution(6, 10, 1, bias=False))
    x = torch.randn(3, 6, *extents)
    if last:
        order = torch.channels_last if convolution is nn.Conv2d else torch.channels_last_3d
        model, x = model.to(memory_format=order), x.contiguous(memory_format=order)
    kept = Kept(model[1])
    w = trained(model, x)
    rows_of = lambda t: t.movedim(1, -1).reshape(-1, t.shape[1])
    before, after = sums(rows_of(kept.dy).mT, rows_of(kept.x))
    assert (row(w, "1.weight").before, row(w, "1.weight").after) == (before, after)
    before, after = sums(rows_of(kept.dy), model[1].weight.detach().flatten(1))
    assert (row(w, "1.input").before, row(w, "1.input").after) == (before, after)
    assert after.zero > before.zero


def test_activations_too():
    model, x = network(), torch.randn(16, 24) * 2.0**-13
    with torch.no_grad():
        model[0].weight *= 2.0**-11
        model[0].bias.zero_()
    kept = Kept(model[0])
    w = trained(model, x, tensors=("activations",))
    found = row(w, "0.output", "activations")
    assert (found.before, found.after) == sums(kept.x, model[0].weight.detach().mT)
    assert found.underflowed > 0


def test_what_was_written_since_has_no_sums():
    model, x = network(), torch.randn(16, 24)
    model[2].register_forward_pre_hook(lambda _, args: args[0].register_hook(lambda g: g.mul_(1)) and None)
    found = row(trained(model, x), "2.input")
    assert found.packed_after is None and found.dtype == "f16"


def test_micro_batches_add_up():
    model, x = network(), torch.randn(16, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    w = lab.watch(model, every=1, optimizer=optimizer)
    with lab.emulate("hopper"), w, lab.autocast(torch.float16):
        for part in x.split(8):
            (model(part).float().square() * SCALE).sum().backward()
        optimizer.step()
    halves = [row(trained(model, part), "2.weight") for part in x.split(8)]
    both = row(w, "2.weight")
    assert both.before.total == sum(h.before.total for h in halves)
    assert both.underflowed == sum(h.underflowed for h in halves) > 0


def test_nothing_is_counted_where_nobody_watches():
    model, x = network(), torch.randn(16, 24)
    bits = [p.grad.clone() for p in model.parameters() if trained(model, x) and p.grad is not None]
    assert not product_sums.wanted()
    model.zero_grad()
    with lab.emulate("hopper"), lab.autocast(torch.float16):
        (model(x).float().square() * SCALE).sum().backward()
    assert not product_sums._kept
    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), bits))
    assert row(trained(model, x, emulated=False), "2.weight").packed_after is None
