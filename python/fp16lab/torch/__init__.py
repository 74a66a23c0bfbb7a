"""fp16lab beside any PyTorch training: CUDA's autocast on the CPU, loss-scale policies, exponent
histograms, op statistics, first culprits.

    import fp16lab.torch as lab
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("fp16lab.torch needs PyTorch: pip install torch") from error

from ..comparisons import compare
from . import operators as _operators  # noqa: F401  (torch.ops.fp16lab)
from .autocasting import autocast
from .batch_invariance import BatchInvariance, batch_invariance
from .checking import NonFiniteError, check_tensors
from .communication import comm_hook
from .emulating import emulate
from .emulation import EmulationError
from .engines import Engine
from .explaining import Explanation, explain_overflow
from .grad_scaler import GradScaler
from .mismatch import Mismatch, mismatch
from .op_statistics import op_stats
from .optimizer_check import OptimizerCheck, check_optimizer
from .recipes import Recipe, recipe, recipes
from .recording import merge
from .sensitivity import Sensitivity, sensitivity
from .step_results import StepResults, step_results
from .summations import reveal
from .trainers import LightningCallback, TrainerCallback
from .twins import perturb_ulps
from .watching import watch

__all__ = [
    "BatchInvariance",
    "EmulationError",
    "Engine",
    "Explanation",
    "GradScaler",
    "LightningCallback",
    "Mismatch",
    "NonFiniteError",
    "OptimizerCheck",
    "Recipe",
    "Sensitivity",
    "StepResults",
    "TrainerCallback",
    "autocast",
    "batch_invariance",
    "check_optimizer",
    "check_tensors",
    "comm_hook",
    "compare",
    "emulate",
    "explain_overflow",
    "merge",
    "mismatch",
    "op_stats",
    "perturb_ulps",
    "recipe",
    "recipes",
    "reveal",
    "sensitivity",
    "step_results",
    "watch",
]
