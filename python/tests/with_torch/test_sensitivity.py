"""lab.sensitivity on networks whose sensitive layers are known, and on operations computed again by hand."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import nn

import fp16lab.torch as lab


class Net(nn.Module):
    """fc2's output overflows in FP16 and fc3 makes it small again; the other layers are tame."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.fc2, self.fc3, self.fc4 = (nn.Linear(16, 16) for _ in range(4))
        with torch.no_grad():
            self.fc2.weight.mul_(30000)
            self.fc2.bias.mul_(30000)
            self.fc3.weight.mul_(2.0**-14)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc4(torch.tanh(self.fc3(self.fc2(4 * torch.relu(self.fc1(x))))))


X = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


def step_of(model: nn.Module, enabled: bool = True):
    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            return model(X).float().square().mean()

    return step


def gradients(model: nn.Module, step, scale: float = 1.0) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = step()
    (loss * scale).backward()
    return float(loss.detach()), {name: p.grad.double() / scale for name, p in model.named_parameters()}


def errors_of(model: nn.Module, step, reference, scale: float = 1.0) -> float:
    """The greater of both errors, as the docstring defines them."""
    loss, found = gradients(model, step, scale)
    total = math.sqrt(sum(float(g.norm()) ** 2 for g in reference[1].values()))
    each = [
        float((found[name] - g).norm()) / max(float(g.norm()), total / 1000) for name, g in reference[1].items()
    ]
    worst = max(math.inf if math.isnan(e) else e for e in (*each, abs(loss - reference[0]) / abs(reference[0])))
    return worst


def kept_by_lines(model: nn.Module, lines: str) -> nn.Module:
    model = copy.deepcopy(model)
    exec(lines, {"model": model, "torch": torch})
    return model


def test_the_printed_lines_restore_and_each_module_is_needed():
    model = Net()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.fc1.weight.grad = torch.ones(16, 16)
    rng = torch.get_rng_state()
    told = lab.sensitivity(model, step_of(model), scale=2.0**10)
    assert lab.compare(state, model).equal and torch.equal(rng, torch.get_rng_state())
    assert torch.equal(model.fc1.weight.grad, torch.ones(16, 16)) and model.fc2.weight.grad is None
    assert told.modules == ["fc2", "fc3"] and told.restored
    assert math.isinf(told.without.error) and told.within.error <= 0.05
    assert {row["part"] for row in told.errors if row["op"] == "sum" and row["layer"]} == {"dW"}, "of biases"
    reference = gradients(model, step_of(model, False))
    alone = kept_by_lines(model, told.lines())
    assert errors_of(alone, step_of(alone), reference, 2.0**10) == pytest.approx(told.within.error, rel=1e-6)
    # Every shorter list of any of the layers fails, by the printed lines of its own.
    for chosen in itertools.chain([()], ([name] for name in ("fc1", "fc2", "fc3", "fc4"))):
        tried = copy.deepcopy(model)
        if chosen:
            tried = kept_by_lines(model, told.lines().replace('"fc2", "fc3"', f'"{chosen[0]}"'))
        assert errors_of(tried, step_of(tried), reference, 2.0**10) > 0.05, chosen
    assert "in FP32: fc2, fc3\n" in str(told) and "module.forward = in_fp32(module.forward)" in str(told)
    assert told.lines("mindspore") == "net.fc2.to_float(mindspore.float32)\nnet.fc3.to_float(mindspore.float32)"
    assert 'custom_black_list={"elementwise_add", "matmul_v2"}' in told.lines("paddle")
    assert told.lines("pytorch") == told.lines() and "as it is: error of the loss inf, error of" in str(told)
    with pytest.raises(ValueError, match="is needed"):
        told.lines("jax")


class Tiny(nn.Module):
    """Its own multiplication leaves FP16's range, and lin's operand and result with it."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.lin, self.k = nn.Linear(16, 16, bias=False), k

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.lin(x * self.k) / self.k)


@pytest.mark.parametrize("k", [1e-9, 3e5, 1e6])
def test_a_module_whose_own_operations_fail_is_named_with_all_inside_of_it(k):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), Tiny(k), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    told = lab.sensitivity(model, step_of(model), scale=2.0**10)
    assert told.modules == ["2"] and told.restored and told.within.error < 2e-3 and told.tried < 20
    alone = kept_by_lines(model, told.lines())
    reference = gradients(model, step_of(model, False))
    assert errors_of(alone, step_of(alone), reference, 2.0**10) == pytest.approx(told.within.error, rel=1e-6)
    inner = nn.Sequential(nn.Sequential(model))  # modules that only hold others are not named for them
    assert lab.sensitivity(inner, step_of(inner), scale=2.0**10).modules == ["0.0.2"]


def test_a_container_is_named_where_all_of_it_is_needed():
    net = Net()
    net.fc2.weight.data *= 4
    model = nn.Sequential(net.fc1, nn.ReLU(), nn.Sequential(net.fc2, net.fc3), nn.Tanh(), net.fc4)
    told = lab.sensitivity(model, step_of(model), scale=2.0**10)
    assert told.modules == ["2"] and told.restored
    assert lab.sensitivity(model, step_of(model), scale=2.0**10, skip="^2$").modules == ["2.0", "2.1"]


def test_a_tame_network_needs_none_and_small_gradients_need_a_scale():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    assert lab.sensitivity(model, step_of(model)).modules == []

    def small() -> torch.Tensor:
        return step_of(model)() * 1e-7

    lost = lab.sensitivity(model, small)
    assert lost.modules and lost.restored and lost.without.gradients > 0.5 and lost.without.loss < 0.01
    helped = lab.sensitivity(model, small, scale=2.0**22)
    assert helped.modules == [] and "no module needs FP32" in str(helped)
    # A margin that the other layers alone do not reach.
    beyond = lab.sensitivity(model, step_of(model), margin=1e-12, skip="2")
    assert not beyond.restored and "no list of modules restores it" in str(beyond)


def test_an_error_below_the_floor_is_told():
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(16, 4) for _ in range(2))

    def step(share: float = 1e-6, enabled: bool = True) -> torch.Tensor:  # those of "1" are subnormal in FP16
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            return (model[0](X).square() + model[1](X).square() * share).float().mean()

    told = lab.sensitivity(model, step).without
    narrow, wide = gradients(model, step)[1], gradients(model, lambda: step(enabled=False))[1]
    own = {name: float((narrow[name] - g).norm() / g.norm()) for name, g in wide.items()}
    assert told.small_error == pytest.approx(own[told.small], rel=1e-5) and own[told.small] == max(own.values())
    assert told.small.startswith("1.") and told.gradients < 0.05 < told.small_error
    assert "counts against that: the error of 1." in str(lab.sensitivity(model, step))
    assert "thousandth" not in str(lab.sensitivity(model, lambda: step(1.0)))


def row_of(rows, layer, op, part):
    [row] = [row for row in rows if (row["layer"], row["op"], row["part"]) == (layer, op, part)]
    return row


def relative(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float((value.double() - exact).norm() / max(exact.norm(), value.double().norm()))


def test_errors_are_those_of_the_same_operands_in_fp64():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(64, 8, bias=False), nn.Linear(8, 3, bias=False))
    x, g = torch.randn(5, 64), torch.randn(5, 3)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.float16):
            return (model(x).float() * g).sum()

    w, v = (layer.weight.detach().half() for layer in model)
    h = x.half() @ w.T  # of torch's own kernel, as in the step
    rows = lab.sensitivity(model, step).errors
    exact = x.half().double() @ w.double().T
    assert row_of(rows, "0", "mm", "forward")["relative_l2"] == pytest.approx(relative(h, exact), rel=1e-9)
    dh = g.half() @ v
    assert row_of(rows, "1", "mm", "dX")["relative_l2"] == pytest.approx(
        relative(dh, g.half().double() @ v.double()), rel=1e-9
    )
    dv = g.half().T @ h
    assert row_of(rows, "1", "mm", "dW")["relative_l2"] == pytest.approx(
        relative(dv, g.half().double().T @ h.double()), rel=1e-9
    )
    order = [(row["layer"], row["part"]) for row in rows if row["op"] == "mm"]
    assert order[:2] == [("0", "forward"), ("1", "forward")] and order[-1] == ("0", "dW")
    with lab.emulate("volta"):
        volta = lab.sensitivity(model, step).errors
    assert row_of(volta, "0", "mm", "forward")["beyond_cast"] >= row_of(rows, "0", "mm", "forward")["beyond_cast"]
    assert {row["layer"] for row in lab.sensitivity(model, step, include="1").errors} == {"1"}


def test_convolutions_norms_and_what_is_refused():
    torch.manual_seed(4)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2)
    model = nn.Sequential(*layers)
    x = torch.randn(2, 3, 8, 8)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.float16):
            return model(x).float().square().mean()

    before = copy.deepcopy(model.state_dict())
    told = lab.sensitivity(model, step, margin=1e-9)
    assert lab.compare(before, model).equal, "running statistics too"
    parts = {(row["layer"], row["part"]) for row in told.errors if row["op"] == "convolution_backward"}
    assert parts == {("0", "dX"), ("0", "dW")} or parts == {("0", "dW")}
    with pytest.raises(ValueError, match="margin is 0"):
        lab.sensitivity(model, step, margin=0)
    with pytest.raises(ValueError, match="regular expression"):
        lab.sensitivity(model, step, include="(")
    with pytest.raises(TypeError, match="sensitivity calls step"):
        lab.sensitivity(model, lambda batch: step())
    with pytest.raises(ValueError, match="in FP32 too"):
        lab.sensitivity(model, lambda: step() * float("inf"))
