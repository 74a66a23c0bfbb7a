"""What lab.watch keeps: numbers of steps and packed histograms; and the run folder of it. Numbers of a device are kept
there for some steps, and then come to the host together."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from .. import _core
from .counting import Counted, Tally, fetched, number
from .networks import some
from .recipes import SHARES, shares
from .step_ends import Ended, Number, first_hash, hash_fold, norm_of
from .tables import aligned

#: Counted steps after which what is on devices comes to the host, and steps of any kind.
_COUNTED_STEPS, _STEPS = 10, 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """A row of histograms.jsonl: one tensor in one step. A packed histogram has some 150 bytes."""

    step: int
    observed: str
    tensor: str
    kind: str
    dtype: str
    loss_scale: float
    packed_before: bytes
    packed_after: bytes | None  # None: nothing was rounded, both sides are the same

    @property
    def before(self) -> _core.Histogram:
        return _unpacked(self.packed_before)

    @property
    def after(self) -> _core.Histogram:
        return self.before if self.packed_after is None else _unpacked(self.packed_after)

    @property
    def values(self) -> int:
        """Finite and not zero before the rounding."""
        before = self.before
        return before.total - before.zero - before.infinite - before.nan

    @property
    def underflowed(self) -> int:
        """The ones of these that the rounding made zero."""
        return max(0, self.after.zero - self.before.zero)


@dataclass(eq=False, slots=True)
class Row:
    """What was counted of one tensor in one step, before and after a rounding; where nothing was rounded, both are
    one."""

    observed: str
    tensor: str
    kind: str
    dtype: str
    sides: list[tuple[Counted, Counted]] = field(default_factory=list)

    def counts(self, step: int, scale: float) -> Counts:
        """Gradients carry `scale`."""
        after = None
        if any(before is not after for before, after in self.sides):
            after = _packed_sum(after for _, after in self.sides)
        before, carried = _packed_sum(before for before, _ in self.sides), scale if self.observed == "gradients" else 1.0
        return Counts(step, self.observed, self.tensor, self.kind, self.dtype, carried, before, after)


@dataclass(slots=True)
class Step:
    """A row of steps.csv, by its columns."""

    step: int
    loss: float = math.nan
    grad_norm: float = math.nan
    loss_scale: float = 1.0
    found_inf: bool = False
    skipped: bool = False
    lr: float = math.nan
    state_hash: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Unsettled:
    """A step whose numbers may be on a device still. flags: found_inf of a scaler; weights: their digest."""

    step: Step
    ended: Ended
    flags: list[Number] | None
    weights: list[Number] | None
    rows: list[Row]
    nonfinite: Callable[[list[tuple[list[int], list[float]]]], list[str]]
    told: list[Number | None] = field(default_factory=lambda: [None, None])  # loss and norm

    def numbers(self) -> list[Any]:
        norms = [norms for _, norms in self.ended.of_parameters]
        ended = self.ended
        return [ended.scale, ended.lr, *self.told, ended.norms, ended.losses, self.flags, self.weights, norms]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A row of evaluations.csv."""

    step: int
    split: str
    loss: float
    accuracy: float | None


@dataclass
class Recording:
    """Rows in the order of steps; a step's histograms come before its row. Before they are looked at, `settle`."""

    tally: Tally = field(default_factory=Tally)
    counts: list[Counts] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    overflows: dict[int, list[str]] = field(default_factory=dict)  # step: parameters with an Inf or NaN
    culprits: dict[int, list[dict[str, object]]] = field(default_factory=dict)  # as culprits.jsonl has them
    operands: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # as recipe.jsonl has them
    unsettled: list[_Unsettled] = field(default_factory=list)
    hash: int = first_hash

    def end(self, *args: Any) -> None:
        """Takes what is known of a step (_Unsettled); what is on the host settles at once."""
        self.unsettled.append(_Unsettled(*args))
        self.steps.append(self.unsettled[-1].step)
        counted = sum(each.weights is not None for each in self.unsettled)
        waits = self.tally.waiting or any(isinstance(each, torch.Tensor) for each in _flat(self.unsettled[-1].numbers()))
        if not waits or counted >= _COUNTED_STEPS or len(self.unsettled) >= _STEPS:
            self.settle()

    def tell(self, loss: float | torch.Tensor | None, grad_norm: float | torch.Tensor | None) -> None:
        """Records both for the step that ended last; None: what was known stays."""
        told = [None if each is None else number(each) for each in (loss, grad_norm)]
        if self.unsettled:
            self.unsettled[-1].told = told
            return
        step, found = self.steps[-1], fetched(told)
        step.loss = step.loss if found[0] is None else found[0]
        step.grad_norm = step.grad_norm if found[1] is None else found[1]

    @property
    def has_counts(self) -> bool:
        """Are there any, on devices too?"""
        return bool(self.counts) or any(each.rows for each in self.unsettled)

    def settle(self) -> Recording:
        """What is on devices comes to the host; returns itself."""
        unsettled, self.unsettled = self.unsettled, []
        self.tally.read()
        numbers = iter(fetched(_flat([each.numbers() for each in unsettled])))
        for each in unsettled:
            scale, lr, loss, grad_norm, norms, losses, flags, weights, of_parameters = _like(each.numbers(), numbers)
            step, norm = each.step, norm_of(norms)
            step.loss_scale, step.lr = scale, lr
            step.loss = loss if loss is not None else sum(losses) / len(losses) if losses else math.nan
            step.grad_norm = grad_norm if grad_norm is not None else math.nan if norm is None else norm
            step.found_inf = norm is not None and not math.isfinite(norm) if flags is None else any(flags)
            step.skipped = flags is not None and step.found_inf
            self.counts += [row.counts(step.step, scale) for row in each.rows]
            if step.found_inf:
                ids = [ids for ids, _ in each.ended.of_parameters]
                self.overflows[step.step] = each.nonfinite([*zip(ids, of_parameters)])
            if weights is not None:
                self.hash = hash_fold(self.hash, *weights)
            self.hash = hash_fold(self.hash, math.nan if norm is None else norm, scale)
            step.state_hash = self.hash
        return self

    def histogram(self, tensor: str, observed: str, step: int | None) -> _core.Histogram:
        """The histogram of one step, or the sum over all of them; KeyError where nothing was counted."""
        total, found = _core.Histogram(), False
        for row in self.counts:
            if (row.tensor, row.observed) == (tensor, observed) and step in (None, row.step):
                total += row.after
                found = True
        if not found:
            of_step = "" if step is None else f" of step {step}"
            known = sorted({row.tensor for row in self.counts if row.observed == observed})
            raise KeyError(
                f"no {observed} of '{tensor}'{of_step} were counted; there are {', '.join(known) or 'none'}"
            )
        return total

    def table(self, step: int | None, format: str) -> str:
        """A line for each tensor of one counted step (the last one without `step`), in zones of `format`; then
        one for each operand that lab.recipe quantized."""
        steps = sorted({row.step for row in self.counts})
        if not steps:
            return "nothing was counted\n"
        step = steps[-1] if step is None else step
        lines: list[tuple[str, ...]] = [
            (
                "tensor",
                "observed",
                "dtype",
                "values",
                "zero %",
                "lost %",
                "subnormal %",
                "overflow %",
                "smallest",
                "greatest",
            )
        ]
        for row in self.counts:
            if row.step == step:
                lines.append(_line(row, format))
        if len(lines) == 1:
            raise KeyError(f"step {step} was not counted; counted are {', '.join(map(str, steps))}")
        title = f"step {step}, in {format} (values as they stand: gradients carry the loss scale)\n"
        quantized = [["operand", "product", "values", *SHARES]]
        for operand in self.operands.get(step, []):
            quantized.append([operand["tensor"], operand["product"], str(operand["values"]), *shares(operand)])
        left = f"what lab.recipe left of operands\n{aligned(quantized)}" if len(quantized) > 1 else ""
        return title + aligned(lines) + left

    def save(self, folder: str | os.PathLike[str], name: str, config: str, state: str, replace: bool) -> Path:
        """Writes a run folder (numerics/files/run/run_schema.hpp) that ended as `state` says; see
        `new_folder`. Rows of FP64 are written as f32, the widest that a folder's readers judge."""
        wide = dict.fromkeys(row.tensor for row in self.counts if row.dtype == "f64")
        if wide:
            warnings.warn(
                f"{os.fspath(folder)}: {some(wide)} in FP64 saved as dtype f32, the widest of a run folder; what lies"
                " beyond FP32's range is in the first or last bin",
                stacklevel=3,
            )

        def write(target: str) -> None:
            writer = _core.RunWriter(target, name, sys.argv, config, _build(), torch.get_num_threads())
            rows = iter(self.counts)
            row = next(rows, None)
            for step in self.steps:
                values = lost = 0
                while row is not None and row.step <= step.step:
                    if row.observed == "gradients" and row.packed_after is not None:
                        values += row.values
                        lost += row.underflowed
                    writer.histogram(
                        step=row.step,
                        tensor=row.tensor,
                        observed=row.observed,
                        kind=row.kind,
                        dtype="f32" if row.dtype == "f64" else row.dtype,
                        loss_scale=row.loss_scale,
                        before=row.before,
                        after=row.after,
                    )
                    row = next(rows, None)
                if step.step in self.overflows:
                    named = self.overflows[step.step]
                    writer.overflow(step=step.step, loss_scale=step.loss_scale, parameters=named)
                for culprit in self.culprits.get(step.step, ()):
                    writer.culprit(culprit)
                for operand in self.operands.get(step.step, ()):
                    writer.operand(step=step.step, **operand)
                writer.step(**asdict(step), underflow_rate=lost / values if values else None)
            for evaluation in self.evaluations:
                writer.evaluation(**asdict(evaluation))
            writer.finish(state)

        return new_folder(folder, write, replace)


def merge(
    folders: Iterable[str | os.PathLike[str]], folder: str | os.PathLike[str], *, replace: bool = False
) -> Path:
    """One run folder of those that the ranks of a training saved; returns its path.

    Histograms of gradients and activations are added: each rank counts its own part of the batch. Weights
    and optimizer state are the same everywhere, and taken once, or parts of tensors, and added where they
    differ. The loss is the mean, an evaluation's over the ranks that made it; seconds are the longest.
    ValueError: folders with other steps or loss scales, which are not ranks of one training, and damaged
    ones; FileNotFoundError: one that is not there; FileExistsError: `folder` exists (replace=True puts the new one in
    its place).

    >>> merge(["results/mine-rank0", "results/mine-rank1"], "results/mine")    # doctest: +SKIP
    """
    if isinstance(folders, (str, os.PathLike)):
        raise ValueError(f'merge: folders is "{os.fspath(folders)}"; a list is needed: ["{os.fspath(folders)}", ...]')
    own = [os.fspath(each) for each in folders]
    for path in map(Path, own):
        if not path.exists():
            beside = sorted(each.parent.name for each in path.parent.glob("*/manifest.json"))
            near = get_close_matches(path.name, beside, 1)
            hint = "".join(f"; did you mean {path.parent / each}?" for each in near)
            raise FileNotFoundError(f"merge: {path}: there is no such folder{hint}")
    return new_folder(folder, lambda target: _core.merge_runs(own, target), replace)


def new_folder(folder: str | os.PathLike[str], write: Callable[[str], object], replace: bool) -> Path:
    """Lets `write` fill a folder beside `folder`, which then gets its name: the old one is there or the new one, as
    a whole (numerics/files/disk/new_folder.hpp). FileExistsError where it is there already, but for replace=True
    and a run folder."""
    path = Path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _core.NewFolder(os.fspath(path)) as new:  # from here on, what a killed save left is in its place
        if path.exists() and not (replace and (path / "manifest.json").exists()):
            hint = "replace=True replaces a run" if (path / "manifest.json").exists() else "it holds no run"
            raise FileExistsError(f"{path} exists ({hint}); save under another name")
        write(new.made)
        new.commit(replace)
    return path


def _packed_sum(parts: Iterable[Counted]) -> bytes:
    total = _core.Histogram()
    for part in parts:
        total += part.histogram
    return zlib.compress(total.__getstate__(), 1)


def _flat(values: list[Any]) -> list[Any]:
    """The elements of lists in lists."""
    return [each for value in values for each in (_flat(value) if isinstance(value, list) else [value])]


def _like(values: Any, numbers: Iterator[Any]) -> Any:
    """`numbers` in the form of `values`."""
    return [_like(each, numbers) for each in values] if isinstance(values, list) else next(numbers)


def toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """A configuration file; JSON's strings, numbers, truth values and lists are TOML's, but for characters
    beyond U+FFFF, which JSON escapes in halves, and for DEL, which it does not escape."""

    def text_of(value: object) -> str:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    return "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {text_of(value)}\n" for key, value in values.items())
        for table, values in tables.items()
    )


def _unpacked(state: bytes) -> _core.Histogram:
    histogram = _core.Histogram.__new__(_core.Histogram)
    histogram.__setstate__(zlib.decompress(state))
    return histogram


def _line(row: Counts, format: str) -> tuple[str, ...]:
    histogram = row.before  # its place shows what a rounding makes of it
    zones = histogram.zones(1.0, format)

    def share(count: int | tuple[int, int]) -> str:
        """Percent; two numbers where an edge of the zone is within a bin."""
        if not zones["total"]:
            return "-"
        ends = [
            f"{100 * end / zones['total']:.2f}" for end in (count if isinstance(count, tuple) else (count,))
        ]
        return "-".join(dict.fromkeys(ends))

    beyond = (
        zones["overflow"][0] + zones["infinite"] + zones["nan"],
        zones["overflow"][1] + zones["infinite"] + zones["nan"],
    )
    return (
        row.tensor,
        row.observed,
        row.dtype,
        str(zones["total"]),
        share(zones["zero"]),
        share(zones["lost"]),
        share(zones["subnormal"]),
        share(beyond),
        f"{histogram.smallest:.3g}" if histogram.smallest else "-",
        f"{histogram.greatest:.3g}" if histogram.greatest else "-",
    )


def _build() -> str:
    from importlib.metadata import version

    return f"fp16lab {version('fp16lab')}, torch {torch.__version__}"
