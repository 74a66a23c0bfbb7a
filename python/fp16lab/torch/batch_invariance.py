"""lab.batch_invariance: which operation's bits of one sample first depend on the batch that it is in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from .engines import Engine, engine_of, running
from .layers import float_tensors
from .tables import aligned
from .wide_operations import Place

CALL = "batch_invariance"


@dataclass(frozen=True)
class BatchInvariance:
    """What batches did to the bits of one sample. `print` it; or ask

    sizes   a dictionary for each size but the first: size, layer and op of the first result whose bits of the
            sample differ from those at the first size ("" where none does), differing and results (how many
            do, of how many), and largest: the largest difference of what the model gives
    cost    with measure, a dictionary for each fixed size: size; many, the time of the most rows in calls of
            this size, and one, the time of one row filled up to this size, against a single call of just
            these rows
    """

    engine: Engine
    sizes: list[dict[str, Any]]
    cost: list[dict[str, Any]]

    @property
    def invariant(self) -> bool:
        """No result's bits depend on the batch."""
        return all(row["differing"] == 0 for row in self.sizes)

    def __str__(self) -> str:
        head = ["first that differs", "layer", "", "batch", "results that differ", "largest difference"]
        rows = [
            [row["op"] or "none", row["layer"], "", str(row["size"])]
            + [f"{row['differing']} of {row['results']}", f"{row['largest']:.3g}"]
            for row in self.sizes
        ]
        told = aligned([head, *rows])
        if self.cost:
            costs = [["fixed size", "", "", "many rows", "one row"]]
            costs += [[str(c["size"]), "", "", f"{c['many']:.2f}", f"{c['one']:.2f}"] for c in self.cost]
            told += "\ntorch's own time on this CPU, against one call of just these rows\n" + aligned(costs)
        return told


def batch_invariance(
    model: nn.Module,
    sample: Any,
    sizes: Sequence[int] = (1, 2, 4, 8),
    *,
    engine: Engine | Mapping[str, Any] | str = "native",
    measure: int = 0,
) -> BatchInvariance:
    """Does a sample's answer depend on who else is in the batch, and which operation begins it?

    sample: what the model gets, a tensor or a dictionary of tensors; its first row is the sample. A batch of
    n is n copies of it, so every row has the same operands, and a kernel that is chosen by the shape alone is
    the only thing that can differ. engine: "native" is torch on this CPU in the model's own dtypes
    (Engine("native", dtype="bf16") under lab.autocast); Engine(row, library=plan) is a tensor core under a
    plan. Attention is its plain algorithm. Results of kernels as lab.mismatch has them, and of the products
    inside. measure: how often each fixed size is timed, natively and whatever the engine is; 0: not at all. A
    fixed size is a plan that does not follow the
    batch, in the simplest form: always call with this many rows, filled up where there are fewer. Of other
    batch-invariant kernels it says nothing.

    >>> told = batch_invariance(nn.Linear(64, 64).eval(), torch.ones(1, 64), (1, 8), engine=Engine("h100"))
    >>> told.invariant
    True

    TypeError: no module, or a sample without tensors. ValueError: a model in training mode; sizes that are
    not two or more different whole numbers from 1 on; an engine with batch, pad or head, which are chosen
    here or not at all.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"batch_invariance: model is of {type(model).__name__}; an nn.Module is needed")
    if model.training:
        raise ValueError("batch_invariance: the model is in training mode: model.eval()")
    numbers = [size for size in sizes if isinstance(size, int) and size > 0]
    if len(numbers) != len(sizes) or len(set(numbers)) != len(numbers) or len(numbers) < 2:
        raise ValueError(f"batch_invariance: sizes is {sizes!r}; two different whole numbers or more")
    if not any(isinstance(leaf, torch.Tensor) and leaf.dim() for leaf in tree_leaves(sample)):
        raise TypeError(f"batch_invariance: sample is of {type(sample).__name__}; tensors of rows are needed")
    which = Engine("native", dtype=None) if engine == "native" else engine_of(engine, "engine")
    if (which.batch, which.pad, which.head) != (None, None, None):
        raise ValueError("batch_invariance: batch, pad and head of an engine have no meaning here")
    first, *others = (_results(model, sample, size, which) for size in numbers)
    rows = [_compared(numbers[0], first, size, other) for size, other in zip(numbers[1:], others)]
    cost = [_cost(model, sample, size, max(numbers), measure) for size in numbers] if measure else []
    return BatchInvariance(which, rows, cost)


def _called(model: nn.Module, sample: Any, size: int) -> Any:
    def rows(value: Any) -> Any:
        many = isinstance(value, torch.Tensor) and value.dim() > 0
        return value[:1].repeat(size, *[1] * (value.dim() - 1)) if many else value

    given = tree_map(rows, sample)
    return model(**given) if isinstance(given, Mapping) else model(given)


def _results(model: nn.Module, sample: Any, size: int, engine: Engine) -> dict[Place, torch.Tensor]:
    """What each kernel gave, and at the end what the model did."""
    found: dict[Place, torch.Tensor] = {}

    def keep(place: Place, value: torch.Tensor) -> None:
        found[place] = value.detach().clone()

    with running(model, engine, seen=keep):
        given = _called(model, sample, size)
    for number, value in enumerate(float_tensors(getattr(given, "logits", given))):
        found[Place("forward", "", "the model", number)] = value
    return found


def _compared(
    m: int, first: dict[Place, torch.Tensor], n: int, other: dict[Place, torch.Tensor]
) -> dict[str, Any]:
    differing = [
        place
        for place, value in first.items()
        if place not in other or _difference(m, value, n, other[place])
    ]
    given = [place for place in first if place.op == "the model"]
    return {
        "size": n,
        "layer": differing[0].layer if differing else "",
        "op": differing[0].op if differing else "",
        "differing": len(differing),
        "results": len(first),
        "largest": max((_difference(m, first[place], n, other[place]) for place in given), default=0.0),
    }


def _difference(m: int, a: torch.Tensor, n: int, b: torch.Tensor) -> float:
    """The largest between a of m copies and b of n copies of a sample, wherever in a dimension the copies
    lie: one after another, or interleaved. inf: shapes that do not fit, NaN against a number."""
    if a.shape == b.shape:
        return _largest(a, b)
    if a.dim() != b.dim():
        return float("inf")
    scaled = [at for at, (x, y) in enumerate(zip(a.shape, b.shape)) if x != y]
    if len(scaled) != 1 or a.shape[scaled[0]] * n != b.shape[scaled[0]] * m or a.shape[scaled[0]] % m:
        return float("inf")
    at = scaled[0]
    one = a.shape[at] // m
    return min(
        _largest(
            a.unflatten(at, lengths(m)).select(at + axis, 0),
            b.unflatten(at, lengths(n)).select(at + axis, 0),
        )
        for axis, lengths in ((0, lambda k: (k, one)), (1, lambda k: (one, k)))
    )


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    same = (a == b) & (a.signbit() == b.signbit()) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return 0.0
    apart = (a.double() - b.double()).abs()[~same]
    return max(float(apart.nan_to_num(float("inf"), float("inf")).max()), torch.finfo(torch.float64).tiny)


def _cost(model: nn.Module, sample: Any, size: int, most: int, repeats: int) -> dict[str, Any]:
    calls = -(-most // size)

    def timed(rows: int, times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            _called(model, sample, rows)
        return time.perf_counter() - begin

    many, one = [], []
    with torch.no_grad():
        timed(size, 1), timed(most, 1)
        for _ in range(repeats):  # side by side, so that a slow moment meets both
            many.append(timed(size, calls) / timed(most, 1))
            one.append(timed(size, 1) / timed(1, 1))
    return {"size": size, "many": median(many), "one": median(one)}
