"""Tensor-core bits, loss-scale policies and gradient histograms. See the README of this package."""

from importlib.metadata import version

from ._core import SuggestedScale
from .comparisons import Comparison, compare
from .histograms import Histogram, histogram
from .policies import Policy, policies
from .program import ProgramError, inspect, replay, report
from .products import Explanation, Plan, Step, Term, explain, matmul, models, plans
from .quantization import (
    AmaxHistory,
    Quantized,
    Quantizer,
    quantize,
    quantized_matmul,
    quantizers,
    random_hadamard,
)
from .rounding import round
from .runs import Run, load_run
from .summations import SummationTree, reveal
from .verdicts import Verdict, mean_interval, verdict

#: The package's version: that of the C++ library it carries.
__version__ = version("fp16lab")

__all__ = [
    "AmaxHistory",
    "Comparison",
    "Explanation",
    "Histogram",
    "Plan",
    "Policy",
    "ProgramError",
    "Quantized",
    "Quantizer",
    "Run",
    "Step",
    "SuggestedScale",
    "SummationTree",
    "Term",
    "Verdict",
    "__version__",
    "compare",
    "explain",
    "histogram",
    "inspect",
    "load_run",
    "matmul",
    "mean_interval",
    "models",
    "plans",
    "policies",
    "quantize",
    "quantized_matmul",
    "quantizers",
    "random_hadamard",
    "replay",
    "report",
    "reveal",
    "round",
    "verdict",
]
