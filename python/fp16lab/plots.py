"""Histograms as figures; needs matplotlib."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._core import Histogram
from .arrays import FORMATS

_COLORS = {"lost": "#c44e52", "subnormal": "#dd8452", "normal": "#4c72b0", "overflow": "#8172b3"}


def plot_histogram(histogram: Histogram, scale: float = 1.0, format: str = "f16", axes: Any = None) -> Any:
    """Draws the counts over the exponent of |x| * scale, coloured by the zone of each bin.

    A bin that an edge of the format cuts has the colour of its smaller numbers. axes: matplotlib's, or None
    for the current figure's. Gives the axes. ImportError in one line where matplotlib is not there.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.patches import Patch
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from None
    zones = histogram.zones(scale, format)  # refuses a wrong scale or format
    axes = axes if axes is not None else pyplot.gca()
    shift = math.log2(scale)
    bins = histogram.bins
    lows = np.arange(bins.size) - 150 + shift
    limits = FORMATS[format]
    edges = (limits.smallest - 1, limits.smallest + limits.precision - 1, limits.greatest + 1)
    zone = histogram._zones_of_bins(scale, format)
    used = np.flatnonzero(bins)
    entries = []
    for index, (name, color) in enumerate(_COLORS.items()):
        shown = used[zone[used] == index]
        lower, upper = zones[name]
        count = f"{lower}" if lower == upper else f"{lower} to {upper}"
        axes.bar(lows[shown] + 0.5, bins[shown], width=0.9, color=color)
        entries.append(Patch(color=color, label=f"{name}: {count}"))  # a zone without bars has its colour too
    for edge in edges:
        axes.axvline(edge, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("log2 |x|" if scale == 1 else f"log2 |x| + {shift:g}")
    axes.set_ylabel("values")
    axes.set_title(f"{histogram.total} values in {format}, {histogram.zero} zeros")
    axes.legend(handles=entries)
    return axes


def plot_summation_tree(tree: Any, axes: Any = None) -> Any:
    """Implements SummationTree.plot, which documents the arguments."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from None
    axes = axes if axes is not None else pyplot.gca()
    terms, joins = tree.terms, tree.joins
    x, y = np.zeros(terms + len(joins)), np.zeros(terms + len(joins))
    x[:terms] = np.arange(terms)
    for node, join in enumerate(joins, terms):
        x[node], y[node] = x[join].mean(), y[join].max() + 1
        leaves = [child for child in join if child < terms]
        axes.hlines(y[node], x[join].min(), x[join].max(), "#b84f00" if len(join) > 2 else "#0072b2")
        foot = [y[node] - 0.5 if child < terms else y[child] for child in join]
        axes.vlines(x[join], foot, y[node], "#808080", linewidth=0.8)
        if terms <= 200:
            axes.plot(leaves, [y[node] - 0.5] * len(leaves), ".", color="#222222", markersize=3)
    axes.set_xlabel("term")
    axes.set_ylabel("sums on the longest path")
    axes.set_title(f"{terms} terms: {tree.in_words or 'an order without a name'}", wrap=True)
    return axes


def save_summation_tree(tree: Any, path: Any) -> None:
    """Implements SummationTree.save: a figure by the ending of the path."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("a figure needs matplotlib: pip install matplotlib; a .json does not") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    plot_summation_tree(tree, figure.subplots())
    figure.savefig(path)
