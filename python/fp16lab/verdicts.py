"""fp16lab.verdict: paired statistics of training runs, as the experiments and the page judge theirs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from .runs import Run, load_run

_Runs = Sequence["Run | str | os.PathLike[str]"]


@dataclass(frozen=True)
class Verdict:
    """A variant against its reference over seeds.

    word: "equal", "better", "worse" or "cannot tell". text: the same with what it rests on. mean, interval
    (95 %): of the differences in the metric's own sign, variant - reference: percent of a loss, points of an
    accuracy.
    """

    word: str
    text: str
    pairs: int
    mean: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        return self.text


def verdict(
    runs: _Runs | Mapping[str, _Runs],
    reference: _Runs,
    *,
    metric: str = "loss",
    margin: float = 1.0,
) -> Any:
    """Is a variant equal to its reference, better, or worse, judged by its runs' last evaluation?

    runs, reference: folders (or load_run's) of training runs, one for each seed, in the same order: run i of both
    shares its seed. With several variants, give them by name: their tests are one family (Holm for a
    difference, Benjamini and Hochberg for equality), and the result is a Verdict for each name. metric: "loss"
    (differences in percent; tests and margin are of 100 ln of the ratio) or "accuracy" (in points), of the last
    "test" evaluation. margin: what counts as equal, in the same unit, fixed before the runs.

    A variant that diverged, or ended with a value that is not finite, where its reference did not is worse;
    pairs whose reference did are left out. Fewer than three pairs are inconclusive ("cannot tell").
    Errors: ValueError for other numbers of runs, and for a run that has not ended, is damaged or has no
    evaluation.
    Source: analysis/paired_verdict.hpp.

    >>> fp16lab.verdict(["half-1", "half-2", "half-3"], ["full-1", "full-2", "full-3"])    # doctest: +SKIP
    Verdict(word='equal', text='equal within 1 %', pairs=3, mean=0.02, interval=(-0.1, 0.14))
    """
    if metric not in ("loss", "accuracy"):
        raise ValueError(f'metric is {metric!r}; "loss" or "accuracy" is needed')
    if not margin > 0 or not math.isfinite(margin):
        raise ValueError(f"margin is {margin!r}; a finite number above 0 is needed")
    named = runs if isinstance(runs, Mapping) else {"": runs}
    for given in (reference, *named.values()):
        if isinstance(given, (str, os.PathLike)):
            raise ValueError(
                f"{os.fspath(given)!r} is one folder; a list of them, one for each seed, is needed"
            )
    references = [_last(run, metric) for run in reference]
    differ = _core.loss_difference if metric == "loss" else _core.accuracy_difference
    differences: list[list[float]] = []
    diverged: list[int] = []
    dropped: list[int] = []
    for name, variant in named.items():
        values = [_last(run, metric) for run in variant]
        if len(values) != len(references):
            of = f" of {name!r}" if name else ""
            raise ValueError(
                f"{len(values)} runs{of} and {len(references)} of the reference: run i of both needs one seed"
            )
        pairs = [(value, base) for value, base in zip(values, references) if base is not None]
        differences.append([differ(value, base) for value, base in pairs if value is not None])
        diverged.append(sum(value is None for value, _ in pairs))
        dropped.append(len(values) - len(pairs))
    unit = "%" if metric == "loss" else "points"
    rows = _core.judge(differences, diverged, dropped, margin, unit)
    verdicts = {
        name: Verdict(row["word"], row["text"], row["pairs"], row["mean"], row["interval"])
        for name, row in zip(named, rows)
    }
    return verdicts if isinstance(runs, Mapping) else verdicts[""]


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of paired differences, by Student's t; None for fewer than three, and where all are
    equal. Source: analysis/paired_verdict.hpp. Errors: ValueError for NaN and Inf.

    >>> import fp16lab
    >>> low, high = fp16lab.mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    found: tuple[float, float] | None = _core.judge([list(values)], [0], [0], 1.0, "")[0]["interval"]
    return found


def _last(given: Run | str | os.PathLike[str], metric: str) -> float | None:
    """The last test value; None: the run diverged."""
    run = given if isinstance(given, Run) else load_run(given)
    if not run._read["whole"]:
        raise ValueError(f"{run.folder} is damaged: {run.damage[0]}")
    state = run.manifest["state"]
    if state == "diverged":
        return None
    if state in ("running", "failed"):
        raise ValueError(f"{run.folder} is {state}: only a run that has ended can be judged")
    table = run.evaluations
    rows = [i for i, split in enumerate(table["split"]) if split == "test"]
    values = table[metric]
    value = float(values[rows[-1]]) if rows else math.nan
    if not rows or metric == "accuracy" and math.isnan(value):
        raise ValueError(f"{run.folder} has no {metric} of an evaluation: w.evaluate(loss=...) tells one")
    return value if math.isfinite(value) else None
