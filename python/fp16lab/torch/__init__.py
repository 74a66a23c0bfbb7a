"""fp16lab beside any PyTorch training: CUDA's autocast on the CPU, loss-scale policies, exponent
histograms, op statistics, first culprits.

    import fp16lab.torch as lab
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("fp16lab.torch needs PyTorch: pip install torch") from error

from .autocasting import autocast
from .explaining import Explanation, explain_overflow
from .grad_scaler import GradScaler
from .op_statistics import op_stats
from .recording import merge
from .watching import watch

__all__ = ["Explanation", "GradScaler", "autocast", "explain_overflow", "merge", "op_stats", "watch"]
