"""Histograms of magnitudes by binary exponent."""

from __future__ import annotations

from typing import Any

from ._core import Histogram
from .arrays import codes_of, is_tensor, require_no_gradient, thread_count


def histogram(x: Any, threads: int | None = None, device: str = "cpu") -> Histogram:
    """Counts the magnitudes of x by binary exponent.

    x: any shape and strides; dtypes as in round. A dense array is read in place, whatever its
    order, and a torch.Tensor of a device is counted there. Counts never depend on threads. device:
    "cpu", or "cuda", where a GPU counts what is copied to it in parts: float32, float16 and bfloat16
    alone. Errors: ValueError or TypeError in one line; RuntimeError where there is no GPU. Source:
    numerics/histogram/exponent_histogram.hpp.

    >>> import numpy, fp16lab
    >>> h = fp16lab.histogram(numpy.array([2.0**-26, 2.0**-20, 2.0**-10, 0.0], numpy.float32))
    >>> h.zones(format="f16")["lost"], h.zones(scale=2**12, format="f16")["lost"]
    ((1, 1), (0, 0))
    >>> h.suggest_scale("f16").suggested
    17
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f'device is {device!r}; expected "cpu" or "cuda"')
    if is_tensor(x) and _is_on_device(x):
        from .torch.device_counts import DeviceCounts

        require_no_gradient(x, "x")
        rows = DeviceCounts(x.device)
        rows.add(rows.new_row(), x)
        return rows.read()[0]
    codes = codes_of(x, "x")
    counts, words = Histogram(), codes.words.ravel(order="K")
    if device == "cuda":
        counts._count_on_device(words, codes.format)
    else:
        counts._count(words, codes.format, thread_count(threads))
    return counts


def _is_on_device(x: Any) -> bool:
    return x.device.type not in ("cpu", "meta")


__all__ = ["Histogram", "histogram"]
