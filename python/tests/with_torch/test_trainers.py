"""Optimizers, scalers and networks as trainers wrap them, their callbacks, and watches that leave something out."""

from __future__ import annotations

import json
import sys
import types
import warnings

import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab
from fp16lab.torch import trainers

F = nn.functional


class Prepared(torch.optim.Optimizer):
    """As accelerate's: an Optimizer that has the real one, and nothing of its own."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)


class SetUp:
    """As Fabric's: it takes the class of what it wraps as a base."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.__class__ = type("Fabric" + type(optimizer).__name__, (SetUp, type(optimizer)), {})

    optimizer = property(lambda self: self._optimizer)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def __getattr__(self, name):
        return getattr(self._optimizer, name)


class _FabricModule(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._forward_module = self._original_module = module

    module = property(lambda self: self._original_module)

    def forward(self, x):
        return self._forward_module(x)


def real(package):
    """A preparation of (network, optimizer) by the package itself."""
    if package == "accelerate":
        accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
        return accelerator.prepare
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    return fabric.setup


WRAPPERS = {
    "as accelerate": lambda: lambda model, optimizer: (model, Prepared(optimizer)),
    "as Fabric": lambda: lambda model, optimizer: (_FabricModule(model), SetUp(optimizer)),
    "twice": lambda: lambda model, optimizer: (model, Prepared(SetUp(optimizer))),
    "accelerate": lambda: real("accelerate"),
    "Fabric": lambda: real("fabric"),
}


def counted(prepare):
    """Rows, and norms and rates of two steps; the optimizer of config.toml."""
    torch.manual_seed(1)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model, optimizer = prepare(model, optimizer)
    with lab.watch(model, every=1, optimizer=optimizer, tensors=["gradients", "weights", "optimizer_state"]) as w:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(3, 6)).square().sum().backward()
            optimizer.step()
    rows = [(row.step, row.observed, row.tensor, row.packed_before) for row in w.recording.counts]
    return rows, [(step.grad_norm, step.lr) for step in w.recording.steps], w._tables["optimizer"]


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.filterwarnings("ignore")
def test_wrapped_optimizers_are_watched(name):
    alone = counted(lambda model, optimizer: (model, optimizer))
    assert counted(WRAPPERS[name]()) == alone and len(alone[0]) == 2 * 9 and alone[2]["name"] == "adamw"


@pytest.mark.parametrize("policy", ["torch", "lost-mass"])
@pytest.mark.parametrize("unscaled, stepped", [(0, 0), (0, 1), (1, 0), (1, 1), (None, 1)])
def test_a_scaler_takes_wrapped_optimizers(policy, unscaled, stepped):
    """0: the optimizer, 1: its wrapper. Gradients are unscaled once, and their infinities skip the step."""
    weight = nn.Parameter(torch.ones(3))
    both = [torch.optim.SGD([weight], lr=1.0)]
    both.append(Prepared(both[0]))
    scaler = lab.GradScaler(policy, device="cpu", init_scale=8.0)
    for factor in (0.5, torch.inf):
        both[0].zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        if unscaled is not None:
            scaler.unscale_(both[unscaled])
        scaler.step(both[stepped])
        scaler.update()
    assert torch.equal(weight.detach(), torch.full((3,), 0.5)) and scaler.get_scale() < 8


def test_the_norm_of_a_step_whose_closure_makes_the_gradients():
    weight = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.0)

    def closure(factor):
        optimizer.zero_grad()
        loss = (weight.weight * factor).sum()
        loss.backward()
        return loss

    with lab.watch(weight, every=1, optimizer=optimizer) as w:
        for factor in (3.0, 4.0):
            optimizer.step(lambda factor=factor: closure(factor))
    assert [step.grad_norm for step in w.recording.steps] == pytest.approx([3 * 2**0.5, 4 * 2**0.5])


# ---- a watch that saw nothing, or left something out


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.real, self.phase = nn.Linear(4, 2), nn.Parameter(torch.ones(2, dtype=torch.complex64))
        self.by_hand = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.real(x) * self.phase.abs()


def by_hand(model, optimizer, w):
    model(torch.ones(1, 4)).sum().backward()
    model.by_hand.grad = torch.ones(3)
    optimizer.step()


def added_later(model, optimizer, w):
    """Counted, from then on."""
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    model.late = nn.Parameter(torch.ones(2))
    (model(torch.ones(1, 4)).sum() + model.late.sum()).backward()
    optimizer.step()
    assert w.histogram("late", step=2).total == 2


def no_step(model, optimizer, w):
    model(torch.ones(1, 4)).sum().backward()


def nothing(model, optimizer, w):
    optimizer.step()


COMPLEX = "gradients of phase (torch.complex64)"
LEFT_OUT = {
    by_hand: [
        COMPLEX,
        "gradients of by_hand (no completed backward pass of the step made them, as where they are set by hand)",
    ],
    added_later: [COMPLEX],
    no_step: ["anything: lab.watch saw no step end"],
    nothing: ["anything: lab.watch saw 1 steps end and nothing to count in them"],
}


@pytest.mark.parametrize("train", LEFT_OUT)
def test_what_was_left_out_stands_in_table_and_manifest(train, tmp_path):
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with lab.watch(model, every=1, optimizer=optimizer) as w:
            train(model, optimizer, w)
    assert len([each for each in told if "lab.watch" in str(each.message)]) == 1
    table = w.table()
    w.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "manifest.json").read_text())["config"]
    lines = [line for line in table.splitlines() if line.startswith("not counted: ")]
    for line, expected in zip(lines, LEFT_OUT[train], strict=True):
        assert line.startswith(f"not counted: {expected}")
    assert f"not_counted = {json.dumps([line.removeprefix('not counted: ') for line in lines])}" in config
    assert len(fp16lab.load_run(tmp_path / "run").steps) == len(w.recording.steps)


def test_weights_in_fp8_are_left_out_by_name():
    model = nn.Linear(4, 2)
    model.stored = nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn), requires_grad=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = r"lab.watch does not count weights of stored \(torch.float8_e4m3fn\)"
    with pytest.warns(UserWarning, match=told):
        with lab.watch(model, every=1, optimizer=optimizer, tensors=["weights"]) as w:
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    assert "\nnot counted: weights of stored (torch.float8_e4m3fn)\n" in w.table()


def test_a_watch_that_left_nothing_out_says_nothing(tmp_path):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lab.watch(model, every=1, optimizer=optimizer) as w:
        for keep in (False, True):  # of gradients that are not needed zeros stay
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=keep)
        optimizer.step()
    w.save(tmp_path / "run")
    assert "not counted" not in w.table() and "not_counted" not in (tmp_path / "run" / "config.toml").read_text()


# ---- callbacks


class Base:
    """What both packages call their class of callbacks."""

    state_key = "base"


@pytest.fixture
def packages(monkeypatch):
    """Stand-ins, without what they are of."""
    trainers._with_base.cache_clear()
    for name in ("transformers", "lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(TrainerCallback=Base, Callback=Base))
    yield monkeypatch
    trainers._with_base.cache_clear()


def network():
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step_of(model, optimizer):
    optimizer.zero_grad()
    loss = F.mse_loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
    loss.backward()
    optimizer.step()
    return loss


def test_the_callback_of_transformers(packages, tmp_path):
    model, optimizer = network()
    callback = lab.TrainerCallback(every=1, folder=tmp_path / "run")
    assert isinstance(callback, Base) and isinstance(callback, lab.TrainerCallback)
    callback.on_train_begin(types.SimpleNamespace(seed=7), None, None, model=model, optimizer=Prepared(optimizer))
    for number in range(4):
        step_of(model, optimizer)
        if number % 2:
            callback.on_log(None, None, None, logs={"loss": number})
    callback.on_evaluate(None, None, None, metrics={"eval_loss": 0.5, "eval_accuracy": 0.25})
    callback.on_log(None, None, None, logs={"train_loss": 9.0})
    callback.on_train_end(None, None, None)
    run = fp16lab.load_run(tmp_path / "run")
    assert [step.loss for step in callback.watch.recording.steps] == [1, 1, 3, 3]
    assert list(run.evaluations["loss"]) == [0.5] and "seed = 7" in (tmp_path / "run" / "config.toml").read_text()
    step_of(model, optimizer)
    assert len(callback.watch.recording.steps) == 4  # it was left


def test_the_callback_of_lightning(packages, tmp_path):
    model, optimizer = network()
    trainer = types.SimpleNamespace(
        optimizers=[optimizer], precision_plugin=None, callback_metrics={"val_loss": torch.tensor(0.5)}
    )
    callback = lab.LightningCallback(every=1, seed=3, folder=tmp_path / "run")
    assert callback.state_key == "base"
    callback.on_train_start(trainer, model)
    losses = []
    for number in range(3):
        losses.append(step_of(model, optimizer))
        callback.on_train_batch_end(trainer, model, {"loss": losses[-1]}, None, number)
    callback.on_train_batch_end(trainer, model, losses[-1], None, 3)  # a micro-batch that ends no step
    callback.on_validation_end(trainer, model)
    callback.on_exception(trainer, model, KeyError("mine"))
    assert [step.loss for step in callback.watch.recording.steps] == [float(loss.detach()) for loss in losses]
    run = fp16lab.load_run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["state"] == "failed" and len(run.steps) == 3


def test_a_callback_without_its_package_says_what_is_missing(packages):
    for name in ("transformers", "lightning.pytorch", "pytorch_lightning"):
        packages.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="^lab.TrainerCallback needs transformers: pip install transf"):
        lab.TrainerCallback()
    with pytest.raises(ModuleNotFoundError, match="^lab.LightningCallback needs lightning or pytorch-lightning: "):
        lab.LightningCallback()


@pytest.mark.filterwarnings("ignore")
def test_a_training_by_transformers(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16))
    data = [{"input_ids": torch.randint(64, (8,)), "labels": torch.randint(64, (8,))} for _ in range(8)]
    callback = lab.TrainerCallback(every=2, tensors=["gradients", "optimizer_state"])
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, gradient_accumulation_steps=2, per_device_train_batch_size=2, logging_steps=1,
        use_cpu=True, report_to=[], eval_strategy="steps", eval_steps=2, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=data, eval_dataset=data[:2], callbacks=[callback]).train()
    recording = callback.watch.recording
    assert [step.step for step in recording.steps] == [1, 2, 3, 4] and len(recording.evaluations) == 2
    assert len({step.loss for step in recording.steps}) == 4 and recording.steps[0].loss > 3
    assert {row.observed for row in recording.counts} == {"gradients", "optimizer_state"}


@pytest.mark.filterwarnings("ignore")
def test_a_training_by_lightning():
    pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch, index):
            return F.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 2))
    callback, module = lab.LightningCallback(every=1), Module()
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, callbacks=[callback], accumulate_grad_batches=2, **quiet
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, 4))
    steps = callback.watch.recording.steps
    assert len(steps) == 2 and all(0 < step.loss < 10 for step in steps)
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in module.parameters()]))
    assert steps[-1].grad_norm == pytest.approx(float(norm))
    assert callback.watch.histogram("net.weight", step=2).total == 2 * 8
