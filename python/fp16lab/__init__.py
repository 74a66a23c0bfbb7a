"""Tensor-core bits, loss-scale policies and gradient histograms. See the README of this package."""

from ._core import SuggestedScale
from .histograms import Histogram, histogram
from .policies import Policy, policies
from .program import ProgramError, inspect, replay, report
from .products import Explanation, Step, Term, explain, matmul, models
from .rounding import round
from .runs import Run, load_run

__all__ = [
    "Explanation",
    "Histogram",
    "Policy",
    "ProgramError",
    "Run",
    "Step",
    "SuggestedScale",
    "Term",
    "explain",
    "histogram",
    "inspect",
    "load_run",
    "matmul",
    "models",
    "policies",
    "replay",
    "report",
    "round",
]
