"""Tensor-core bits, loss-scale policies and gradient histograms. See the README of this package."""

from ._core import Histogram

__all__ = ["Histogram"]
