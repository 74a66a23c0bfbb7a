"""lab.watch: what it counts, against counts made by numpy; where steps end; that it changes no bit."""

import copy
import gc
import math
import warnings
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn
from torch.utils._pytree import tree_map

import fp16lab
import fp16lab.torch as lab


def counts_of(*tensors):
    """{e: how many magnitudes are in (2^e, 2^(e+1)]}, with zeros and non-finite ones, by numpy's frexp."""
    values = np.concatenate([tensor.detach().double().numpy().ravel() for tensor in tensors])
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    significand, exponent = np.frexp(finite)  # in [1/2, 1)
    bins = exponent - 1 - (significand == 0.5)
    found = {int(e): int(n) for e, n in zip(*np.unique(bins, return_counts=True))}
    return found, int((values == 0).sum()), int(np.isinf(values).sum()), int(np.isnan(values).sum())


def told(histogram):
    found = {i - 150: int(n) for i, n in enumerate(histogram.bins) if n}
    return found, histogram.zero, histogram.infinite, histogram.nan


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def batches(n, size=8):
    generator = torch.Generator().manual_seed(7)
    return [
        (torch.randn(size, 6, generator=generator), torch.randint(4, (size,), generator=generator))
        for _ in range(n)
    ]


def rows(w, observed, step):
    return {row.tensor: row for row in w.recording.counts if (row.observed, row.step) == (observed, step)}


ALL = ["gradients", "activations", "weights", "optimizer_state"]


def test_counts_are_those_of_numpy_in_the_steps_asked_for():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    seen = {}
    with lab.watch(model, every=3, tensors=ALL, optimizer=optimizer) as w:
        for number, (x, y) in enumerate(batches(7), 1):
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            optimizer.zero_grad()
            inputs = {"fc1.input": x, "fc1.output": model.fc1(x)}
            inputs["act.output"] = inputs["fc2.input"] = torch.relu(inputs["fc1.output"])
            out = model(x)
            out.retain_grad()
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            seen[number] = {
                "gradients": {
                    "loss.prediction": out.grad,
                    **{name: p.grad.clone() for name, p in model.named_parameters()},
                },
                "activations": {**inputs, "fc2.output": out},
                "weights": weights,
            }
            optimizer.step()
            seen[number]["optimizer_state"] = {
                f"{name}.{moment}": optimizer.state[p][key].clone()
                for name, p in model.named_parameters()
                for moment, key in (("first_moment", "exp_avg"), ("second_moment", "exp_avg_sq"))
            }
    assert sorted({row.step for row in w.recording.counts}) == [1, 3, 6]
    for step in (1, 3, 6):
        for observed, tensors in seen[step].items():
            counted = rows(w, observed, step)
            for name, tensor in tensors.items():
                # (The test's own call of fc1 had no backward pass.)
                assert told(counted[name].before) == counts_of(tensor), (step, observed, name)
                assert counted[name].after == counted[name].before
                assert counted[name].dtype == "f32" and counted[name].loss_scale == 1
    assert (
        "act.input" in rows(w, "gradients", 3) and rows(w, "gradients", 3)["act.input"].kind == "activation"
    )
    assert rows(w, "gradients", 3)["fc1.weight"].kind == "weight"
    assert told(w.histogram("fc1.weight")) == counts_of(
        *[seen[n]["gradients"]["fc1.weight"] for n in (1, 3, 6)]
    )


def train(watched, *, amp=False, scaler=None, steps=6, accumulate=1, clip=None, lr=0.05):
    torch.manual_seed(2)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    w = lab.watch(model, every=1, tensors=ALL, optimizer=optimizer, scaler=scaler) if watched else None
    norms = []
    if w:
        w.__enter__()
    for i in range(steps):
        optimizer.zero_grad()
        for x, y in batches(steps * accumulate)[i * accumulate : (i + 1) * accumulate]:
            with torch.autocast("cpu", torch.float16, enabled=amp):
                loss = nn.functional.cross_entropy(model(x), y)
            (scaler.scale(loss) if scaler else loss / accumulate).backward()
        if scaler:
            scaler.unscale_(optimizer)
        if clip:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    if w:
        w.__exit__(None, None, None)
    return model, w, norms


@pytest.mark.parametrize("amp, scaled", [(False, False), (True, True)])
def test_a_watched_training_has_the_same_bits(amp, scaled):
    plain, _, _ = train(False, amp=amp, scaler=lab.GradScaler(device="cpu") if scaled else None)
    watched, w, _ = train(True, amp=amp, scaler=lab.GradScaler(device="cpu") if scaled else None)
    assert len(w.recording.steps) == 6
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lab.GradScaler("torch", device="cpu", init_scale=2.0**10),
        lambda: torch.amp.GradScaler("cpu", init_scale=2.0**10),
    ],
)
def test_clipping_and_norm_after_a_scaler(make):
    _, w, norms = train(True, scaler=make(), clip=0.1)
    assert [step.grad_norm for step in w.recording.steps] == pytest.approx(norms, rel=1e-6)
    assert {step.loss_scale for step in w.recording.steps} == {2.0**10}
    assert {row.loss_scale for row in w.recording.counts if row.observed == "gradients"} == {2.0**10}
    assert {row.loss_scale for row in w.recording.counts if row.observed != "gradients"} == {1.0}


def test_accumulation_counts_every_micro_batch_and_means_the_loss():
    _, one, _ = train(True, scaler=lab.GradScaler(device="cpu"), accumulate=1)
    _, three, _ = train(True, scaler=lab.GradScaler(device="cpu"), accumulate=3)
    assert len(three.recording.steps) == len(one.recording.steps) == 6
    for observed, times in (("gradients", 3), ("activations", 3), ("weights", 1), ("optimizer_state", 1)):
        for name, row in rows(one, observed, 2).items():
            assert rows(three, observed, 2)[name].before.total == times * row.before.total
    torch.manual_seed(2)
    model = Net()
    losses = [float(nn.functional.cross_entropy(model(x), y).detach()) for x, y in batches(18)[:3]]
    assert three.recording.steps[0].loss == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_autocast_is_counted_on_both_sides_of_its_casts():
    model = Net()
    with torch.no_grad():
        model.fc1.weight[0, 0] = 1e-9  # zero in FP16
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batches(1)[0]
    x[0, 0] = 1e6  # infinite in FP16
    with lab.watch(model, tensors=ALL, optimizer=optimizer) as w:
        weight = model.fc1.weight.detach().clone()
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    counted = rows(w, "weights", 1)["fc1.weight"]
    assert (counted.dtype, told(counted.before)) == ("f16", counts_of(weight))
    assert told(counted.after) == counts_of(weight.half()) and counted.after.zero == counted.before.zero + 1
    counted = rows(w, "activations", 1)["fc1.input"]
    assert (counted.dtype, told(counted.before), told(counted.after)) == (
        "f16",
        counts_of(x),
        counts_of(x.half()),
    )
    assert counted.after.infinite == 1
    assert rows(w, "activations", 1)["act.output"].dtype == "f16"


def test_skipped_steps_are_steps():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**21)
    model, w, _ = train(True, amp=True, scaler=scaler, steps=8)
    steps = w.recording.steps
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [step.loss_scale for step in steps[:2]] == [2.0**21, 2.0**20]
    assert steps[0].found_inf and steps[0].skipped and not math.isfinite(steps[0].grad_norm)
    assert not steps[-1].skipped and math.isfinite(steps[-1].grad_norm)
    assert "fc2.weight" in w.recording.overflows[1] and set(w.recording.overflows) == {
        step.step for step in steps if step.found_inf
    }
    assert steps[0].loss == pytest.approx(math.log(4), abs=0.5)  # of the loss before it is scaled


def test_several_optimizers_end_a_step_with_the_last():
    model = Net()
    optimizers = [torch.optim.SGD(model.fc1.parameters(), lr=0.25), torch.optim.Adam(model.fc2.parameters())]
    with lab.watch(model, every=1, tensors=ALL, optimizer=optimizers) as w:
        for x, y in batches(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            before = model.fc1.weight.detach().clone()
            for optimizer in optimizers:
                optimizer.step()
    assert len(w.recording.steps) == 3 and w.recording.steps[0].lr == 0.25
    assert w.recording.steps[-1].grad_norm == pytest.approx(float(norm), rel=1e-6)
    assert told(rows(w, "weights", 3)["fc1.weight"].before) == counts_of(before)  # as the forward pass had it
    assert "fc2.weight.second_moment" in rows(w, "optimizer_state", 3)


def test_a_disabled_scaler_tells_the_losses_of_fp32():
    def losses(scaler):
        return [step.loss for step in train(True, scaler=scaler)[1].recording.steps]

    told = losses(torch.amp.GradScaler("cpu", enabled=False))
    assert len(told) == 6 and told == losses(torch.amp.GradScaler("cpu", init_scale=1.0))
    assert all(math.isnan(loss) for loss in losses(None))  # without a scaler nothing gives a loss


def test_two_optimizers_and_a_scaler():
    model = Net()
    optimizers = [
        torch.optim.SGD(model.fc1.parameters(), lr=0.1),
        torch.optim.SGD(model.fc2.parameters(), lr=0.1),
    ]
    scaler = lab.GradScaler("lost-mass", device="cpu")
    with lab.watch(model, every=1, optimizer=optimizers, scaler=scaler) as w:
        for x, y in batches(4):
            model.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
            expected = nn.utils.get_total_norm([p.grad for p in model.parameters()]) / scaler.get_scale()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    assert len(w.recording.steps) == 4
    assert w.recording.steps[-1].grad_norm == pytest.approx(float(expected), rel=1e-6)


def test_a_fused_optimizer_that_unscales_by_itself():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with lab.watch(model, every=1, optimizer=optimizer, scaler=scaler) as w:
        for x, y in batches(2):
            model.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
            expected = float(nn.utils.get_total_norm([p.grad for p in model.parameters()])) / 2.0**10
            scaler.step(optimizer)
            scaler.update()
            assert w.recording.steps[-1].grad_norm == pytest.approx(expected, rel=1e-6)
    assert len(w.recording.steps) == 2


def test_step_by_hand_and_told_losses():
    model = Net()
    with lab.watch(model, every=2) as w:
        for x, y in batches(4):
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            w.step(loss=loss)
    assert [step.loss for step in w.recording.steps][-1] == float(loss.detach())
    assert sorted({row.step for row in w.recording.counts}) == [1, 2, 4]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, optimizer=optimizer) as w:
        with pytest.raises(RuntimeError, match=r"no step has ended: the SGD of optimizer= has not stepped.* w.step\(\)"):
            w.step(loss=1.0)
        optimizer.step()
        w.step(loss=3.0, grad_norm=2.0)
        with pytest.raises(RuntimeError, match="since the last call; call it after optimizer.step"):
            w.step(loss=3.0)
    assert (w.recording.steps[0].loss, w.recording.steps[0].grad_norm) == (3.0, 2.0)


def test_an_optimizer_that_is_made_after_the_watch_was_entered():
    model = Net()
    stale, later = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.5, 0.25))
    with lab.watch(model, every=1, optimizer=stale) as w:
        with pytest.raises(TypeError, match="takes torch.optim.Optimizer, .* not Net"):
            w.optimizer = model
        w.optimizer = later
        stale.step()
        for x, y in batches(2):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            later.step()
            w.step(loss=loss)
    later.step()
    assert w.optimizer == [later] and [step.lr for step in w.recording.steps] == [0.25, 0.25]
    assert not later._optimizer_step_pre_hooks and not stale._optimizer_step_post_hooks
    assert 'name = "sgd"\nlr = 0.25\n' in w._config()


def test_an_unknown_learning_rate_is_not_zero(tmp_path):
    model = Net()
    with lab.watch(model, every=1) as w:
        model(batches(1)[0][0]).sum().backward()
        w.step()
    assert fp16lab.load_run(w.save(tmp_path / "run")).steps["lr"].isna().all()


def test_a_watch_that_saw_no_step_says_so():
    model = Net()
    optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu")
    with pytest.warns(UserWarning, match="saw no step end, .*: the SGD of optimizer= has not stepped"):
        with lab.watch(model, optimizer=optimizer):
            pass
    with pytest.warns(UserWarning, match=r"saw no step end, .*: no update\(\) of the GradScaler of scaler="):
        with lab.watch(model, optimizer=optimizer, scaler=scaler):
            optimizer.step()
    with pytest.warns(UserWarning, match=r"lab.watch saw no step end, .* optimizer= .* w.step\(\) is called"):
        with lab.watch(model, every=1) as w:
            model(batches(1)[0][0]).sum().backward()
    assert w.table().startswith("nothing was counted\nnot counted: anything: lab.watch saw no step end")


def test_evaluation_in_between_is_not_counted():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, every=1, tensors=["activations"], optimizer=optimizer) as w:
        for x, y in batches(2):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(torch.randn(100, 6))
            model.train()
    assert rows(w, "activations", 2)["fc1.input"].before.total == 8 * 6


def test_hooks_and_methods_are_gone_afterwards():
    model, scaler = Net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.copy(scaler.__dict__)
    with pytest.raises(KeyError, match="mine"):
        with lab.watch(model, tensors=ALL, optimizer=optimizer, scaler=scaler) as w:
            assert "update" in scaler.__dict__
            raise KeyError("mine")
    assert scaler.__dict__.keys() == before.keys()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(not p._backward_hooks for p in model.parameters())
    assert w.table().startswith("nothing was counted\n")


def test_numbers_are_kept_and_no_tensors():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, every=1, tensors=ALL, optimizer=optimizer) as w:
        x, y = batches(1)[0]
        out = model(x)
        references = [weakref.ref(out), weakref.ref(x)]
        nn.functional.cross_entropy(out, y).backward()
        references.append(weakref.ref(model.fc1.weight.grad))
        optimizer.step()
        optimizer.zero_grad()
        del out, x, y
        gc.collect()
        assert [reference() for reference in references] == [None, None, None]
    size = sum(len(row.packed_before) for row in w.recording.counts) / len(w.recording.counts)
    assert size < 300


@pytest.mark.parametrize(
    "dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float64, "f64")]
)
def test_networks_of_other_dtypes(dtype, name):
    model = Net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, tensors=ALL, optimizer=optimizer) as w:
        model(torch.randn(5, 6).to(dtype)).square().sum().backward()
        optimizer.step()
    counted = rows(w, "gradients", 1)["fc1.weight"]
    assert counted.dtype == name
    assert told(counted.before) == counts_of(model.fc1.weight.grad)
    assert w.recording.steps[0].grad_norm == pytest.approx(
        math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters())), rel=1e-5
    )


def test_numbers_of_fp64_beyond_fp32(tmp_path):
    """Tiny ones are lost and no zeros, great ones overflow and are no Infs."""
    model = nn.Linear(6, 2).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with lab.watch(model, every=1, tensors=["gradients", "activations"], optimizer=optimizer) as w:
        (model(torch.full((3, 6), 1e-60, dtype=torch.float64)).sum() * 1e250).backward()
        optimizer.step()
    inputs, bias = w.histogram("input", "activations"), w.histogram("bias")
    assert (inputs.zones()["lost"], inputs.zero) == ((18, 18), 0)
    assert (bias.zones()["overflow"], bias.infinite) == ((2, 2), 0)
    assert w.histogram("weight") == fp16lab.histogram(model.weight.grad)
    row = next(line for line in str(w).splitlines() if line.startswith("input"))
    assert row.split()[2:] == ["f64", "18", "0.00", "100.00", "0.00", "0.00", "-", "-"]
    with pytest.warns(UserWarning, match="input, output, loss.prediction, bias, weight in FP64 saved as dtype f32"):
        folder = w.save(tmp_path / "run")
    assert "loss.prediction" in fp16lab.program.run("hist", folder)
    fp16lab.program.run("replay", folder)


class Wrapper(torch.Tensor):
    """A user's own class, which wraps another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda each: each.inner if isinstance(each, cls) else each, (args, kwargs or {}))
        return tree_map(lambda each: cls(each) if isinstance(each, torch.Tensor) else each, func(*args, **kwargs))


def wrapped():
    model = nn.Linear(6, 2, bias=False)
    model.weight = nn.Parameter(Wrapper(torch.randn(2, 6)))
    return model, torch.randn(3, 6)


def complex_numbers():
    return nn.Linear(6, 2, bias=False, dtype=torch.complex64), torch.randn(3, 6, dtype=torch.complex64)


@pytest.mark.parametrize(
    "make, why, activations",
    [
        (wrapped, "class Wrapper, which wraps other tensors", "output"),
        (complex_numbers, "torch.complex64", "input, output"),
    ],
)
def test_what_cannot_be_counted_is_named_once(make, why, activations):
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with lab.watch(model, every=1, tensors=ALL, optimizer=optimizer) as w:
            for _ in range(2):
                model(x).abs().sum().backward()
                optimizer.step()
    lines = [str(each.message) for each in told if "lab.watch" in str(each.message)]
    assert lines == [
        f"lab.watch does not count activations of {activations} ({why}); "
        f"gradients of loss.prediction, weight ({why}); weights of weight ({why})"
    ]
    assert {row.tensor for row in w.recording.counts} <= {"input"}


@pytest.mark.parametrize("last", [nn.Identity(), nn.Flatten(), nn.Dropout(0.0), nn.ReLU(inplace=True), nn.ReLU()])
def test_every_network_has_a_prediction(last):
    model, seen = nn.Sequential(nn.Linear(6, 2), last), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, every=1, optimizer=optimizer) as w:
        out = model(torch.randn(3, 6))
        out.register_hook(seen.append)
        out.square().sum().backward()
        optimizer.step()
    assert told(w.histogram("loss.prediction")) == counts_of(*seen)
    assert w.histogram("0.weight").total == 12 and len(seen) == 1
    assert ("1.input" in rows(w, "gradients", 1)) == isinstance(last, nn.ReLU)  # else it is the prediction


def test_parameters_that_come_later_are_counted():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lab.watch(model, every=1) as w:
            for _ in range(2):
                model(torch.randn(3, 6)).sum().backward()
                w.step()
                model[0].requires_grad_(True)
                model[1].weight = nn.Parameter(torch.randn(2, 4))
    assert "0.weight" not in rows(w, "gradients", 1)
    assert [rows(w, "gradients", 2)[name].before.total for name in ("0.weight", "1.weight")] == [24, 8]
    assert not any(parameter._backward_hooks for parameter in model.parameters())


@pytest.mark.parametrize("tensors", ALL[:3])
def test_networks_without_numbers_are_refused(tensors):
    model = nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2)).to("meta")
    w = lab.watch(model, every=1, tensors=[tensors], optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="^lab.watch: 0.weight is on the device meta, which has no .*to_empty"):
        w.__enter__()
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_strides_sparse_gradients_and_flushed_subnormals():
    from fp16lab.torch.counting import count

    base = torch.randn(6, 5, 4) * 2.0**-130  # subnormal in FP32
    assert torch.set_flush_denormal(True)
    try:
        histograms = [
            count(base),
            count(base.permute(2, 0, 1)),
            count(base.transpose(0, 1)[:, ::2]),
            count(base.expand(3, 6, 5, 4)),
            count(base[:0]),
        ]
    finally:
        torch.set_flush_denormal(False)
    oracles = [base, base, base.transpose(0, 1)[:, ::2], base.expand(3, 6, 5, 4), base[:0]]
    assert [told(histogram) for histogram in histograms] == [counts_of(oracle) for oracle in oracles]
    assert sum(n for e, n in told(histograms[0])[0].items() if e < -126) > 100
    embedding = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    with lab.watch(embedding, optimizer=optimizer) as w:
        embedding(torch.tensor([1, 1, 4])).sum().backward()
        optimizer.step()
    assert told(rows(w, "gradients", 1)["weight"].before) == counts_of(
        torch.tensor([2.0, 2.0, 2.0, 1.0, 1.0, 1.0])
    )
    with pytest.raises(TypeError, match="not torch.int32"):
        count(torch.ones(3, dtype=torch.int32))


def test_what_cannot_be_counted_is_left_out():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(5, 4), nn.Linear(4, 4)
            self.phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, tokens):
            return {"waves": self.fc(self.embed(tokens)) * self.phase, "tokens": tokens}

    model = Complex()
    optimizer = torch.optim.Adam(model.parameters())
    with lab.watch(model, tensors=ALL, optimizer=optimizer) as w:
        model(torch.tensor([1, 2]))["waves"].abs().sum().backward()
        optimizer.step()
    assert set(rows(w, "weights", 1)) == {"embed.weight", "fc.weight", "fc.bias"}
    assert {"fc.weight", "fc.input"} <= set(rows(w, "gradients", 1))
    assert "phase" not in rows(w, "gradients", 1) and "embed.input" not in rows(w, "activations", 1)
    assert math.isfinite(w.recording.steps[0].grad_norm)


def test_attention_lstm_and_one_tensor_for_two_layers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.lstm = (
                nn.MultiheadAttention(8, 2, batch_first=True),
                nn.LSTM(8, 8, batch_first=True),
            )
            self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = self.lstm(x)[0]
            return self.attn(x, x, x)[0] + self.q(x) * self.k(x)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, tensors=ALL, optimizer=optimizer) as w:
        model(torch.randn(2, 5, 8)).square().mean().backward()
        optimizer.step()
    names = set(rows(w, "gradients", 1))
    assert {
        "attn.in_proj_weight",
        "attn.out_proj.weight",
        "attn.input",
        "lstm.weight_hh_l0",
        "loss.prediction",
    } <= names
    assert not {"q.input", "k.input"} & names  # the same tensor as attn.input, counted once
    assert {"attn.output", "lstm.output", "q.input", "k.input"} <= set(rows(w, "activations", 1))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"tensors": ["gradient"]}, ValueError, "there is no 'gradient'; known are gradients, activations"),
        ({"tensors": ["updates"]}, ValueError, "updates need a copy of every weight"),
        ({"every": 0}, ValueError, "every=0"),
        ({"tensors": ["optimizer_state"]}, ValueError, "needs optimizer="),
        ({"tensors": ["weights"]}, ValueError, "needs optimizer= or scaler="),
        ({"optimizer": "adam"}, TypeError, "optimizer= takes torch.optim.Optimizer"),
        ({"scaler": 65536}, TypeError, "scaler= takes a torch.amp.GradScaler"),
    ],
)
def test_refuses_in_one_line(arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        lab.watch(Net(), **arguments)
    assert "\n" not in str(raised.value)


def test_refuses_what_is_no_module():
    for call in (lab.op_stats, lab.explain_overflow, lab.perturb_ulps):
        with pytest.raises(TypeError, match="^lab.*: a torch.nn.Module is needed, not int"):
            call(3, *[] if call is lab.op_stats else [1])
    with pytest.raises(TypeError, match="^optimizer= takes torch.optim.Optimizer, or a list of them, not int"):
        lab.watch(Net(), optimizer=3)
    with pytest.raises(ValueError, match="there is no '3'"):
        lab.watch(Net(), tensors=3)
    with pytest.raises(TypeError, match="^lab.watch: a torch.nn.Module is needed, not function"):
        lab.watch(train)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_gpu_tensors_are_copied_and_counted():
    on_host, on_device = Net(), None
    on_device = copy.deepcopy(on_host).cuda()
    x, y = batches(1)[0]
    counted = []
    for model in (on_host, on_device):
        device = next(model.parameters()).device
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with lab.watch(model, tensors=ALL, optimizer=optimizer) as w:
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        counted.append(
            {row.tensor: row.before.total for row in w.recording.counts if row.observed == "gradients"}
        )
    assert counted[0] == counted[1]
    assert told(lab.counting.count(x.cuda())) == counts_of(x)
