"""lab.GradScaler beside torch.amp.GradScaler, and beside the rules that policies are."""

import copy
import io
import math
import pickle
from random import Random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import fp16lab.torch as lab
from fp16lab import _core


def one_weight():
    weight = torch.nn.Parameter(torch.ones(3))
    return weight, torch.optim.SGD([weight], lr=0.0)


def step(scaler, weight, optimizer, gradient):
    """An iteration whose unscaled gradient has this value in every element."""
    optimizer.zero_grad()
    scaler.scale((weight * torch.full((3,), float(gradient))).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize(
    "settings, overflow_rate, guard",
    [
        (
            {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 7},
            0.02,
            {},
        ),
        ({"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 3}, 0.02, {}),
        # Beyond the usable scales torch has none of our guard: up to where growth stops, and down to zero.
        (
            {"init_scale": 2.0**120, "growth_factor": 2.0**5, "backoff_factor": 0.9, "growth_interval": 1},
            0.15,
            {"finite_guard": 0},
        ),
        (
            {"init_scale": 2.0**-100, "growth_factor": 1.3, "backoff_factor": 0.5, "growth_interval": 9},
            0.15,
            {"finite_guard": 0},
        ),
    ],
)
def test_torch_policy_equals_torch_bit_for_bit_over_10000_random_steps(settings, overflow_rate, guard):
    ours = lab.GradScaler("torch", device="cpu", **settings, **guard)
    peer = torch.amp.GradScaler("cpu", **settings)
    mine, theirs = one_weight(), one_weight()
    random = torch.rand(10_000, generator=torch.Generator().manual_seed(5))
    scales = set()
    for value in random.tolist():
        often = not guard and peer.get_scale() > 2.0**20  # as in training: large scales overflow more often
        gradient = float("inf") if value < (0.3 if often else overflow_rate) else 2.0**-140
        step(ours, *mine, gradient)
        step(peer, *theirs, gradient)
        assert ours.get_scale() == peer.get_scale()
        assert ours._get_growth_tracker() == peer._get_growth_tracker()
        scales.add(ours.get_scale())
    assert len(scales) > 5 and (guard or 2.0**-120 < min(scales) < max(scales) < 2.0**120)
    plain = ours.state_dict()
    plain.pop("fp16lab", None)
    assert plain == peer.state_dict()


def outcome(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(20))
def test_torch_policy_equals_torch_in_programs_of_all_its_methods(seed):
    random = Random(seed)
    settings = {
        "init_scale": random.choice([65536.0, 1000.1, 0.001, 65535.9, 2.0**-140, 3e38, 1.0]),
        "growth_factor": random.choice([2.0, 1.0001, 8.0]),
        "backoff_factor": random.choice([0.5, 0.9, 0.1]),
        "growth_interval": random.choice([1, 2, 7, 2000]),
    }
    both = [lab.GradScaler("torch", device="cpu", **settings), torch.amp.GradScaler("cpu", **settings)]
    models = [one_weight(), one_weight()]
    for _ in range(150):
        number = random.choice([0.5, 2.0, 1.5, 3.0])
        interval, scale = random.randint(1, 9), random.choice([0.0, math.nan, math.inf, 1000.1, 2.0**-149, 8.0])
        gradient = random.choice([math.inf, 2.0**-9, 1.0, math.nan, 2.0**-9])
        program = random.choice(
            [
                lambda s, w, o: step(s, w, o, gradient),
                lambda s, w, o: step(s, w, o, gradient),
                lambda s, w, o: step(s, w, o, gradient),
                lambda s, w, o: s.update(),
                lambda s, w, o: s.update(scale),
                lambda s, w, o: s.update(torch.tensor(scale)),
                lambda s, w, o: s.update("8"),
                lambda s, w, o: s.unscale_(o),
                lambda s, w, o: s.step(o) and None,
                lambda s, w, o: s.set_growth_interval(interval),
                lambda s, w, o: s.set_growth_factor(1 + number),
                lambda s, w, o: s.set_backoff_factor(number / 4),
                lambda s, w, o: s.load_state_dict({**s.state_dict(), "_growth_tracker": interval}),
                lambda s, w, o: s.load_state_dict({**s.state_dict(), "scale": scale}),
                lambda s, w, o: s.load_state_dict({}),
                lambda s, w, o: str(s.scale([torch.ones(2), torch.ones(())])),
            ]
        )
        results = [outcome(lambda: program(s, *model)) for s, model in zip(both, models)]
        assert results[0] == results[1]
        assert str(both[0].state_dict()) == str(both[1].state_dict())


def test_an_update_that_is_refused_changes_nothing():
    scaler = lab.GradScaler("megatron", device="cpu", initial_scale=8.0)
    scaler.scale(torch.ones(()))
    for wrong in (0.0, math.nan, math.inf, -1.0, torch.tensor(0.0)):
        with pytest.raises(ValueError, match="a loss scale must be finite and above 0"):
            scaler.update(wrong)
        assert scaler.get_scale() == 8.0
    with pytest.raises(RuntimeError, match="shape"):  # torch's own
        scaler.update(torch.full((1,), 4.0))
    assert scaler.get_scale() == scaler._policy.scale == 8.0


def test_is_a_torch_scaler():
    scaler = lab.GradScaler(device="cpu")
    assert isinstance(scaler, torch.amp.GradScaler)
    assert scaler.policy == "torch" and scaler.get_scale() == 65536.0


@pytest.mark.parametrize(
    "name", sorted(name for name, row in _core.policies().items() if not row["per_layer"])
)
def test_every_policy_decides_as_the_policy_alone(name):
    scaler, alone = lab.GradScaler(name, device="cpu"), _core.Policy(name, {})
    weight, optimizer = one_weight()
    for i in range(60):
        gradient = float("nan") if i % 9 == 4 else 2.0 ** (i % 5 - 12)
        scaled = torch.full((3,), gradient) * scaler.get_scale()
        statistics = _core.Histogram()
        statistics._count(scaled, "f32", 1)
        stops = False
        try:
            step(scaler, weight, optimizer, gradient)
        except FloatingPointError as error:
            stops = True
            message = str(error)
        alone.update(gradient != gradient, weights=statistics if alone.wants_statistics else None)
        assert scaler.get_scale() == pytest.approx(alone.scale, rel=2**-23, abs=0)
        assert stops == (alone.stop is not None)
        if stops:
            assert message == alone.stop
            break


def test_fairseq_ends_the_training_at_its_minimum():
    scaler = lab.GradScaler("fairseq", device="cpu", initial_scale=2**-12, min_loss_scale=2**-13, tolerance=0)
    weight, optimizer = one_weight()
    with pytest.raises(FloatingPointError, match="scale"):
        for _ in range(4):
            step(scaler, weight, optimizer, float("inf"))


def test_statistics_are_of_the_scaled_gradients_before_unscaling():
    # The largest gradient is 2^-3: two binades of headroom below 2^16 are S = 2^17 at once, without an
    # overflow.
    scaler = lab.GradScaler("lost-mass", device="cpu", initial_scale=4)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler.scale((weight * torch.tensor([2.0**-3, 2.0**-30])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**17


def test_statistics_of_all_optimizers_and_of_16_bit_gradients_alone():
    wide, narrow = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizers = [torch.optim.SGD([wide], lr=0.0), torch.optim.SGD([narrow], lr=0.0)]
    scaler = lab.GradScaler("lost-mass", device="cpu", initial_scale=1)
    scaler.scale((wide * 2.0**40).sum() + (narrow * 2.0**-3).float().sum()).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    # BF16 ends 112 binades above FP16, and loses nothing here: the scale rests. As FP16 it would rise to
    # 2^17.
    assert scaler.get_scale() == 1.0


def scale_after(policy, *gradients, steps=3):
    """The scale after steps in which these scaled gradients come: (dtype, values) of each optimizer."""
    scaler = lab.GradScaler(policy, device="cpu")
    weights = [torch.nn.Parameter(torch.ones(len(values), dtype=dtype)) for dtype, values in gradients]
    optimizers = [torch.optim.SGD([weight], lr=0.0) for weight in weights]
    scaler.scale(torch.ones(()))  # makes the scale
    for _ in range(steps):
        for weight, optimizer, (dtype, values) in zip(weights, optimizers, gradients):
            weight.grad = torch.tensor(values, dtype=dtype)
            scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale()


@pytest.mark.parametrize("policy", ["lost-mass", "openseq2seq-logmax", "popart"])
def test_of_mixed_gradients_a_statistics_policy_sees_those_in_16_bits(policy):
    narrow, wide = (torch.bfloat16, [1.5 * 2.0**100] * 2), (torch.float32, [1.5 * 2.0**127] * 2)
    alone = scale_after(policy, narrow)
    assert scale_after(policy, narrow, wide) == scale_after(policy, wide, narrow) == alone
    assert scale_after(policy, narrow, (torch.bfloat16, wide[1])) != alone != scale_after(policy, wide)
    # Where none has 16 bits all are seen.
    assert scale_after(policy, wide, wide) == scale_after(policy, wide)


def test_clipping_accumulation_and_two_optimizers_skip_as_torch_does():
    def train(scaler):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        optimizers = [
            torch.optim.AdamW(model[0].parameters()),
            torch.optim.SGD(model[2].parameters(), lr=0.1),
        ]
        scales = []
        for i in range(40):
            for optimizer in optimizers:
                optimizer.zero_grad()
            for _ in range(3):
                loss = model(torch.randn(5, 4)).square().mean()
                scaler.scale(loss / 3).backward()
            if i % 11 == 6:
                scaler.scale(model(torch.randn(5, 4)).sum() * float("inf")).backward()
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, [parameter.detach().clone() for parameter in model.parameters()]

    settings = {"init_scale": 2.0**14, "growth_interval": 4}
    scales, weights = train(lab.GradScaler("torch", device="cpu", **settings))
    peer_scales, peer_weights = train(torch.amp.GradScaler("cpu", **settings))
    assert scales == peer_scales and any(b < a for a, b in zip(scales, scales[1:])) and 2.0**14 < max(scales)
    assert all(torch.equal(a, b) for a, b in zip(weights, peer_weights))


def test_fused_optimizers_that_unscale_themselves():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], fused=True)
    scaler = lab.GradScaler("lost-mass", device="cpu", initial_scale=4)
    step(scaler, weight, optimizer, 2.0**-3)
    assert scaler.get_scale() == 4.0  # nothing was lost
    assert not torch.equal(weight.detach(), torch.ones(3))
    step(scaler, weight, optimizer, float("inf"))
    assert scaler.get_scale() < 4.0


@pytest.mark.parametrize("name", ["torch", "megatron", "fairseq", "lost-mass", "popart", "keras3"])
def test_state_survives_torch_save(name):
    scaler = lab.GradScaler(name, device="cpu")
    weight, optimizer = one_weight()
    for i in range(23):
        step(scaler, weight, optimizer, float("inf") if i % 7 == 3 else 2.0**-9)
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    restored = lab.GradScaler(name, device="cpu")
    restored.load_state_dict(torch.load(file, weights_only=True))
    copies = [restored, copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))]
    for i in range(40):
        for each in (scaler, *copies):
            step(each, weight, optimizer, float("inf") if i % 13 == 2 else 2.0**-9)
        assert len({each.get_scale() for each in (scaler, *copies)}) == 1
        assert len({str(each.state_dict()) for each in (scaler, *copies)}) == 1


def test_a_checkpoint_of_torch_loads():
    peer = torch.amp.GradScaler("cpu", init_scale=2.0**11, growth_factor=4.0, growth_interval=5)
    weight, optimizer = one_weight()
    for _ in range(3):
        step(peer, weight, optimizer, 1.0)
    ours = lab.GradScaler("torch", device="cpu")
    ours.load_state_dict(peer.state_dict())
    for _ in range(9):
        step(ours, weight, optimizer, 1.0)
        step(peer, weight, optimizer, 1.0)
        assert (ours.get_scale(), ours._get_growth_tracker()) == (
            peer.get_scale(),
            peer._get_growth_tracker(),
        )
    back = torch.amp.GradScaler("cpu")
    back.load_state_dict(ours.state_dict())
    assert back.get_scale() == ours.get_scale()
    for name in ("megatron", "keras3"):  # an FP32 and an FP64 scale
        other = lab.GradScaler(name, device="cpu")
        other.load_state_dict(peer.state_dict())
        assert other.get_scale() == other._policy.scale == peer.get_scale()


def test_a_new_scale_is_what_the_policy_goes_on_from():
    for name in ("torch", "megatron", "keras3", "lost-mass"):
        scaler = lab.GradScaler(name, device="cpu")
        weight, optimizer = one_weight()
        step(scaler, weight, optimizer, 1.0)
        scaler.update(new_scale=64.0)
        assert scaler.get_scale() == 64.0
        for _ in range(2):
            step(scaler, weight, optimizer, float("inf"))
        assert 0 < scaler.get_scale() < 64.0


def test_settings_change_as_in_torch():
    scaler = lab.GradScaler("torch", device="cpu", init_scale=8.0)
    scaler.set_growth_interval(2)
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    weight, optimizer = one_weight()
    for expected in (8.0, 32.0):
        step(scaler, weight, optimizer, 1.0)
        assert scaler.get_scale() == expected
    step(scaler, weight, optimizer, float("inf"))
    assert scaler.get_scale() == 8.0
    assert (scaler.get_growth_interval(), scaler.get_growth_factor(), scaler.get_backoff_factor()) == (
        2,
        4.0,
        0.25,
    )


def test_disabled_it_does_nothing():
    scaler = lab.GradScaler("megatron", device="cpu", enabled=False)
    weight, optimizer = one_weight()
    step(scaler, weight, optimizer, 1.0)
    assert scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    assert torch.equal(weight.grad, torch.ones(3))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("ada-loss",), "policy 'ada-loss' moves scales of layers"),
        (("layerwise",), "policy 'layerwise' moves scales of layers"),
        (("groups",), "policy 'groups' moves scales of layers"),
        (("megatrn",), "megatron"),
        (("cpu",), 'lab.GradScaler\\("torch", device="cpu"\\)'),
    ],
)
def test_refuses_by_name(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        lab.GradScaler(*arguments)
    assert "\n" not in str(error.value)


def test_refuses_parameters_states_and_calls_that_do_not_fit():
    with pytest.raises(ValueError, match="policy torch has no parameter 'hysteresis'"):
        lab.GradScaler("torch", hysteresis=2)
    with pytest.raises(AssertionError, match="growth factor"):  # torch's own
        lab.GradScaler("torch", growth_factor=0.5)
    with pytest.raises(ValueError, match="growth_factor"):
        lab.GradScaler("megatron", growth_factor=0.5)
    with pytest.raises(TypeError, match="growth_interval is '3'; a number is needed"):
        lab.GradScaler("megatron", growth_interval="3")
    for policy in ("torch", "megatron"):
        with pytest.raises(ValueError, match="init_scale and initial_scale are one parameter"):
            lab.GradScaler(policy, init_scale=2.0, initial_scale=4.0)
        with pytest.raises(TypeError, match="process_group is of int; a torch.distributed.ProcessGroup"):
            lab.GradScaler(policy, process_group=3)
    with pytest.raises(ValueError, match="has no parameter 'backoff_factor'"):
        lab.GradScaler("lost-mass", device="cpu").set_backoff_factor(0.5)
    with pytest.raises(ValueError, match="the state is of policy 'megatron', this scaler's is 'torch'"):
        lab.GradScaler("torch", device="cpu").load_state_dict(
            lab.GradScaler("megatron", device="cpu").state_dict()
        )
    scaler = lab.GradScaler("megatron", device="cpu")
    state = scaler.state_dict()
    for own, told in (
        ({"policy": "megatron"}, "it has no settings, state$"),
        (3, "it has no policy, settings, state$"),
        ({**state["fp16lab"], "state": "zz"}, "non-hexadecimal"),
        ({**state["fp16lab"], "state": "00"}, "this is no state of a loss-scale policy"),
        ({**state["fp16lab"], "settings": {"growth": 2.0}}, "no parameter 'growth'"),
    ):
        with pytest.raises(ValueError, match=f"^the state's entry 'fp16lab' is damaged: .*{told}"):
            scaler.load_state_dict({**state, "fp16lab": own})
    assert scaler.state_dict() == state
    with pytest.raises(AssertionError, match="_scale is None"):
        lab.GradScaler("torch", device="cpu").update()
    scaler = lab.GradScaler("torch", device="cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
