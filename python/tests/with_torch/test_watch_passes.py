"""What lab.watch counts is the step: no teacher's pass, no backward pass that raised; and what it leaves alone."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab

BOTH = ("gradients", "activations")


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("out of memory")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.between = lambda x: x

    def forward(self, x):
        return self.last(self.between(self.first(x).relu()))


@pytest.fixture
def network():
    return Network()


X = torch.linspace(-1, 1, 64).reshape(16, 4)


def step(network):
    network(X).square().mean().backward()


def aborted(network, times=1):
    """In the middle, so that some gradients have come."""
    network.between = Raises.apply
    for _ in range(times):
        with pytest.raises(RuntimeError):
            step(network)
    network.between = lambda x: x
    step(network)


def aborted_twice(network):
    aborted(network, times=2)


def raises(loss):
    with pytest.raises(RuntimeError):
        loss.backward()


def aborted_in_the_loss(network):
    raises(Raises.apply(network(X)).square().mean())
    step(network)


def aborted_last(network):
    step(network)
    raises(Raises.apply(network(X)).square().mean())


def aborted_between(network):
    """Another pass raises, in the network and in parts of it, while this one waits."""
    pending = network(X).square().mean()
    network.between = Raises.apply
    raises(network(X).square().mean())
    raises(network.last(Raises.apply(network.first(X).relu())).square().mean())
    network.between = lambda x: x
    pending.backward()


def tried_without_a_backward_pass(network):
    network(X)
    step(network)


def taught(network):
    with torch.no_grad():
        network(X)
    step(network)
    with torch.inference_mode():
        network(X)


def checkpointed(reentrant):
    def run(network):
        network.between = lambda x: x
        hidden = checkpoint(lambda x: network.first(x).relu(), X.clone().requires_grad_(), use_reentrant=reentrant)
        network.last(hidden).square().mean().backward()

    return run


def totals(network, body, tensors):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    with lab.watch(network, every=1, optimizer=optimizer, tensors=tensors) as w:
        body(network)
        optimizer.step()
    counted = {(row.tensor, row.observed): row.before.total for row in w.recording.counts}
    return {key: counted[key] for key in counted if key[0] not in ("loss.prediction", "first.input")}


@pytest.mark.parametrize("tensors", [BOTH, ("gradients",), ("activations",)])
@pytest.mark.parametrize(
    "body",
    [aborted, aborted_twice, aborted_in_the_loss, aborted_last, aborted_between]
    + [tried_without_a_backward_pass, taught, checkpointed(False), checkpointed(True)],
    ids=lambda body: body.__name__,
)
def test_the_step_counts_once(network, body, tensors):
    want = totals(copy.deepcopy(network), step, tensors)
    assert totals(network, body, tensors) == want and len(want) >= 3


def test_frozen_parts_and_calls_of_parts_count(network):
    """A module whose tensors have no gradient belongs to the one that is called next."""
    network.first.requires_grad_(False)

    def in_parts(network):
        raises(Raises.apply(network.last(network.first(X).relu())).square().mean())
        network.last(network.first(X).relu()).square().mean().backward()

    want = totals(copy.deepcopy(network), step, ("activations",))
    assert totals(network, in_parts, ("activations",)) == want and len(want) == 3


def test_without_any_backward_pass_all_forward_passes_count(network):
    want = totals(copy.deepcopy(network), step, ("activations",))
    assert totals(network, lambda network: network(X), ("activations",)) == want


def test_a_forward_pass_of_an_earlier_step_counts_in_no_other(network):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    with lab.watch(network, every=1, optimizer=optimizer, tensors=["activations"]) as w:
        late = network.first(X).sum()
        step(network)
        optimizer.step()
        late.backward()
        step(network)
        optimizer.step()
    assert [w.histogram("first.output", "activations", step=number).total for number in (1, 2)] == [128, 128]


def test_transformations_of_torch_func_are_counted(network):
    want = totals(copy.deepcopy(network), step, ("activations",))
    parameters = dict(network.named_parameters())

    def loss(values):
        return torch.func.functional_call(network, values, (X,)).square().mean()

    assert totals(network, lambda _: torch.func.grad(loss)(parameters), ("activations",)) == want
    fast = {name: value * 1 for name, value in parameters.items()}  # as MAML's: their gradients go to the parameters
    assert totals(network, lambda _: loss(fast).backward(), BOTH) == totals(network, step, BOTH)
    stacked = {name: torch.stack([value] * 3) for name, value in parameters.items()}
    three = totals(network, lambda _: torch.func.vmap(torch.func.grad(loss))(stacked), ("activations",))
    assert three["last.output", "activations"] == 3 * want["last.output", "activations"]


def test_micro_batches_add_up(network):
    want = totals(copy.deepcopy(network), step, BOTH)
    both = totals(network, lambda each: (step(each), step(each)), BOTH)
    assert both == {key: 2 * total for key, total in want.items()}


@pytest.mark.parametrize("make", [lab.GradScaler, torch.amp.GradScaler])
def test_models_optimizers_and_scalers_are_pickled_while_they_are_watched(network, make):
    scaler = make(device="cpu")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with lab.watch(network, every=1, optimizer=optimizer, scaler=scaler, tensors=BOTH) as w:
        file = io.BytesIO()
        torch.save({"model": network.first, "scaler": scaler, "optimizer": optimizer}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        others = [loaded["model"], copy.deepcopy(network.first), pickle.loads(pickle.dumps(network.first))]
        for other in others:
            other(X).sum().backward()
        scaled = [loaded["scaler"], copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))]
        for each in scaled:
            each.scale(torch.ones(()))
            assert each.get_scale() == 65536.0
        scaler.scale(network(X).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    rows = {row.tensor: row.before.total for row in w.recording.counts if row.observed == "gradients"}
    assert rows["first.weight"] == 32 and len(w.recording.steps) == 1  # of the network alone
    assert "scale" not in scaler.__dict__


def test_watches_of_one_scaler_end_in_any_order(network):
    scaler, optimizer = lab.GradScaler(device="cpu"), torch.optim.SGD(network.parameters(), lr=0.1)
    both = [lab.watch(network, every=1, optimizer=optimizer, scaler=scaler) for _ in range(2)]
    for w in both:
        w.__enter__()
    for w in both:
        scaler.scale(network(X).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        w.__exit__(None)
    assert [len(w.recording.steps) for w in both] == [1, 2]
    assert not {"scale", "unscale_", "update"} & set(scaler.__dict__)


def test_weights_count_after_a_backward_pass_that_raised(network):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network.between = Raises.apply
    with lab.watch(network, every=1, optimizer=optimizer, tensors=["gradients", "weights"]) as w:
        with pytest.raises(RuntimeError):
            step(network)
        optimizer.step()
    assert {row.observed for row in w.recording.counts} == {"weights"}


def test_a_scope_that_cannot_open_leaves_everything_as_it_was(network, monkeypatch):
    state = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    scope = lab.emulate("hopper")

    def refuse(*_):
        raise RuntimeError("no stance")

    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "set_stance", refuse)
        with pytest.raises(RuntimeError, match="no stance"):
            scope.__enter__()
    assert state == (torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled())
    with scope:
        pass
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for name in ("register_step_pre_hook", "register_step_post_hook"):
        with monkeypatch.context() as patch:
            patch.setattr(optimizer, name, refuse)
            with pytest.raises(RuntimeError, match="no stance"):
                lab.watch(network, optimizer=optimizer, tensors=BOTH).__enter__()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    assert not any(parameter._backward_hooks for parameter in network.parameters())
    assert not optimizer._optimizer_step_pre_hooks


def test_emulate_in_a_compiled_function_is_refused():
    state = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()

    @torch.compile(backend="eager")
    def compiled(x):
        with lab.emulate("hopper"):
            return x @ x

    with pytest.raises(Exception, match="compile|open it around the call"):
        compiled(torch.ones(2, 2))
    assert state == (torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled())


@pytest.mark.parametrize("scale", [float("inf"), 3.4e38, 2.0**128, 2.0**-20, 2.0**-30])
def test_explain_overflow_ends_for_every_scale(network, scale):
    explained = lab.explain_overflow(network, lambda: network(X).square().mean(), scale=scale)
    assert explained.overflowed == (scale > 3.401e38)
    assert not explained.overflowed or 2.0**100 < explained.finite_scale < 2.0**128
