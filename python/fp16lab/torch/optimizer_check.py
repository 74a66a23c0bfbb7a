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

    findings  a dictionary for each: group (of the optimizer), dtype, what, where and outcome, in words.
              Probes run the optimizer's own code in the dtype and in FP64, and tell what is off by more than 10 %
    weights   where parameters have gradients, a dictionary for each: name, values, already (weights that are Inf or
              NaN now), unmoved (weights that a step in FP64 moves and one in the dtype does not), too_large (those
              whose step is more than twice FP64's), non_finite (weights that the step makes Inf or NaN) and lost
              (values of the state that are zero in the dtype, and not in FP64)
    note      what was not tried
    """

    optimizer: str
    findings: list[dict[str, Any]]
    weights: list[dict[str, Any]]
    note: str = ""

    def __str__(self) -> str:
        several = len({row["dtype"] for row in self.findings}) > 1
        told = f"{self.optimizer}\n"
        if self.findings:
            groups = [f"{row['group']}" + (f", {row['dtype']}" if several else "") for row in self.findings]
            cells = [(row["what"], row["where"], row["outcome"]) for row in self.findings]
            lines = [("group", "what", "where", "what becomes of it"), *((g, *c) for g, c in zip(groups, cells))]
            widths = [max(len(line[i]) for line in lines) for i in range(4)]
            told += "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines) + "\n"
        else:
            told += "nothing is rounded away\n"
        if self.weights:
            keys = ("values", "already", "unmoved", "too_large", "non_finite", "lost")
            rows = [[row["name"], "", "", *(str(row[key]) for key in keys)] for row in self.weights]
            head = ["parameter", "", "", "values", "Inf or NaN", "unmoved", "above twice", "become Inf or NaN", "state lost"]
            told += "\nthe next step, against the same in FP64\n" + aligned([head, *rows])
        return told + (f"{self.note}\n" if self.note else "")


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
    defaults by keyword: check_optimizer("optax.adam", "f16", eps=1e-6). Nothing runs then.

    >>> weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    >>> told = check_optimizer(torch.optim.Adam([weight]))
    >>> [row["outcome"] for row in told.findings if row["where"] == "0"]
    ['the update is Inf or NaN']
    >>> print(check_optimizer("optax.adam", "bf16"), end="")
    optax.adam in bf16
    group  what        where  what becomes of it
    0      b2 = 0.999  bf16   1: the average never forgets
    its constants alone: states, weights and steps were not tried

    TypeError: no optimizer. ValueError: an unknown name, dtype or constant, and an optimizer that takes no plain step
    (LBFGS).
    """
    if isinstance(optimizer, str):
        return _of_optax(optimizer, _known(dtype) if dtype is not None else None, constants)
    if not isinstance(optimizer, torch.optim.Optimizer):
        has_one = isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer)
        inside = ": give its .optimizer" if has_one else ""
        kinds = "an optimizer of torch.optim's kind, or a name such as 'optax.adamw', is needed"
        raise TypeError(f"{CALL}: optimizer is of {type(optimizer).__name__}; {kinds}{inside}")
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
            names = group.get("param_names") or [f"group {number}, {i}" for i in range(len(group["params"]))]
            for name, parameter in zip(names, group["params"]):
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    weights.append(_next_step(optimizer, group, name, parameter, wanted or parameter.dtype))
    note = "" if weights else "no parameter has a gradient: the next step was not tried"
    return OptimizerCheck(f"{type(optimizer).__name__} in {', '.join(dtypes)}", findings, weights, note)


class _Probes:
    """The optimizer's code with a group's hyperparameters, on parameters of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], dtype: torch.dtype) -> None:
        self._optimizer, self.group, self.dtype = optimizer, group, dtype

    def copy(self, parameter: torch.nn.Parameter, state: dict[str, Any] | None = None) -> torch.optim.Optimizer:
        """Neither hooks nor what a scheduler wrapped around `step` comes along."""
        copy = object.__new__(type(self._optimizer))
        own = {key: value for key, value in vars(self._optimizer).items() if key != "step"}
        vars(copy).update({key: type(value)() if "_hooks" in key else value for key, value in own.items()})
        copy.param_groups = [{**self.group, "params": [parameter], "fused": None, "foreach": None}]
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

    def kept_low(self) -> list[tuple[str, str]]:
        """(key, dtype) of the state that stays below FP32 whatever the parameter's dtype is."""
        parameter = torch.nn.Parameter(torch.ones(1, 1, dtype=torch.float64))
        copy, parameter.grad = self.copy(parameter), torch.ones(1, 1, dtype=torch.float64)
        _step(copy)
        held = copy.state[parameter].items()
        return [(key, FORMATS.get(x.dtype, str(x.dtype))) for key, x in held if _like(x, parameter) and x.dtype.itemsize < 4]

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
    exponents = list(range(max(least, -80), min(most, 40) + 1))
    powers = torch.exp2(torch.tensor(exponents).double())
    if not _is_elementwise(probes):
        return [("probes", "", "left out: this update of one weight depends on others")]
    found = []
    for eps in _numbers(probes.group.get("eps", ())):
        if eps > 0 and float(torch.tensor(eps, dtype=torch.float64).to(probes.dtype)) == 0:
            found.append((f"eps = {eps:g}", "", "0 where nothing else is in the denominator"))

    gradients = torch.cat([torch.zeros(1, dtype=torch.float64), powers])
    ((low, exact),) = probes.both(torch.zeros_like(gradients), (gradients, 20))
    outcomes = [_outcome(has, should) for has, should in zip(low[""], exact[""])]
    if outcomes[0][0]:
        found.append(("gradient", "0", outcomes[0][0]))
    found += [("gradient", where, outcome) for where, outcome in _runs(outcomes[1:], exponents)]

    # With a gradient that is handled rightly, the one nearest to 1: what happens to weights is then not its fault.
    # Weights in the middle of a binade have the same spacing on both sides.
    right = [i for i, (outcome, _) in enumerate(outcomes[1:]) if not outcome and exact[""][1 + i] != 0]
    one = powers[min(right, key=lambda i: abs(exponents[i]))].reshape(1) if right else torch.ones(1)
    weights, of_weights = 1.5 * powers[1:-1], exponents[1:-1]  # 1.5 times the smallest number is none
    if not any(_numbers(probes.group.get("lr", 1.0))):
        found.append(("weight", "", "left out: the learning rate is 0 now"))
    for what, gradient in (("weight", one), ("weight, gradient 0", torch.zeros_like(one))):
        if what == "weight" or not outcomes[0][0]:
            ((low, exact),) = probes.both(weights, (gradient.expand(len(weights)), 20))
            steps_taken = zip(low[""], exact[""], weights.tolist())
            moves = [_outcome(has - began, should - began) for has, should, began in steps_taken]
            found += [(what, where, outcome) for where, outcome in _runs(moves, of_weights)]

    pause = (torch.zeros_like(one), 3 * steps)
    after, paused = probes.both(torch.zeros_like(one), (one, steps), pause)
    when = f"after {steps} steps with gradient {float(one):g}"
    for times, (low, exact) in ((when, after), (f"{when}, {pause[1]} with 0", paused)):
        for key, (should,) in exact.items():
            has = low[key][0]
            if key and not abs(has - should) <= TOLERANCE * max(abs(should), 0.1 * abs(after[1][key][0])):
                found.append((key, times, f"{has:.3g}, where it should be {should:.3g}"))
    for key, dtype in probes.kept_low():
        found.append((key, "", f"is kept in {dtype}, beside FP64 too: what it loses is not seen here"))
    return found


def _numbers(value: Any) -> list[float]:
    return [float(each) for each in (value if isinstance(value, (tuple, list)) else [value]) if each is not None]


def _is_elementwise(probes: _Probes) -> bool:
    """Does the step of a weight depend on its own gradient alone?"""
    values, gradients = torch.tensor([1.0, 50.0]), torch.tensor([1.0, 100.0])
    (both,) = probes.run(values, torch.float64, (gradients, 2))
    (alone,) = probes.run(values[:1], torch.float64, (gradients[:1], 2))
    return math.isclose(both[""][0], alone[""][0], rel_tol=1e-9)


def _outcome(has: float, should: float) -> tuple[str, float]:
    """What is said of an update, nothing where it is right; and how many times too large or too small it is."""
    if not math.isfinite(has):
        return "the update is Inf or NaN", 0
    if abs(has - should) <= TOLERANCE * abs(should):
        return "", 0
    if has == 0:
        return "no update", 0
    if abs(has) > abs(should):
        return "the update is too large", abs(has / should) if should else math.inf
    return "the update is too small", abs(should / has)


def _runs(outcomes: list[tuple[str, float]], exponents: list[int]) -> Iterator[tuple[str, str]]:
    """(where, outcome) of neighbours with the same outcome, but for those that are right."""
    first = 0
    for i in range(1, len(outcomes) + 1):
        if i == len(outcomes) or outcomes[i][0] != outcomes[first][0]:
            outcome, factor = outcomes[first][0], max(times for _, times in outcomes[first:i])
            if outcome:
                low, high = exponents[first], exponents[i - 1]
                end = " and above" if i == len(outcomes) else f" to 2^{high}" if high > low else ""
                where = f"2^{low}{end}"
                yield where, outcome + (f", up to {factor:.2g} times" if factor else "")
            first = i


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
        "already": int((~began.isfinite()).sum()),
        "unmoved": int(((low == began) & (exact != began)).sum()),
        "too_large": int(((low - began).abs() > 2 * (exact - began).abs()).sum()),
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
    found = DTYPES.get(dtype) or getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"{CALL}: dtype is {dtype!r}; 'f16', 'bf16', 'f32', or torch's, are possible")
    return found


def _of_optax(name: str, dtype: torch.dtype | None, constants: dict[str, float]) -> OptimizerCheck:
    if name not in OPTAX:
        raise ValueError(f"{CALL}: unknown optimizer {name!r}; an optimizer of torch, or {', '.join(OPTAX)}, is needed")
    if dtype is None:
        raise ValueError(f"{CALL}: {name} is only a name: dtype is needed, f16, bf16 or f32")
    for key in constants:
        if key not in OPTAX[name]:
            raise ValueError(f"{CALL}: {name} has no {key}; it has {', '.join(OPTAX[name])}")
        if not isinstance(constants[key], (int, float)):
            raise ValueError(f"{CALL}: {key} is {constants[key]!r}; a number is needed")
    findings = []
    for key, value in {**OPTAX[name], **constants}.items():
        has = float(torch.tensor(value, dtype=torch.float64).to(dtype))
        outcome = ""
        if key in _DECAYS and abs((1 - has) - (1 - value)) > TOLERANCE * (1 - value):
            outcome = f"{has:.6g}: it forgets {1 - has:.3g} and adds {1 - value:.3g}"
            if has == 1:
                outcome = "1: the average never forgets"
        elif key not in _DECAYS and abs(has - value) > TOLERANCE * abs(value):
            outcome = "0: nothing is added" if has == 0 else f"{has:.3g}"
        if outcome:
            where = FORMATS[dtype]
            told = {"group": 0, "dtype": where, "what": f"{key} = {value:g}", "where": where, "outcome": outcome}
            findings.append(told)
    note = "its constants alone: states, weights and steps were not tried"
    return OptimizerCheck(f"{name} in {FORMATS[dtype]}", findings, [], note)
