"""Rows of words as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


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
