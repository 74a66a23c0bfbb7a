"""lab.check_optimizer: what of an optimizer's arithmetic a 16-bit dtype rounds away."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .counting import FORMATS, unseen
from .tables import aligned

CALL = "check_optimizer"
DTYPES = {name: dtype for dtype, name in FORMATS.items()}
#: What a probe may be off by before it is told, relative to the same steps in FP64.
TOLERANCE = 0.1
#: Numbers that optax's optimizers add to or multiply with arrays, and their defaults (optax 0.2). JAX casts such a
#: number to the array's dtype first (weak types), where PyTorch computes with it in FP32.
OPTAX: dict[str, dict[str, float]] = {
    "optax.adabelief": {"b1": 0.9, "b2": 0.999, "eps": 1e-16, "eps_root": 1e-16},
    "optax.adadelta": {"rho": 0.9, "eps": 1e-6},
    "optax.adagrad": {"eps": 1e-7},
    "optax.adam": {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0},
    "optax.adamax": {"b1": 0.9, "b2": 0.999, "eps": 1e-8},
    "optax.adamw": {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0, "weight_decay": 1e-4},
    "optax.lamb": {"b1": 0.9, "b2": 0.999, "eps": 1e-6, "eps_root": 0.0},
    "optax.lion": {"b1": 0.9, "b2": 0.99, "weight_decay": 1e-3},
    "optax.nadam": {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0},
    "optax.radam": {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0},
    "optax.rmsprop": {"decay": 0.9, "eps": 1e-8},
    "optax.yogi": {"b1": 0.9, "b2": 0.999, "eps": 1e-3},
}
_DECAYS = ("b1", "b2", "rho", "decay")
_State = dict[str, list[float]]


@dataclass(frozen=True)
class OptimizerCheck:
    """What a dtype rounds away. `print` it; or ask

    findings  a dictionary for each: group (of the optimizer), dtype, what, where and outcome, in words. Of probes,
              which run the optimizer's own code in the dtype and in FP64, a finding is what is off by more than 10 %
    weights   where parameters have gradients, a dictionary for each: name, values, unmoved (weights that a step in
              FP64 moves and one in the dtype does not), non_finite (weights that the step makes Inf or NaN) and
              lost (values of the state that are zero in the dtype, and not in FP64)
    """

    optimizer: str
    findings: list[dict[str, Any]]
    weights: list[dict[str, Any]]

    def __str__(self) -> str:
        if self.findings:
            head = ["group", "what", "where", "what becomes of it"]
            rows = [[str(row["group"]), row["what"], row["where"], row["outcome"]] for row in self.findings]
            widths = [max(len(line[i]) for line in [head, *rows]) for i in range(4)]
            lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in [head, *rows]]
            told = "\n".join([self.optimizer, *lines]) + "\n"
        else:
            told = f"{self.optimizer}\nnothing is rounded away\n"
        if self.weights:
            rows = [
                [row["name"], "", "", *(str(row[key]) for key in ("values", "unmoved", "non_finite", "lost"))]
                for row in self.weights
            ]
            told += "\nthe next step, against the same in FP64\n"
            told += aligned([["parameter", "", "", "values", "unmoved", "Inf or NaN", "state lost"], *rows])
        return told


def check_optimizer(
    optimizer: torch.optim.Optimizer | str,
    dtype: str | torch.dtype | None = None,
    *,
    steps: int = 1000,
    **constants: float,
) -> OptimizerCheck:
    """Which gradients, weights and states an optimizer loses because it keeps and computes them in 16 bits.

    optimizer: one of torch's or of the same kind, at any moment of a training; it is not changed. Its own code runs
    on probes with its hyperparameters, once in `dtype` and once in FP64: gradients of each power of two for 20
    steps, weights of each power of two for 20 steps, and its state for `steps` steps with a gradient and three times
    as many with a gradient of 0. Parameters that have gradients take their next step on copies, both ways, one at a time.
    dtype: "f16", "bf16", "f32" or torch's; None: that of each group's parameters. An optimizer whose state is FP32
    over 16-bit parameters (master weights) is probed as it is.

    Or the name of one of optax's, of which the constants are rounded as JAX rounds them, others than optax's
    defaults by keyword: check_optimizer("optax.adam", "f16", eps=1e-6).

    >>> weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    >>> told = check_optimizer(torch.optim.Adam([weight]))
    >>> [row["outcome"] for row in told.findings if row["where"] == "0"]
    ['the update is Inf or NaN']
    >>> print(check_optimizer("optax.adam", "bf16"), end="")
    optax.adam in bf16
    group  what        where  what becomes of it
    0      b2 = 0.999  bf16   1: the average never forgets

    ValueError: an unknown name, dtype or constant, and an optimizer that takes no plain step (LBFGS).
    """
    if isinstance(optimizer, str):
        return _of_optax(optimizer, _known(dtype) if dtype is not None else None, constants)
    if constants:
        raise ValueError(f"{CALL}: {', '.join(constants)} belongs to a name of optax's; torch's groups have their own")
    if steps < 1:
        raise ValueError(f"{CALL}: steps is {steps}; 1 or more is needed")
    wanted = _known(dtype) if dtype is not None else None
    findings: list[dict[str, Any]] = []
    weights: list[dict[str, Any]] = []
    dtypes: list[str] = []
    with unseen(), torch.random.fork_rng(devices=[]):
        for number, group in enumerate(optimizer.param_groups):
            own = {p.dtype for p in group["params"] if p.dtype in FORMATS} if wanted is None else {wanted}
            for low in sorted(own, key=str):
                if FORMATS[low] not in dtypes:
                    dtypes.append(FORMATS[low])
                for what, where, outcome in _probed(_Probes(optimizer, group, low), steps):
                    told = {"group": number, "dtype": FORMATS[low], "what": what, "where": where, "outcome": outcome}
                    findings.append(told)
            names = group.get("param_names") or [f"{number}.{i}" for i in range(len(group["params"]))]
            for name, parameter in zip(names, group["params"]):
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    weights.append(_next_step(optimizer, group, name, parameter, wanted or parameter.dtype))
    return OptimizerCheck(f"{type(optimizer).__name__} in {', '.join(dtypes)}", findings, weights)


class _Probes:
    """The optimizer's code with a group's hyperparameters, on parameters of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], dtype: torch.dtype) -> None:
        self._optimizer, self._group, self.dtype = optimizer, group, dtype

    def copy(self, parameter: torch.nn.Parameter, state: dict[str, Any] | None = None) -> torch.optim.Optimizer:
        """Neither hooks nor what a scheduler wrapped around `step` comes along."""
        copy = object.__new__(type(self._optimizer))
        own = {key: value for key, value in vars(self._optimizer).items() if key != "step"}
        vars(copy).update({key: type(value)() if "_hooks" in key else value for key, value in own.items()})
        copy.param_groups = [{**self._group, "params": [parameter], "fused": None, "foreach": None}]
        copy.state = defaultdict(dict, {parameter: state} if state else {})
        return copy

    def run(self, values: torch.Tensor, dtype: torch.dtype, *phases: tuple[torch.Tensor, int]) -> list[_State]:
        """Numbers of the parameter that began as `values`, and of its state as large as that, after each phase: a
        gradient, and for how many steps."""
        parameter = torch.nn.Parameter(values.to(dtype)[None].clone())  # a matrix of one row, which all optimizers take
        copy, states = self.copy(parameter), []
        for gradient, steps in phases:
            parameter.grad = gradient.to(dtype)[None].clone()
            for _ in range(steps):
                _step(copy)
            held = {"": parameter.detach(), **copy.state[parameter]}
            states.append({key: value[0].double().tolist() for key, value in held.items() if _like(value, parameter)})
        return states

    def both(self, values: torch.Tensor, *phases: tuple[torch.Tensor, int]) -> Iterator[tuple[_State, _State]]:
        """After each phase, in the dtype and in FP64."""
        return zip(*(self.run(values, dtype, *phases) for dtype in (self.dtype, torch.float64)))


def _step(optimizer: torch.optim.Optimizer) -> None:
    try:
        with torch.enable_grad():
            optimizer.step()
    except Exception as error:
        raise ValueError(f"{CALL}: {type(optimizer).__name__} takes no plain step: {error}") from error


def _probed(probes: _Probes, steps: int) -> list[tuple[str, str, str]]:
    """(what, where, outcome) of what the dtype changes."""
    info = torch.finfo(probes.dtype)
    least, most = _exponent(info.smallest_normal * info.eps), _exponent(info.max)
    exponents = torch.arange(max(least, -80), min(most, 40) + 1)
    powers = torch.exp2(exponents.double())
    if not _is_elementwise(probes):
        return [("probes", "", "left out: this update of one weight depends on others")]
    found = []

    gradients = torch.cat([torch.zeros(1, dtype=torch.float64), powers])
    ((low, exact),) = probes.both(torch.zeros_like(gradients), (gradients, 20))
    outcomes = [_outcome(has, should) for has, should in zip(low[""], exact[""])]
    if outcomes[0]:
        found.append(("gradient", "0", outcomes[0]))
    for first, last, outcome in _runs(outcomes[1:]):
        found.append(("gradient", _range(int(exponents[first]), int(exponents[last])), outcome))

    # With a gradient that is handled rightly, the one nearest to 1: what happens to weights is then not its fault.
    right = [i for i, outcome in enumerate(outcomes[1:]) if not outcome and exact[""][1 + i] != 0]
    one = powers[min(right, key=lambda i: abs(int(exponents[i])))].reshape(1) if right else torch.ones(1)
    ((low, exact),) = probes.both(powers, (one.expand(len(powers)), 20))
    moves = [has != began or should == began for has, should, began in zip(low[""], exact[""], powers.tolist())]
    frozen = len(moves) - moves[::-1].index(True) if True in moves else 0
    if frozen < len(moves):
        found.append(("weight", f"2^{int(exponents[frozen])} and above", "does not move in 20 steps"))

    pause = (torch.zeros_like(one), 3 * steps)
    after, paused = probes.both(torch.zeros_like(one), (one, steps), pause)
    for when, (low, exact) in ((f"{steps} steps", after), (f"{pause[1]} steps with gradient 0 more", paused)):
        for key, (should,) in exact.items():
            has = low[key][0]
            if key and not abs(has - should) <= TOLERANCE * max(abs(should), 0.1 * abs(after[1][key][0])):
                found.append((key, f"after {when}", f"{has:.3g}, where it should be {should:.3g}"))
    return found


def _is_elementwise(probes: _Probes) -> bool:
    """Does the step of a weight depend on its own gradient alone?"""
    values, gradients = torch.tensor([1.0, 50.0]), torch.tensor([1.0, 100.0])
    (both,) = probes.run(values, torch.float64, (gradients, 2))
    (alone,) = probes.run(values[:1], torch.float64, (gradients[:1], 2))
    return math.isclose(both[""][0], alone[""][0], rel_tol=1e-9)


def _outcome(has: float, should: float) -> str:
    if not math.isfinite(has):
        return "the update is Inf or NaN"
    if abs(has - should) <= TOLERANCE * abs(should):
        return ""
    if has == 0:
        return "no update"
    return "the update is too large" if abs(has) > abs(should) else "the update is too small"


def _runs(outcomes: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first, last, outcome) of neighbours with the same outcome, but for those without one."""
    first = 0
    for i in range(1, len(outcomes) + 1):
        if i == len(outcomes) or outcomes[i] != outcomes[first]:
            if outcomes[first]:
                yield first, i - 1, outcomes[first]
            first = i


def _range(first: int, last: int) -> str:
    return f"2^{first}" if first == last else f"2^{first} to 2^{last}"


def _exponent(value: float) -> int:
    return int(torch.frexp(torch.tensor(value, dtype=torch.float64)).exponent) - 1


def _next_step(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], name: str, parameter: torch.nn.Parameter, dtype: torch.dtype
) -> dict[str, Any]:
    """Both from the same numbers, those that the dtype has for the weights and their gradients."""
    before = parameter.detach()
    results = []
    for target in (dtype, torch.float64):
        copy = torch.nn.Parameter(before.to(dtype).to(target, copy=True))
        copy.grad = None if parameter.grad is None else parameter.grad.detach().to(dtype).to(target, copy=True)
        held = {
            key: _converted(value, before, dtype, target) for key, value in optimizer.state.get(parameter, {}).items()
        }
        stepping = _Probes(optimizer, group, target).copy(copy, held)
        _step(stepping)
        results.append((copy.detach().double(), stepping.state[copy]))
    (low, low_state), (exact, exact_state) = results
    began = before.to(dtype).double()
    kept = [(low_state[key], value) for key, value in exact_state.items() if _like(value, before)]
    return {
        "name": name,
        "values": before.numel(),
        "unmoved": int(((low == began) & (exact != began)).sum()),
        "non_finite": int((~low.isfinite() & exact.isfinite()).sum()),
        "lost": sum(int(((has == 0) & (should != 0)).sum()) for has, should in kept),
    }


def _converted(value: Any, parameter: torch.Tensor, dtype: torch.dtype, target: torch.dtype) -> Any:
    if not _like(value, parameter):
        return value.clone() if torch.is_tensor(value) else value
    return (value.to(dtype) if target == dtype else value).to(target, copy=True)


def _like(value: Any, parameter: torch.Tensor) -> bool:
    """Is it a part of a state that has a number for each weight?"""
    return torch.is_tensor(value) and value.shape == parameter.shape and value.is_floating_point()


def _known(dtype: str | torch.dtype) -> torch.dtype:
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if found not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"{CALL}: dtype is {dtype!r}; f16, bf16, f32, or torch's, are possible")
    return found


def _of_optax(name: str, dtype: torch.dtype | None, constants: dict[str, float]) -> OptimizerCheck:
    if name not in OPTAX:
        raise ValueError(f"{CALL}: unknown optimizer {name!r}; an optimizer of torch, or {', '.join(OPTAX)}, is needed")
    if dtype is None:
        raise ValueError(f"{CALL}: {name} is only a name: dtype is needed, f16, bf16 or f32")
    for key in constants:
        if key not in OPTAX[name]:
            raise ValueError(f"{CALL}: {name} has no {key}; it has {', '.join(OPTAX[name])}")
    findings = []
    for key, value in {**OPTAX[name], **constants}.items():
        has = float(torch.tensor(value, dtype=torch.float64).to(dtype))
        outcome = ""
        if key in _DECAYS and abs((1 - has) - (1 - value)) > TOLERANCE * (1 - value):
            outcome = "1: the average never forgets" if has == 1 else f"{has:.6g}: 1 - {key} is {1 - has:.3g}"
        elif key not in _DECAYS and abs(has - value) > TOLERANCE * abs(value):
            outcome = "0: nothing is added" if has == 0 else f"{has:.3g}"
        if outcome:
            where = FORMATS[dtype]
            told = {"group": 0, "dtype": where, "what": f"{key} = {value:g}", "where": where, "outcome": outcome}
            findings.append(told)
    return OptimizerCheck(f"{name} in {FORMATS[dtype]}", findings, [])
