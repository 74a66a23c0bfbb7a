"""Histograms of magnitudes by binary exponent."""

from __future__ import annotations

from typing import Any

from ._core import Histogram
from .arrays import codes_of, thread_count


def histogram(x: Any, threads: int | None = None) -> Histogram:
    """Counts the magnitudes of x by binary exponent.

    x: any shape and strides; dtypes as in round. A dense array is read in place, whatever its
    order. Counts never depend on threads. Errors: ValueError or TypeError in one line. Source:
    numerics/histogram/exponent_histogram.hpp.

    >>> import numpy, fp16lab
    >>> h = fp16lab.histogram(numpy.array([2.0**-26, 2.0**-20, 2.0**-10, 0.0], numpy.float32))
    >>> h.zones(format="f16")["lost"], h.zones(scale=2**12, format="f16")["lost"]
    ((1, 1), (0, 0))
    >>> h.suggest_scale("f16").suggested
    17
    """
    codes = codes_of(x, "x")
    counts = Histogram()
    counts._count(codes.words.ravel(order="K"), codes.format, thread_count(threads))
    return counts


__all__ = ["Histogram", "histogram"]
