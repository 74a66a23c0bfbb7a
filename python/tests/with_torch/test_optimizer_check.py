"""lab.check_optimizer: boundaries known from the formats, and that a training does not notice it."""

import copy
import inspect

import pytest
import torch
from torch import nn

import fp16lab.torch as lab
from fp16lab.torch.optimizer_check import OPTAX


def weights(*shape, dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Parameter(torch.randn(*shape).to(dtype))


def told_of(told, what):
    return [(row["where"], row["outcome"]) for row in told.findings if row["what"] == what]


# A step is 2^-6 of the gradient. Weights are 1.5 * 2^k: at the tie of half their spacing the even weight stays.
@pytest.mark.parametrize("dtype, precision", [("f16", 11), ("bf16", 8), ("f32", 24)])
def test_weights_that_do_not_move(dtype, precision):
    told = lab.check_optimizer(torch.optim.SGD([weights(3)], lr=2**-6), dtype, steps=10)
    assert told_of(told, "weight") == [(f"2^{precision - 6} and above", "no update")]


def test_gradients_that_do_not_move_a_weight():
    told = lab.check_optimizer(torch.optim.SGD([weights(3)], lr=2**-6), torch.float16, steps=10)
    assert told_of(told, "gradient") == [("2^-24 to 2^-19", "no update")]  # 2^-25 is a tie, with 0
    rescued = lab.check_optimizer(torch.optim.SGD([weights(3)], lr=1.0), "f16", steps=10)
    assert told_of(rescued, "gradient") == [("2^12 and above", "the update is Inf or NaN")]  # 20 * 2^12 > 65504


def test_an_epsilon_that_f16_rounds_away():
    outcome = "the update is Inf or NaN"
    told = lab.check_optimizer(torch.optim.AdamW([weights(3)]), "f16", steps=10)
    assert told_of(told, "gradient")[0] == ("0", outcome)
    assert told_of(told, "eps = 1e-08") == [("", "0 where nothing else is in the denominator")]
    kept = lab.check_optimizer(torch.optim.AdamW([weights(3)], eps=1e-4), "f16", steps=10)
    assert outcome not in [row["outcome"] for row in kept.findings]
    # g^2 is lost long before g is, and then eps alone divides: 2^-8 / 1e-4, where 1 is right.
    (where, words), *_ = [row for row in told_of(kept, "gradient") if "too large" in row[1]]
    assert where.endswith("to 2^-8") and float(words.split()[-2]) == pytest.approx(2**-8 / 1e-4, rel=0.05)
    assert ("0", outcome) not in told_of(lab.check_optimizer(torch.optim.AdamW([weights(3)]), "bf16", steps=10), "gradient")


def test_a_second_moment_that_bf16_never_lets_go():
    """0.999 v rounds back to v, and 0.001 is less than half of the spacing from 1/2 on."""
    told = lab.check_optimizer(torch.optim.Adam([weights(3)]), "bf16")
    assert told_of(told, "exp_avg_sq") == [
        ("after 1000 steps with gradient 1", "0.5, where it should be 0.632"),
        ("after 1000 steps with gradient 1, 3000 with 0", "0.5, where it should be 0.0314"),
    ]
    assert told_of(lab.check_optimizer(torch.optim.Adam([weights(3)], betas=(0.9, 0.9)), "bf16", steps=100), "exp_avg_sq") == []


def test_the_next_step_of_real_weights():
    parameter = nn.Parameter(torch.tensor([64.0, 32.0, 1.0, 1.0], dtype=torch.float16))
    parameter.grad = torch.tensor([1.0, 1.0, 2**-14, 0.0], dtype=torch.float16)
    (row,) = lab.check_optimizer(torch.optim.SGD([parameter], lr=2**-6), steps=1).weights
    counts = {"already": 0, "unmoved": 2, "too_large": 0, "non_finite": 0, "lost": 0}
    assert row == {"name": "group 0, 0", "values": 4, **counts}
    # Adam in FP16: no eps is left for the weight without a gradient, and the square of 2^-14 is zero.
    (row,) = lab.check_optimizer(torch.optim.Adam([parameter]), steps=1).weights
    assert (row["non_finite"], row["lost"]) == (2, 1)
    parameter.data[3] = float("nan")
    (row,) = lab.check_optimizer(torch.optim.Adam([parameter], eps=1e-4), steps=1).weights
    assert (row["already"], row["non_finite"]) == (1, 0)


def test_weight_decay_that_bf16_rounds_away():
    told = lab.check_optimizer(torch.optim.SGD([weights(3)], lr=0.5, weight_decay=2**-12), "bf16", steps=10)
    assert told_of(told, "weight, gradient 0") == [("2^-79 and above", "no update")]
    told = lab.check_optimizer(torch.optim.SGD([weights(3)], lr=0.5, weight_decay=2**-4), "bf16", steps=10)
    assert told_of(told, "weight, gradient 0") == []


def test_what_was_not_tried_is_said():
    class Kept(torch.optim.Optimizer):
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                state["m"] = state.get("m", torch.zeros(1).bfloat16()) + parameter.grad.bfloat16()
                parameter.data -= state["m"]

    told = lab.check_optimizer(Kept([weights(3)], {"lr": 0.0}), steps=10)
    assert told_of(told, "m") == [("", "is kept in bf16, beside FP64 too: what it loses is not seen here")]
    assert told_of(told, "weight")[0] == ("", "left out: the learning rate is 0 now")
    assert "no parameter has a gradient: the next step was not tried" in str(told)


def test_weights_of_other_optimizers_have_their_step():
    muon = torch.optim.Muon([weights(8, 16)], lr=1e-3)
    muon.param_groups[0]["params"][0].grad = torch.ones(8, 16)
    told = lab.check_optimizer(muon, "bf16")
    assert [row["what"] for row in told.findings] == ["probes"]
    assert told.weights[0]["values"] == 128 and 0 < told.weights[0]["unmoved"] < 128


def test_a_training_does_not_notice():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "lr": 1e-2}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    held = copy.deepcopy((optimizer.state_dict(), model.state_dict(), model.weight.grad, torch.get_rng_state()))
    told = lab.check_optimizer(optimizer, "f16", steps=3)
    now = (optimizer.state_dict(), model.state_dict(), model.weight.grad, torch.get_rng_state())
    for a, b in zip(torch.utils._pytree.tree_leaves(held), torch.utils._pytree.tree_leaves(now), strict=True):
        assert torch.equal(a, b) if torch.is_tensor(a) else a == b
    assert calls == [1, 1]
    assert {row["group"] for row in told.findings} == {0, 1} and [row["values"] for row in told.weights] == [8, 2]
    assert "Inf or NaN" in str(told) and "group 1, 0" in str(told)


def test_fp32_weights_that_optimizers_keep_are_well():
    told = lab.check_optimizer(torch.optim.Adam([weights(3)]), steps=200)
    assert {row["what"] for row in told.findings} == {"weight"} and told.optimizer == "Adam in f32"


def test_what_cannot_be_is_one_line():
    adam = torch.optim.Adam([weights(3)])
    for arguments, words in (
        ((adam, "e4m3"), "dtype is 'e4m3'; 'f16', 'bf16', 'f32'"),
        ((torch.optim.LBFGS([weights(3)]),), "LBFGS takes no plain step: .*closure"),
        (("optax.adm", "f16"), "unknown optimizer 'optax.adm'; an optimizer of torch, or .*optax.adamw"),
        (("optax.adam",), "only a name: dtype is needed"),
    ):
        with pytest.raises(ValueError, match=f"check_optimizer: .*{words}"):
            lab.check_optimizer(*arguments)
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 1)
    for given, words in ((nn.Linear(1, 1), "of Linear; an optimizer of torch"), (scheduler, "StepLR; .*give its .optimizer")):
        with pytest.raises(TypeError, match=f"check_optimizer: optimizer is {words}" if "of " in words else words):
            lab.check_optimizer(given)
    with pytest.raises(ValueError, match="b2 is 'x'; a number is needed"):
        lab.check_optimizer("optax.adam", "f16", b2="x")
    with pytest.raises(ValueError, match="steps is 0; 1 or more"):
        lab.check_optimizer(adam, steps=0)
    with pytest.raises(ValueError, match="eps belongs to a name of optax's"):
        lab.check_optimizer(adam, eps=1e-8)
    with pytest.raises(ValueError, match="optax.adam has no rho; it has b1, b2"):
        lab.check_optimizer("optax.adam", "f16", rho=1.0)


def test_optax_by_table():
    assert told_of(lab.check_optimizer("optax.adamw", "f16"), "eps = 1e-08") == [("f16", "0: nothing is added")]
    assert lab.check_optimizer("optax.adamw", "f16", eps=1e-6).findings == []
    assert lab.check_optimizer("optax.adam", "f32").findings == []
    told = lab.check_optimizer("optax.lion", "bf16")
    assert told_of(told, "b2 = 0.99") == [("bf16", "0.988281: it forgets 0.0117 and adds 0.01")]
    optax = pytest.importorskip("optax")
    for name, constants in OPTAX.items():
        defaults = inspect.signature(getattr(optax, name.removeprefix("optax."))).parameters
        assert constants == {key: defaults[key].default for key in constants}, name
    jnp = pytest.importorskip("jax.numpy")
    for dtype, expected in ((jnp.bfloat16, [0, 0.5]), (jnp.float16, [float("nan"), 0])):
        adam = optax.adam(1e-3)
        state = adam.init(jnp.zeros(1, dtype))
        for gradient in [1] * 600 + [0] * 600 if dtype == jnp.bfloat16 else [0]:
            update, state = adam.update(jnp.full(1, gradient, dtype), state)
        assert float(update[0]) == pytest.approx(expected[0], nan_ok=True) and float(state[0].nu[0]) == expected[1]
