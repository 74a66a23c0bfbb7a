"""lab.mismatch: why two engines give the tokens of one batch different log-probabilities, cause by cause."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _core
from ..products import Plan
from ..verdicts import mean_interval
from .engines import OF_OPERATIONS, OF_PRODUCTS, Engine, engine_of
from .log_probabilities import Tokens, head_of
from .tables import aligned
from .twins import perturb_ulps
from .wide_operations import Place

CALL = "mismatch"
MOST_RUNS = 64


@dataclass(frozen=True)
class Gap:
    """How far log-probabilities are from engine a's, in nats, over all tokens that count.

    mean_abs, mean: of |lp - lp_a| and of lp - lp_a; largest: of |lp - lp_a|. k3: the mean of r - 1 - ln r,
    with the importance ratio r = exp(lp_a - lp), which estimates KL(other || a) where the other engine
    sampled the tokens.
    outside: the share of r that is outside of the band. interval: 95 % of mean_abs, over batches (three or
    more). of_batches: mean_abs of each batch, for pairs with another gap's.
    """

    mean_abs: float
    mean: float
    largest: float
    k3: float
    outside: float
    interval: tuple[float, float] | None = None
    of_batches: tuple[float, ...] = ()

    @property
    def is_zero(self) -> bool:
        """Every log-probability is the same number."""
        return self.largest == 0

    def __str__(self) -> str:
        about = f" [{self.interval[0]:.2g}, {self.interval[1]:.2g}]" if self.interval else ""
        outside = f"{100 * self.outside:.3g} % outside"
        return f"mean |gap| {self.mean_abs:.3g}{about}, mean {self.mean:+.2g}, {outside}"


@dataclass(frozen=True)
class Cause:
    """What a and b have different. alone: a with this one as b has it, against a (leave-one-in); without: b
    with this one as a has it, against a (leave-one-out)."""

    name: str
    a: str
    b: str
    alone: Gap
    without: Gap


@dataclass(frozen=True)
class Mismatch:
    """Two engines on the same tokens. `print` it; or ask

    gap       Gap of b against a; causes: a Cause for each thing that differs, largest `alone` first
    rest      mean |gap - the sum of the causes' gaps alone|, token by token: what causes do together alone
    twin      Gap of a with every FP32 weight moved by one unit in the last place: what chance makes of
              nothing;
              None where no weight is FP32
    worst     of the token with the largest gap: batch, row, position, token, a, b (log-probabilities)
    kinds     with by_operation: a dictionary for each kind of operation: kind, alone (Gap of a with this kind
              alone as b computes and stores it)
    first     with by_operation: (layer, kind) of the first result in which b's bits differ from a's, or None
    tokens, batches, runs   how many counted, and engine runs for each batch
    """

    a: Engine
    b: Engine
    band: tuple[float, float]
    gap: Gap
    causes: list[Cause]
    rest: float
    twin: Gap | None
    worst: dict[str, Any]
    tokens: int
    batches: int
    runs: int
    kinds: list[dict[str, Any]] = field(default_factory=list)
    first: tuple[str, str] | None = None

    def table(self) -> str:
        """Both engines' gap, the causes', the twin's and those of kinds of operations."""
        head = ["cause", "a", "b", "alone", "interval", "outside", "without it"]
        rows = [_line("both engines", "", "", self.gap, "")]
        for each in self.causes:
            rows.append(_line(each.name, each.a, each.b, each.alone, f"{each.without.mean_abs:.3g}"))
        if self.causes:
            rows.append(["rest", "", "", f"{self.rest:.3g}", "", "", ""])
        if self.twin is not None:
            rows.append(_line("one-ulp twin", "", "", self.twin, ""))
        rows += [_line(f"only {kind['kind']}", "", "", kind["alone"], "") for kind in self.kinds]
        return aligned([head, *rows])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes mismatch.json there, in which fp16lab report draws the split if it is a run folder (of
        lab.watch); returns its path. RuntimeError: no such folder."""
        told = {
            "targets": self.tokens,
            "batches": self.batches,
            "band": list(self.band),
            "b": _json_of(self.gap),
            "twin": None if self.twin is None else _json_of(self.twin),
            "causes": [
                {"setting": f"{each.name}={each.b}", "alone": _json_of(each.alone), "without": _json_of(each.without)}
                for each in self.causes
            ],
            "operations": [{"kind": each["kind"], "alone": _json_of(each["alone"])} for each in self.kinds],
        }
        path = Path(folder) / "mismatch.json"
        if not path.parent.is_dir():
            raise RuntimeError(f"{folder}: no such folder; that of a run is needed, such as lab.watch's save writes")
        _core.write_file_atomically(os.fspath(path), json.dumps(told, indent=2, allow_nan=False).encode() + b"\n")
        return path

    def __str__(self) -> str:
        low, high = self.band
        batches = f"{self.batches} batches" if self.batches != 1 else "1 batch"
        told = f"{self.tokens} tokens in {batches}, {self.runs} engine runs each; nats"
        if self.gap.is_zero:
            told += ": every log-probability is equal"
        else:
            at = ", ".join(f"{name} {self.worst[name]}" for name in ("batch", "row", "position", "token"))
            told += f"\nlargest gap {self.gap.largest:.3g} ({at}); "
            told += f"importance ratios outside of {low:g} to {high:g}: "
            told += f"{100 * self.gap.outside:.3g} %; k3 {self.gap.k3:.2g}"
        if self.first is not None:
            told += f"\nfirst result that differs: {self.first[1]} of {self.first[0] or '(model)'}"
        return f"{told}\nattention is its plain algorithm in both engines\n\n{self.table()}"


def _json_of(gap: Gap) -> dict[str, Any]:
    """As fp16lab mismatch writes it."""
    interval = None if gap.interval is None else [_finite(end) for end in gap.interval]
    numbers = {"mean_magnitude": gap.mean_abs, "mean": gap.mean, "largest": gap.largest, "outside": gap.outside}
    return {"interval": interval, **{name: _finite(value) for name, value in numbers.items()}}


def _finite(value: float) -> float | str:
    """Numbers that JSON lacks are strings in our files."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _line(name: str, a: str, b: str, gap: Gap, without: str) -> list[str]:
    about = f"{gap.interval[0]:.2g} to {gap.interval[1]:.2g}" if gap.interval else ""
    return [name, a, b, f"{gap.mean_abs:.3g}", about, f"{100 * gap.outside:.3g} %", without]


def mismatch(
    model: nn.Module,
    batch: Any,
    a: Engine | Mapping[str, Any] | str = "h100",
    b: Engine | Mapping[str, Any] | str = "h100",
    *,
    head: str | None = None,
    band: tuple[float, float] = (0.5, 2.0),
    by_operation: bool = False,
    seed: int = 1,
) -> Mismatch:
    """Why do trainer (a) and rollout engine (b) disagree? The gap of their log-probabilities, split by cause.

    batch: integer ids (rows, length), whose next ids are the targets; a dictionary as transformers' models
    take it (masked positions and labels of -100 do not count); a tuple (inputs, targets); or a list of such
    batches, of which three or more give intervals. a, b: an lab.Engine, its fields as a dictionary, or a
    chip. Every field in which they differ is a cause; those of products that are impossible one at a time (a
    plan and its row) are one cause.
    Each batch runs as a, as b, as a with one cause of b, as b with one cause of a, and as a with every FP32
    weight moved by one unit in the last place (`seed`), which is the control. Equal engines have gaps of
    exactly zero.
    head: the layer that Engine.head means, by name; without it, the one that gives the logits of a
    transformers model, or the last nn.Linear. band: importance ratios exp(lp_a - lp_b) that are not outside.
    by_operation: also a run for each kind of operation with that one as b has it (row, library, accumulator,
    f32 and storage alone), and the first result that differs, in the first batch. Attention is its plain
    algorithm (fp16lab.torch.attention) in
    both engines: no flash kernel's order is in the gap. Weights are afterwards what they were.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Embedding(16, 32), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 16)).eval()
    >>> told = mismatch(model, torch.arange(8).view(1, 8), "h100", Engine("h100", head="f32", batch=1))
    >>> [(cause.name, cause.alone.is_zero) for cause in told.causes]
    [('head', False), ('batch', True)]

    TypeError: no module, no logits, a batch or an engine of another kind. ValueError: a model in training
    mode; more than 64 runs a batch; rows that an engine's batch does not divide; fields that are unknown; no
    token that counts.
    EmulationError: an operation that lab.emulate refuses.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"mismatch: model is of {type(model).__name__}; an nn.Module is needed")
    if model.training:
        raise ValueError("mismatch: the model trains, and dropout would be another cause: model.eval()")
    if not 0 < band[0] <= 1 <= band[1]:
        raise ValueError(f"mismatch: band is {band!r}; (low, high) around 1 is needed, low above 0")
    engines = engine_of(a, "a"), engine_of(b, "b")
    batches = [Tokens(each, CALL) for each in (batch if isinstance(batch, list) else [batch])]
    if not batches:
        raise ValueError("mismatch: batch is an empty list")
    runs = _Runs(model, batches, head_of(model, head, CALL))
    return _Split(runs, *engines, band).told(by_operation, seed)


def causes_of(a: Engine, b: Engine) -> list[tuple[str, ...]]:
    """The fields that differ; those of products together where one of them alone is no possible engine."""
    differing = [each.name for each in fields(Engine) if getattr(a, each.name) != getattr(b, each.name)]
    products = tuple(name for name in differing if name in OF_PRODUCTS)
    try:
        for name in products:
            with_fields(a, b, (name,)), with_fields(b, a, (name,))
    except ValueError:
        return [products, *((name,) for name in differing if name not in products)]
    return [(name,) for name in differing]


def with_fields(engine: Engine, other: Engine, names: Sequence[str]) -> Engine:
    """The engine with these fields of another one. ValueError: an impossible one."""
    return replace(engine, **{name: getattr(other, name) for name in names})


class _Runs:
    """Log-probabilities of all batches, each engine's once."""

    def __init__(self, model: nn.Module, batches: list[Tokens], head: nn.Module | None) -> None:
        self.model, self.batches, self._head = model, batches, head
        self.count = 0
        self._done: dict[Any, list[torch.Tensor]] = {}

    def of(self, engine: Engine, only: tuple[str, Engine] | None = None) -> list[torch.Tensor]:
        key = (engine, only)
        if key not in self._done:
            if engine.head is not None and self._head is None:
                raise ValueError('mismatch: head="f32" needs a linear layer: head= names one')
            self.count += 1
            self._done[key] = [
                each.log_probabilities(self.model, engine, self._head, only=only) for each in self.batches
            ]
        return self._done[key]

    def twin(self, engine: Engine, seed: int) -> list[torch.Tensor] | None:
        if not any(each.dtype == torch.float32 for each in self.model.parameters()):
            return None
        held = [(each, each.detach().clone()) for each in self.model.parameters()]
        try:
            perturb_ulps(self.model, seed)
            self.count += 1
            return [each.log_probabilities(self.model, engine, self._head) for each in self.batches]
        finally:
            with torch.no_grad():
                for parameter, values in held:
                    parameter.copy_(values)

    def results(self, engine: Engine) -> dict[Place, torch.Tensor]:
        """What the kernels of the first batch give."""
        found: dict[Place, torch.Tensor] = {}

        def keep(place: Place, value: torch.Tensor) -> None:
            found[place] = value.detach().clone()

        self.count += 1
        self.batches[0].log_probabilities(self.model, engine, self._head, seen=keep)
        return found


class _Split:
    """The gap of two engines and its parts."""

    def __init__(self, runs: _Runs, a: Engine, b: Engine, band: tuple[float, float]) -> None:
        self._runs, self._a, self._b, self._band = runs, a, b, band
        self._reference = runs.of(a)

    def told(self, by_operation: bool, seed: int) -> Mismatch:
        a, b = self._a, self._b
        names = causes_of(a, b)
        kinds, first = self._kinds() if by_operation else ([], None)
        wanted = 3 + 2 * len(names) + len(kinds) + 2 * by_operation
        if wanted > MOST_RUNS:
            raise ValueError(
                f"mismatch: {wanted} engine runs a batch are needed, and {MOST_RUNS} are the most: "
                f"by_operation has {len(kinds)} kinds of operations"
            )
        together = self._runs.of(b)
        alone = [self._runs.of(with_fields(a, b, each)) for each in names]
        without = [self._runs.of(with_fields(b, a, each)) for each in names]
        causes = [
            Cause("+".join(each), _words(a, each), _words(b, each), self._gap(one), self._gap(others))
            for each, one, others in zip(names, alone, without)
        ]
        rest = torch.cat(
            [
                (b_ - a_ - sum((one[i] - a_ for one in alone), torch.zeros_like(a_))).abs()
                for i, (a_, b_) in enumerate(zip(self._reference, together))
            ]
        )
        of_kinds = [
            {"kind": kind, "alone": self._gap(self._runs.of(a, (kind, with_fields(a, b, OF_OPERATIONS))))}
            for kind in kinds
        ]
        twin = self._runs.twin(a, seed)
        return Mismatch(
            a=a,
            b=b,
            band=self._band,
            gap=self._gap(together),
            causes=sorted(causes, key=lambda each: -each.alone.mean_abs),
            rest=float(rest.mean()),
            twin=None if twin is None else self._gap(twin),
            worst=self._worst(together),
            tokens=rest.numel(),
            batches=len(together),
            runs=self._runs.count,
            kinds=sorted(of_kinds, key=lambda each: -each["alone"].mean_abs),
            first=first,
        )

    def _gap(self, values: list[torch.Tensor]) -> Gap:
        each = [value - reference for value, reference in zip(values, self._reference)]
        gaps = torch.cat(each)
        ratios = (-gaps).exp()
        outside = (ratios < self._band[0]) | (ratios > self._band[1])
        means = [float(gap.abs().mean()) for gap in each]
        return Gap(
            mean_abs=float(gaps.abs().mean()),
            mean=float(gaps.mean()),
            largest=float(gaps.abs().max()),
            k3=float((ratios - 1 + gaps).mean()),
            outside=float(outside.double().mean()),
            interval=mean_interval(means),
            of_batches=tuple(means),
        )

    def _worst(self, values: list[torch.Tensor]) -> dict[str, Any]:
        each = [(value - reference).abs() for value, reference in zip(values, self._reference)]
        batch = max(range(len(each)), key=lambda i: float(each[i].max()))
        index = int(each[batch].argmax())
        tokens = self._runs.batches[batch]
        row, *position = tokens.place(index)
        return {
            "batch": batch,
            "row": row,
            "position": position[0] if len(position) == 1 else tuple(position),
            "token": tokens.token(index),
            "a": float(self._reference[batch][index]),
            "b": float(values[batch][index]),
        }

    def _kinds(self) -> tuple[list[str], tuple[str, str] | None]:
        """Kinds of operations of a's run, and where b's results first differ."""
        a, b = self._a, with_fields(self._a, self._b, OF_OPERATIONS)
        if "native" in (a.row, self._b.row):
            raise ValueError('mismatch: by_operation needs rows of tensor cores in both, not "native"')
        before, after = self._runs.results(a), self._runs.results(b)
        first = next(
            (place for place, value in before.items() if not _same_bits(value, after.get(place))),
            None,
        )
        return list(dict.fromkeys(place.op for place in before)), first and (first.layer, first.op)


def _same_bits(value: torch.Tensor, other: torch.Tensor | None) -> bool:
    if other is None or value.shape != other.shape or value.dtype != other.dtype:
        return False
    return torch.equal(value.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _words(engine: Engine, names: Sequence[str]) -> str:
    values = [getattr(engine, name) for name in names]
    return ", ".join(_plan_in_words(value) if isinstance(value, Plan) else str(value) for value in values)


def _plan_in_words(plan: Plan) -> str:
    """Its name and what is not as it is without being given: "split-k, parts 4"."""
    others = [(each, getattr(plan, each.name)) for each in fields(plan) if each.name != "name"]
    given = [f"{each.name} {value}" for each, value in others if value != each.default]
    return ", ".join([plan.name, *given])
