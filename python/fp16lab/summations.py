"""In which order a sum adds its terms: revealed by calling it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _core

_MOST_TERMS = 16384


class SummationTree(_core.SummationTree):
    """The order of a sum of k terms.

    A node is a term, 0 to k - 1, or a join, which adds its children in one sum that is rounded once; join i
    is node k + i. terms: k. joins: the children of each. Attributes: terms, joins; depth, the most joins that a
    term goes through; widest_join, the most children; in_words, such as "chain of 4 blocks of 16", or None
    where the order is none that has a name; text, all of it as "((0 1 2 3) 4 5 6 7)". str() is short: [a b c]
    adds from left to right, {a b c} enters a sum at once, .. means more of what is before it. Trees
    are equal where the same terms meet in the same joins.

    Errors: ValueError for joins that make no tree. Source: analysis/summation_tree.hpp.

    >>> import fp16lab
    >>> tree = fp16lab.SummationTree(8, [[0, 1, 2, 3], [8, 4, 5, 6, 7]])
    >>> print(tree, "is a", tree.in_words)
    [{0..3} {4..7}] is a chain of 2 blocks of 4
    """

    def __init__(self, terms: int, joins: Sequence[Sequence[int]]) -> None:
        super().__init__(terms, [list(join) for join in joins])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _core.SummationTree) and self._equals(other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<SummationTree of {self.terms} terms: {self.in_words or self}>"

    def plot(self, axes: Any = None) -> Any:
        """Draws the tree: terms along x, each below the join that it enters, joins at their height.

        axes: matplotlib's, or None for the current figure's. Gives the axes. ImportError in one line where
        matplotlib is not there.
        """
        from .plots import plot_summation_tree

        return plot_summation_tree(self, axes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the tree to a file: as JSON where its name ends with .json (terms, depth, widest_join, in_words, short,
        joins), else as a figure, which plot draws and matplotlib writes. Gives the path.
        """
        path = Path(path)
        if path.suffix == ".json":
            self._save(str(path))
            return path
        from .plots import save_summation_tree

        save_summation_tree(self, path)
        return path


def reveal(
    function: Callable[[Any], Any],
    k: int,
    big: float = 2.0**100,
    unit: float = 1.0,
    most_units: int = _MOST_TERMS,
) -> SummationTree:
    """The order in which a function adds k terms.

    function: takes the terms, a new array of float64 of the shape (k,), and gives their sum: a number, or an
    array or tensor of one element. It is called about k times where the order is a chain, k * k / 2 at most,
    several times as often where a call takes only some of the units. One term is +big, one -big, the others 0
    or `unit`: the function may multiply them by ones, or cast them to a dtype that has these numbers.
    k: 1 to 16384. big: so large that big + n * unit is big in the type of every sum on the way, for n up to
    most_units; not so large that it overflows. Sums of FP16 want big=2.0**15, unit=2.0**-22, most_units=256.
    most_units: the most units of one call; fewer are taken where the sum cannot hold their count.

    Errors: ValueError in one line where the order is no tree of this kind: it depends on the terms, changes
    from call to call, or nothing is lost; TypeError for a result that is no number. What the function raises
    passes through. Source: analysis/summation_tree.hpp; the method is FPRev's (Xie et al., USENIX ATC 2025,
    arXiv 2411.00442).

    >>> import numpy, fp16lab
    >>> print(fp16lab.reveal(lambda terms: numpy.cumsum(terms, dtype="f4")[-1], 64))
    [0 1 .. 63]
    >>> ones = numpy.ones(64, "f4")
    >>> fp16lab.reveal(lambda terms: fp16lab.matmul(terms.astype("f4"), ones, "hopper"), 64).in_words
    'chain of 8 blocks of 8'
    """
    if not callable(function):
        raise TypeError(f"function is a {type(function).__name__}; something to call is needed")
    for name, value in (("k", k), ("most_units", most_units)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} is {value!r}; a whole number is needed")
    if not 1 <= k <= _MOST_TERMS or most_units < 1:
        raise ValueError(
            f"k is {k} and most_units {most_units}; 1 to {_MOST_TERMS} terms and at least 1 unit are needed"
        )
    terms = np.zeros(int(k))

    def call() -> float:
        result = function(terms.copy())
        try:
            return float(result.item() if hasattr(result, "item") else result)
        except (TypeError, ValueError, RuntimeError):
            shape = tuple(getattr(result, "shape", ()))
            what = type(result).__name__ + (f" of the shape {shape}" if shape else "")
            raise TypeError(f"the function gave a {what}; one number, the sum, is needed") from None

    joins, _ = _core.reveal(call, terms, float(big), float(unit), min(int(most_units), _MOST_TERMS))
    return SummationTree(int(k), joins)
