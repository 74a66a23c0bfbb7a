"""Rows of words as a table for a terminal, and rows as a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import _core


def save_csv(path: str | os.PathLike[str], heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Writes the file as a whole or not at all; returns the path."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    _core.write_file_atomically(os.fspath(path), text.getvalue().encode())
    return Path(path)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """One line a row, the heading first: three columns of names to the left, numbers to the right.

    >>> print(aligned([["op", "layer", "pass", "f16"], ["mm", "fc1", "forward", "12"]]), end="")
    op  layer  pass     f16
    mm  fc1    forward   12
    """
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ""
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:3], widths)]
        cells += [cell.rjust(width) for cell, width in zip(line[3:], widths[3:])]
        text += "  ".join(cells).rstrip() + "\n"
    return text
