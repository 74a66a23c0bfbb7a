"""lab.explain_overflow on steps whose culprit is known."""

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab


class Net(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 16), nn.Linear(16, 24), nn.Linear(24, 5)
        self.checkpointed = checkpointed

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = checkpoint(self.fc2, x, use_reentrant=False) if self.checkpointed else self.fc2(x)
        return self.fc3(torch.relu(x))


def step_of(model, x=None, dtype=torch.float16):
    x = torch.randn(8, 6) if x is None else x
    y = torch.randint(5, (8,))

    def step():
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            return nn.functional.cross_entropy(model(x), y)

    return step


def all_finite(model, step, scale):
    model.zero_grad()
    (step() * scale).backward()
    return all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_nothing_overflowed():
    model = Net()
    told = lab.explain_overflow(model, step_of(model), scale=2.0**10)
    assert not told.overflowed and told.culprits == [] and str(told) == "nothing overflowed at S = 2^10"


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_scale_too_high_and_the_one_that_clears_the_step(checkpointed):
    model = Net(checkpointed)
    step = step_of(model)
    told = lab.explain_overflow(model, step, scale=2.0**22)
    assert (
        told.overflowed and told.parameters[0].startswith("fc3.") and told.parameters[-1].startswith("fc1.")
    )
    assert all_finite(model, step, told.finite_scale) and not all_finite(model, step, 2 * told.finite_scale)
    [culprit] = told.culprits
    assert (culprit["pass"], culprit["cause"], culprit["verdict"]) == ("backward", "operation", "lower_scale")
    assert culprit["reached"] and culprit["dtype"] == "f16" and math.isinf(culprit["value"])
    assert 65520 <= abs(culprit["wide_value"]) < math.inf
    text, cleared = str(told), f"2^{int(math.log2(told.finite_scale))}"
    assert text.startswith("at loss scale 2^22, which was asked about, a gradient was not finite; at ")
    assert text.splitlines()[0].endswith(f" at {cleared} all are (tried)")
    assert text.count("2^") == 2, "the scale that was asked about, and the one that cleared the step"
    assert culprit["tensor"] == "fc3.output" and "the backward of cast gave fc3.output (8, 5)" in text
    assert f"S = {cleared} makes every gradient of this step finite" in culprit["advice"]


def test_the_layer_parameter_and_operation_of_a_backward_overflow():
    model = Net()
    with torch.no_grad():
        model.fc3.weight.mul_(2.0**12)  # its own gradient is small, that of its input large
        model.fc2.weight.mul_(2.0**-12)
        model.fc2.bias.mul_(2.0**-12)
    told = lab.explain_overflow(model, step_of(model), scale=2.0**10)
    [culprit] = told.culprits
    assert (culprit["layer"], culprit["tensor"], culprit["op"], culprit["part"]) == (
        "fc3",
        "fc3.input",
        "addmm",
        "mm",
    )
    assert [operand["name"] for operand in culprit["operands"]] == ["gradient", "fc3.weight"]
    assert told.parameters[0].startswith("fc2.") and not any(
        name.startswith("fc3") for name in told.parameters
    )
    assert "the backward of addmm (mm) in fc3 gave fc3.input" in str(told)


@pytest.mark.parametrize(
    ("loss", "tensor"),
    [
        (lambda model, x: model(x).view(4, 10).float().sum(), "fc3.output"),  # seen through a view
        (lambda model, x: (torch.relu(model(x)).float() * 2).sum(), "output of relu"),
        (lambda model, x: (torch.ones(5, 5).half() * model(x)[:5]).float().sum(), "output of mul"),
        (lambda model, x: model(x).sum(), "output of sum"),
        (lambda model, x: model.fc2.weight.float().sum(), "fc2.weight"),
    ],
)
def test_a_gradient_outside_of_modules_is_named_by_what_made_its_value(loss, tensor):
    model = Net().half()

    def step():
        with torch.autocast("cpu", torch.float16):
            return loss(model, torch.ones(8, 6)).float()

    culprit = lab.explain_overflow(model, step, scale=2.0**20).culprits[-1]
    assert (culprit["pass"], culprit["layer"], culprit["tensor"]) == ("backward", "", tensor)


def test_a_weight_gradient_that_overflows_is_named():
    model = nn.Sequential(nn.Linear(4, 3))

    def step():
        with torch.autocast("cpu", torch.float16):
            return model(torch.full((2, 4), 3000.0)).float().sum()

    told = lab.explain_overflow(model, step, scale=2.0**10)
    assert told.culprits[-1]["tensor"] == "0.weight" and told.parameters == ["0.weight"]


def test_a_forward_overflow_names_the_layer_and_its_value_in_fp32():
    model = Net()
    with torch.no_grad():
        model.fc1.weight.mul_(100)
        model.fc2.weight.mul_(1e4)
    x = torch.randn(8, 6)
    told = lab.explain_overflow(model, step_of(model, x), scale=2.0**10)
    culprit = told.culprits[0]
    assert (culprit["pass"], culprit["layer"], culprit["tensor"], culprit["op"]) == (
        "forward",
        "fc2",
        "fc2.output",
        "addmm",
    )
    assert culprit["verdict"] == "fp32_cast" and culprit["reached"] and told.finite_scale is None
    assert str(told).startswith("at loss scale 2^10, which was asked about, the loss was not finite; no")
    halves = [t.half().double() for t in (model.fc2.weight, model.fc2.bias)]
    hidden = torch.relu(
        nn.functional.linear(x.half(), model.fc1.weight.half(), model.fc1.bias.half())
    ).double()
    exact = nn.functional.linear(hidden, *halves).reshape(-1)
    assert culprit["wide_value"] == pytest.approx(float(exact.detach()[culprit["element"]]), rel=1e-5)
    assert culprit["nonfinite"] == int((exact.abs() >= 65520).sum())
    assert "torch.autocast(\"cpu\", enabled=False) around fc2" in str(told) and "amp." not in str(told)
    tried = "FP32 for fc2 and fc3 (tried: the loss is finite then, a gradient is not"
    assert culprit["advice"].startswith(tried)


def test_data_parameters_and_the_scale_itself():
    model = Net()
    x = torch.randn(8, 6)
    x[2, 3] = math.nan
    culprit = lab.explain_overflow(model, step_of(model, x)).culprits[0]
    assert (culprit["cause"], culprit["tensor"], culprit["element"], culprit["verdict"]) == (
        "data",
        "inputs",
        2 * 6 + 3,
        "data",
    )
    with torch.no_grad():
        model.fc2.bias[7] = math.inf
    culprit = lab.explain_overflow(model, step_of(model)).culprits[0]
    assert (culprit["cause"], culprit["tensor"], culprit["element"]) == ("parameter", "fc2.bias", 7)
    model = Net()
    told = lab.explain_overflow(model, lambda: 1e6 * step_of(model, dtype=None)(), scale=2.0**127)
    assert (
        told.culprits[-1]["cause"] == "loss_scale"
        and told.finite_scale == 2.0 ** round(math.log2(told.finite_scale)) < 2.0**127
    )


def test_no_scale_helps_where_the_gradient_itself_is_none():
    weight = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(weight.weight)
    told = lab.explain_overflow(
        weight, lambda: weight(torch.ones(1, 1)).sqrt().sum() + weight.weight.sum(), scale=4.0
    )
    assert told.finite_scale == 0.0 and told.culprits[-1]["op"] == "sqrt"
    assert told.culprits[-1]["verdict"] == "model"
    assert "the model: Inf in FP32 too (the step was run in FP32)" in str(told)
    assert "nor at any lower one down to 2^-24 (tried)" in str(told)


class Between(nn.Module):
    """A function between two layers, of scores that are all equal."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function, self.last = nn.Linear(8, 8), function, nn.Linear(8, 3)
        nn.init.constant_(self.first.weight, 0.125)
        nn.init.zeros_(self.first.bias)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def equal_scores(model, low=True):
    def step():
        with torch.autocast("cpu", torch.float16, enabled=low):
            return nn.functional.cross_entropy(model(torch.full((4, 8), 0.5)), torch.tensor([0, 1, 2, 0]))

    return step


def min_max(x, epsilon=1e-8):
    low, high = x.min(-1, keepdim=True).values, x.max(-1, keepdim=True).values
    return (x - low) / (high - low + epsilon)


def centred(x):
    return x - x.mean(-1, keepdim=True)


def variance(x):
    return centred(x).square().mean(-1, keepdim=True)


#: function, operation that rounds to zero, of which constant, and what is then done with the zero
ROUNDED = {
    "0/0": (min_max, "add", "1e-08", "div then divides by it"),
    "log 0": (lambda x: 1e-3 * (x - x + 1e-8).log(), "add", "1e-08", "log then takes its logarithm"),
    "1/0": (lambda x: 1e-9 / (x - x + 1e-8), "add", "1e-08", "reciprocal then divides by it"),
    "rsqrt 0": (lambda x: 1e-4 * (x - x + 1e-8).rsqrt(), "add", "1e-08", "rsqrt then divides by its root"),
    "sqrt of a variance": (
        lambda x: x + (variance(x) + 1e-8).sqrt(),
        "add",
        "1e-08",
        "the backward of sqrt then divides by it",
    ),
    "layer norm by hand": (
        lambda x: centred(x) / (variance(x) + 1e-8).sqrt(),
        "add",
        "1e-08",
        "div then divides by it",
    ),
    "F.normalize": (lambda x: nn.functional.normalize(x - x), "clamp_min", "1e-12", "div then divides by it"),
    "in place": (lambda x: 1e-9 / (x - x).add_(1e-8), "add_", "1e-08", "reciprocal then divides by it"),
    "products": (
        lambda x: 1e-9 / ((1e-4 * x) * (1e-4 * x)),
        "mul",
        "values up to 2.5e-09",
        "reciprocal then divides by it",
    ),
}


@pytest.mark.parametrize("shape", ROUNDED)
def test_what_16_bits_rounded_to_zero_is_named_and_no_model_is_accused(shape):
    function, op, constant, use = ROUNDED[shape]
    model = Between(function)
    assert math.isfinite(float(equal_scores(model, low=False)().detach()))
    told = lab.explain_overflow(model, equal_scores(model))
    text = str(told)
    assert told.overflowed and "the model" not in text and "already" not in text
    assert f"{op} rounded {constant} to zero (FP16's smallest number is 6e-08), and {use}: keep this" in text
    assert told.culprits[0]["verdict"] == "fp32_cast" and told.culprits[0]["reached"]
    assert ("use 1e-4 or more instead of" in text) == constant.startswith("1e")


@pytest.mark.parametrize("checkpointed", [False, True])
def test_what_the_advice_about_a_zero_says_of_the_step_is_so(checkpointed):
    models = [Between(lambda x, epsilon=epsilon: min_max(x, epsilon)) for epsilon in (1e-8, 1e-4)]
    models[1].load_state_dict(models[0].state_dict())
    steps = []
    for model in models:
        inner = model.forward
        if checkpointed:
            model.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)
        steps.append(equal_scores(model))
    text = str(lab.explain_overflow(models[0], steps[0]))
    assert "instead of 1e-08 (tried: the loss and every gradient are finite then)" in text
    assert all_finite(models[1], steps[1], 1.0)
    assert text.splitlines()[2].endswith("it comes of the same zero as the one of the forward pass (tried)")


def test_zero_is_the_models_only_where_the_step_in_fp32_has_it_too():
    model = Between(lambda x: min_max(x, 0.0))
    told = lab.explain_overflow(model, equal_scores(model))
    assert told.culprits[0]["verdict"] == "model"
    assert told.culprits[0]["advice"] == "the model: NaN in FP32 too (the step was run in FP32)"
    with torch.no_grad():  # scores that only FP32 separates
        model.first.weight.add_(1e-6 * torch.randn(8, 8))
    told = lab.explain_overflow(model, equal_scores(model))
    assert told.culprits[0]["verdict"] == "fp32_cast"
    assert told.culprits[0]["advice"].startswith("16 bits rounded what leads here: keep this operation and ")
    with torch.autocast("cpu", torch.float16):  # which keeps the casts of weights until it ends
        equal_scores(model)()
        again = lab.explain_overflow(model, equal_scores(model))
    assert again.culprits[0]["advice"] == told.culprits[0]["advice"]


def test_a_model_of_halves_is_run_in_fp32_and_is_afterwards_the_same():
    model = Between(min_max).half()
    weights = [(p, p.data_ptr(), p.detach().clone()) for p in model.parameters()]

    def step():
        scores = model(torch.full((4, 8), 0.5).half()).float()
        return nn.functional.cross_entropy(scores, torch.zeros(4).long())

    text = str(lab.explain_overflow(model, step))
    assert "add rounded 1e-08 to zero" in text and "all of the step in FP32 is finite" not in text
    for parameter, place, value in weights:
        assert parameter.dtype == torch.float16 and parameter.data_ptr() == place and parameter.grad is None
        assert torch.equal(parameter, value)


@pytest.mark.parametrize("halves", [False, True])
def test_tries_leave_no_trace_also_inside_of_the_users_autocast(halves):
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.2), Between(min_max))
    if halves:
        model.half()
    x = torch.full((4, 8), 0.5, dtype=torch.float16 if halves else torch.float32)
    state = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    seen = []

    def step():
        seen.append(model(x))
        return seen[-1].float().sum()

    with torch.autocast("cpu", torch.float16):
        random = torch.get_rng_state()
        assert "add in 2 rounded 1e-08 to zero" in str(lab.explain_overflow(model, step))
        assert torch.equal(torch.get_rng_state(), random)
        assert {out.dtype for out in seen} == {torch.float16, torch.float32}, "some were done in FP32"
        for name, value in model.state_dict().items():
            assert value.data_ptr() == state[name][0] and torch.equal(value, state[name][1])
        assert model(x).dtype == torch.float16, "no cast of a try is kept by autocast"
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_that_cannot_be_run_in_fp32_says_why():
    model = Between(lambda x: min_max(x, 0.0))

    def step():
        with torch.autocast("cpu", torch.float16):
            out = model(torch.full((4, 8), 0.5))
        assert out.dtype == torch.float16, "halves are what comes next"
        return out.float().sum()

    [advice] = {culprit["advice"] for culprit in lab.explain_overflow(model, step).culprits}
    assert advice == (
        "NaN also when computed in FP32 of these operands; "
        "the step was not tried in FP32, because halves are what comes next"
    )


def test_fp32_for_a_layer_is_tried_until_the_loss_is_finite():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 5))
    x = torch.randn(8, 6) * 1e6
    told = lab.explain_overflow(model, step_of(model, x))
    assert told.culprits[0]["layer"] == "0" and told.culprits[0]["advice"] == (
        "FP32 for 0 and 1 (tried: the loss and every gradient are finite then): "
        "torch.autocast(\"cpu\", enabled=False) around 0 and around 1, with FP32 inputs"
    )
    y = torch.randint(5, (8,))
    loss = nn.functional.cross_entropy(model(x), y)  # which is what it says: both in FP32
    loss.backward()
    assert math.isfinite(float(loss.detach())) and torch.isfinite(model[0].weight.grad).all()


def test_infinities_of_a_mask_are_no_culprits():
    model = Net()
    mask = torch.zeros(8, 5)
    mask[:, 3:] = -math.inf

    def step(rows_masked=3):
        with torch.autocast("cpu", torch.float16):
            scores = model(torch.ones(8, 6)).masked_fill(torch.arange(5) >= rows_masked, -math.inf)
        return torch.softmax(scores.float(), -1).square().sum()

    assert not lab.explain_overflow(model, step).overflowed
    told = lab.explain_overflow(model, lambda: step(0))  # no row may consist of them alone
    assert told.culprits[0]["cause"] == "infinity" and told.culprits[0]["op"] == "_softmax"
    assert "its own infinities" in str(told)


def test_everything_is_afterwards_as_it_was():
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 5))
    x, y = torch.randn(8, 6), torch.randint(5, (8,))
    step_of(model, x, None)().backward()
    gradients = [p.grad for p in model.parameters()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    scaler = lab.GradScaler("torch", device="cpu", init_scale=2.0**24)
    seen = []

    def step():
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        seen.append(out.detach().clone())
        return nn.functional.cross_entropy(out, y)

    told = lab.explain_overflow(model, step, scaler=scaler)
    assert told.loss_scale == 2.0**24 and len(seen) > 3 and all(torch.equal(out, seen[0]) for out in seen)
    assert torch.equal(torch.get_rng_state(), random) and scaler.get_scale() == 2.0**24
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), gradients))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_culprits_go_into_the_run_folder(tmp_path):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = lab.GradScaler("torch", device="cpu", init_scale=2.0**24)
    step = step_of(model)
    with lab.watch(model, every=1, optimizer=optimizer, scaler=scaler) as w:
        for _ in range(2):
            before = scaler.get_scale()
            scaler.scale(step()).backward()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() < before:
                lab.explain_overflow(model, step, scale=before, watch=w)
    for step_number in (1, 2):  # nothing of the steps that were done again was counted
        assert w.histogram("fc1.weight", step=step_number).total == 6 * 16
    lines = (w.save(tmp_path / "mine") / "culprits.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [1, 2] and rows[0]["verdict"] == "lower_scale"
    assert rows[0]["loss_scale"] == 2.0**24 and rows[0]["finite_scale"] < 2.0**24 and rows[0]["advice"]
    with pytest.raises(RuntimeError, match="no step has ended yet"):
        lab.watch(model).note_culprits([])


def test_refuses_what_is_no_step():
    model = Net()
    with pytest.raises(
        TypeError, match=r"tensor of one element that requires grad, not Tensor of shape \(8, 5\)"
    ):
        lab.explain_overflow(model, lambda: model(torch.ones(8, 6)))
    with pytest.raises(TypeError, match="not float"):
        lab.explain_overflow(model, lambda: 1.0)
    with pytest.raises(TypeError, match=r"calls step\(\) without arguments; .*missing a required argument: 'x'"):
        lab.explain_overflow(model, lambda x: model(x).sum())
    for scale in ("a", 10**400):
        with pytest.raises(ValueError, match="^explain_overflow: scale is .*; a number above 0 that FP64 holds is"):
            lab.explain_overflow(nn.Linear(2, 2), lambda: None, scale=scale)
    with pytest.raises(ValueError, match="must be above 0"):
        lab.explain_overflow(model, step_of(model), scale=0.0)
    with pytest.raises(ValueError, match="torch.compile fuses"):
        lab.explain_overflow(torch.compile(model, backend="eager"), step_of(model))
