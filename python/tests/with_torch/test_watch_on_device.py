"""A training whose tensors are called a device's (counting.on_host says no): what lab.watch and lab.GradScaler read of
it, and that they find what they find on the host. No other device is simulated: these are CPU tensors."""

from __future__ import annotations

import contextlib
import math
from collections import Counter

import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab
from fp16lab import histograms
from fp16lab.torch import counting, device_counts, emulating, recording, step_ends, tensor_counts

ALL = ["gradients", "activations", "weights", "optimizer_state"]
READS = ("cpu", "item", "numpy", "tolist", "__bool__", "__float__", "__int__", "__array__", "__dlpack__")
#: Operations that wait for a device.
WAITS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::bincount")


@pytest.fixture
def device(monkeypatch):
    """Nothing is compiled, which takes seconds."""
    monkeypatch.setattr(device_counts.Compiled, "__call__", lambda self, *args: self._function(*args))
    for module in (counting, step_ends, tensor_counts):
        monkeypatch.setattr(module, "on_host", lambda tensor: False)


@contextlib.contextmanager
def reads():
    """How often a tensor was read, by the method or operation that did."""
    found, before = Counter(), {name: getattr(torch.Tensor, name) for name in (*READS, "to")}

    def counted(name):
        def call(self, *args, **kwargs):
            if name != "to" or args[:1] == ("cpu",):
                found[name] += 1
            return before[name](self, *args, **kwargs)

        return call

    for name in before:
        setattr(torch.Tensor, name, counted(name))
    try:
        with torch.autograd.profiler.profile() as profile:
            yield found
    finally:
        for name in before:
            setattr(torch.Tensor, name, before[name])
    found.update(event.name for event in profile.function_events if event.name in WAITS)


def scaler_of(name):
    if name == "torch.amp":
        return torch.amp.GradScaler("cpu", init_scale=2.0**22)
    return None if name is None else lab.GradScaler(name, device="cpu", initial_scale=2.0**22)


def train(steps, scaler=None, watching=None, tell=False, fused=False):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.ReLU(inplace=True), nn.Linear(32, 4))
    kind = torch.optim.AdamW if fused else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.1, fused=fused or None)
    scaler = scaler_of(scaler)
    w = lab.watch(model, optimizer=optimizer, scaler=scaler, **watching) if watching else None
    scales = []
    with w or contextlib.nullcontext():
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
                loss = nn.functional.cross_entropy(model(torch.randn(64, 6)), torch.randint(4, (64,)))
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler._scale.clone())
            else:
                optimizer.step()
            if w and tell:
                w.step(loss=loss, grad_norm=loss)
    return w, [float(scale) for scale in scales]


@pytest.mark.parametrize("scaler", [None, "torch.amp", "torch"])
@pytest.mark.parametrize("every", [1, 100])
def test_a_step_reads_nothing(device, scaler, every):
    train(1, scaler)
    with reads() as plain:
        train(5, scaler)
    with reads() as watched:
        w, _ = train(5, scaler, {"tensors": ALL, "every": every}, tell=True)
    assert watched == plain
    with reads() as settled:
        assert len(w.recording.counts) > 0 and len(w.recording.steps) == 5
    del settled["aten::_local_scalar_dense"]  # of CPU tensors, by tolist
    assert settled["cpu"] == 1 and settled["tolist"] <= 3  # counts; FP32, FP64 and int64 scalars
    assert set(settled) <= {"cpu", "tolist", "numpy"}, settled


@pytest.mark.parametrize("scaler", [None, "torch.amp", "torch", "lost-mass"])
@pytest.mark.parametrize("fused", [False, True])
def test_results_are_those_of_the_host(monkeypatch, scaler, fused, request):
    if fused and scaler in ("torch", "lost-mass"):
        pytest.skip("as with torch.amp")
    watching = {"tensors": ALL, "every": 2}
    host, of_host = train(9, scaler, watching, fused=fused)
    table = host.table()
    request.getfixturevalue("device")
    found, scales = train(9, scaler, watching, fused=fused)
    assert scales == of_host
    assert found.recording.counts == host.recording.counts
    assert found.recording.overflows == host.recording.overflows and (len(host.recording.overflows) > 0) == bool(scaler)
    for mine, other in zip(found.recording.steps, host.recording.steps, strict=True):
        for name in ("step", "loss", "loss_scale", "found_inf", "skipped", "lr"):
            one, two = getattr(mine, name), getattr(other, name)
            assert one == two or math.isnan(one) and math.isnan(two), (mine.step, name)
        assert mine.grad_norm == pytest.approx(other.grad_norm, rel=1e-6, nan_ok=True)
        assert mine.state_hash != other.state_hash  # another digest
    assert found.table().startswith(table + "Counted on cpu by ")


def test_losses_and_norms_that_are_told(device):
    w, _ = train(3, watching={"every": 1}, tell=True)
    assert all(step.loss == step.grad_norm > 0 for step in w.recording.steps)


def test_the_digest_knows_the_weights(device):
    hashes = [[step.state_hash for step in train(3, watching={"every": 3})[0].recording.steps] for _ in range(2)]
    assert hashes[0] == hashes[1] and len(set(hashes[0])) == 3
    model = nn.Linear(3, 3)
    first = counting.fetched(step_ends.weights_digest(model))
    with torch.no_grad():
        model.weight[0, 0].neg_()
        model.weight[1, 1].neg_()
    assert counting.fetched(step_ends.weights_digest(model)) != first


@pytest.mark.parametrize(
    "bound, every, settled_at", [("_COUNTED_STEPS", 2, [6, 14]), ("_STEPS", 100, [4, 8, 12, 16])]
)
def test_what_waits_is_bounded(device, monkeypatch, bound, every, settled_at):
    monkeypatch.setattr(recording, bound, 4)
    seen, settle = [], recording.Recording.settle
    monkeypatch.setattr(recording.Recording, "settle", lambda self: (seen.append(len(self.steps)), settle(self))[1])
    train(18, watching={"every": every})
    assert seen == settled_at


def test_a_policy_reads_one_row_a_step(device):
    train(1, "lost-mass")
    with reads() as torchs:
        train(4, "torch.amp")
    with reads() as found:
        train(4, "lost-mass")
    assert found["cpu"] - torchs["cpu"] == 4  # rows
    assert found["tolist"] == 4  # found_inf


def test_counts_of_a_device_are_saved(device, tmp_path):
    w, _ = train(6, "torch", {"every": 2, "tensors": ALL})
    run = fp16lab.load_run(w.save(tmp_path / "run"))
    assert len(run.steps) == 6
    fp16lab.program.run("replay", tmp_path / "run")


def test_inference_mode_is_no_hindrance(device):
    tally, x = counting.Tally(), torch.randn(40_000)
    for size in (40_000, 100):
        with torch.inference_mode():
            inside = tally.count(x[:size].clone())
        outside = tally.count(x[:size])
        with torch.inference_mode():
            tally.read()
        assert inside.histogram == outside.histogram == fp16lab.histogram(x[:size])


def test_histogram_counts_there(device, monkeypatch):
    monkeypatch.setattr(histograms, "_is_on_device", lambda x: True)
    for dtype in (torch.float32, torch.float8_e4m3fn):
        x = torch.randn(3, 5).to(dtype)
        with reads() as found:
            histogram = fp16lab.histogram(x)
        assert found["cpu"] == 1 and histogram.total == 15
    with pytest.raises(TypeError, match="^a histogram counts floating-point numbers .*, not torch.int32$"):
        fp16lab.histogram(torch.ones(3, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"^x requires a gradient, .* x.detach\(\) has none$"):
        fp16lab.histogram(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x @ x,  # FP32, which would be torch's own
        lambda x: x.half() @ x.half(),
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: torch.cdist(x, x),
    ],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_emulate_refuses_operands_of_a_device(monkeypatch, call, mode):
    monkeypatch.setattr(emulating, "on_host", lambda tensor: False)
    with mode(), lab.emulate("hopper") as run:
        assert (torch.ones(2) + 1).sum() == 4  # what is no product is torch's own
        with pytest.raises(lab.EmulationError, match=r"^aten::\w+(\.\w+)?: an operand is on cpu, .* the CPU: model.cpu\(\)"):
            call(torch.ones(4, 4))
    assert run.total("native") == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_on_a_gpu(dtype):
    for n in (0, 1, 1000, 100_003):
        x = torch.randint(256, (n * dtype.itemsize,), dtype=torch.uint8).view(dtype) if n else torch.empty(0, dtype=dtype)
        assert counting.count(x.cuda()) == fp16lab.histogram(x)
