"""Run folders of the command line and of this package, as tables."""

from __future__ import annotations

import json
import os
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Mapping, Sequence, overload

import numpy as np

from . import _core
from .rows import CulpritRow, EvaluationRow, HistogramRow, OverflowRow, RecipeRow, StepRow

#: By table: (name, type, unit, meaning) of each column, as the C++ library describes it.
_FIELDS = {
    table: _core.record_fields(f"{table}.{'csv' if table in ('steps', 'evaluations') else 'jsonl'}")
    for table in ("steps", "evaluations", "histograms", "overflows")
}
OBSERVED = tuple(next(kind for name, kind, *_ in _FIELDS["histograms"] if name == "observed").split(", "))
_FLAGS = {name for fields in _FIELDS.values() for name, kind, *_ in fields if kind == "flag"}


class Run:
    """A run folder. Large files are read when first asked for.

    Tables (steps, evaluations, histograms, overflows) are pandas.DataFrames where pandas is there and numpy
    arrays with named fields elsewhere: run.steps["loss"] is a column of both. What a row lacks is NaN.
    Columns are those of the files (numerics/files/run/run_rows.hpp), and the docstring of each table has them;
    state_hash is a whole number, before and after are Histograms.
    """

    def __init__(self, folder: str | os.PathLike[str], tables: str | None = None) -> None:
        if tables not in (None, "numpy", "pandas"):
            raise ValueError(f'tables is {tables!r}; "numpy", "pandas" or None is needed')
        self.folder = Path(folder)
        self._tables = tables
        if not (self.folder / "manifest.json").is_file():
            raise FileNotFoundError(f"{self.folder}: no run folder: it has no manifest.json")
        self._read = _core.read_run(os.fspath(self.folder))

    def __fspath__(self) -> str:
        return os.fspath(self.folder)

    def __repr__(self) -> str:
        state = self.manifest.get("state", "?")
        return f"Run({os.fspath(self.folder)!r}, {state}, {len(self._read['steps']['step'])} steps)"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """manifest.json: arguments, commit, seeds, machine, data digests, exit state."""
        return dict(json.loads(self._document("manifest.json")))

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.toml, the resolved configuration."""
        return tomllib.loads(self._document("config.toml"))

    def _document(self, name: str) -> str:
        """A regular file of bounded length: nothing else is waited for."""
        return _core.read_document(os.fspath(self.folder / name)).decode()

    @property
    def finished(self) -> bool:
        """To its end, and no step or evaluation is lost."""
        return bool(self._read["finished"])

    @property
    def notes(self) -> list[str]:
        """What was odd but harmless, as a cut last line."""
        return list(self._read["notes"])

    @property
    def damage(self) -> list[str]:
        """What the folder lacks of what its run wrote, and what its run did not write."""
        return list(self._read["damage"])

    @cached_property
    def steps(self) -> Any:
        """A row an optimizer iteration."""
        return self._table(self._read["steps"])

    @cached_property
    def evaluations(self) -> Any:
        """A row an evaluation."""
        return self._table(self._read["evaluations"])

    @cached_property
    def histograms(self) -> Any:
        """A row a tensor and step."""
        return self.read_histograms(OBSERVED)

    @cached_property
    def overflows(self) -> Any:
        """A row a step that overflowed; rescued is True or False where lower scales were tried."""
        return self._table(_core.read_overflows(os.fspath(self.folder)))

    def read_histograms(self, tensors: str | Sequence[str] = "gradients") -> Any:
        """The histograms of some of OBSERVED alone."""
        names = [tensors] if isinstance(tensors, str) else list(tensors)
        return self._table(_core.read_histograms(os.fspath(self.folder), names))

    @overload
    def rows(self, table: Literal["steps"]) -> list[StepRow]: ...
    @overload
    def rows(self, table: Literal["evaluations"]) -> list[EvaluationRow]: ...
    @overload
    def rows(self, table: Literal["histograms"]) -> list[HistogramRow]: ...
    @overload
    def rows(self, table: Literal["overflows"]) -> list[OverflowRow]: ...
    @overload
    def rows(self, table: Literal["culprits"]) -> list[CulpritRow]: ...
    @overload
    def rows(self, table: Literal["recipe"]) -> list[RecipeRow]: ...
    def rows(self, table: str) -> Any:
        """A dictionary a row, whose keys and types fp16lab.rows has; what a row lacks is None. "culprits" and
        "recipe" (what operands lost to amp.recipe or lab.recipe) are empty where the run has none. ValueError
        for another table."""
        return _core.read_rows(os.fspath(self.folder), table)

    def _table(self, columns: Mapping[str, Any]) -> Any:
        arrays = {name: _column(name, values) for name, values in columns.items()}
        if self._tables != "numpy":
            try:
                from pandas import DataFrame

                return DataFrame(arrays)
            except ImportError:
                if self._tables == "pandas":
                    raise ImportError('tables="pandas" needs pandas: pip install pandas') from None
        table = np.empty(len(next(iter(arrays.values()))), [(name, a.dtype) for name, a in arrays.items()])
        for name, values in arrays.items():
            table[name] = values
        return table


for _table, _fields in _FIELDS.items():
    _of_table = getattr(Run, _table)
    _of_table.__doc__ = "\n".join(
        [_of_table.__doc__, "", *(f"{name} ({kind}): {meaning}" for name, kind, _, meaning in _fields)]
    )


def _column(name: str, values: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, np.ndarray):
        return values.astype(bool) if name in _FLAGS else values
    column = np.empty(len(values), object)
    column[:] = values
    return column


def load_run(folder: str | os.PathLike[str], tables: str | None = None) -> Run:
    """Reads a run folder, also of a run that is going on or was killed.

    tables: "pandas", "numpy", or None: pandas where it is there. Errors: FileNotFoundError where there is no
    run, RuntimeError "FILE:LINE: reason" for damage. Source: numerics/files/run/run_folder.hpp.

    >>> import fp16lab
    >>> run = fp16lab.load_run(folder)
    >>> [float(scale) for scale in run.steps["loss_scale"][:3]], run.manifest["state"]
    ([1048576.0, 524288.0, 262144.0], 'finished')
    >>> run.histograms["before"][0].zones(scale=2**12)["lost"]
    (0, 0)
    """
    return Run(folder, tables)
