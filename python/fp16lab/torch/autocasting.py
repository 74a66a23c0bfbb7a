"""lab.autocast: a network on the CPU in the dtypes that CUDA's autocast gives it on a GPU."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import partial
from typing import Any

import torch

from . import autocast_names
from .autocast_kernels import overrides
from .autocast_scopes import Scope, thread


class autocast(ContextDecorator):
    """Mixed precision on CPU tensors by CUDA's op lists.

        with lab.autocast("cuda", torch.float16):      # was: torch.autocast("cuda", torch.float16)
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()

    torch.autocast("cpu") has other lists than torch.autocast("cuda"): softmax, layer_norm, exp, pow, sum and
    42 others stay in 16 bits on the CPU and compute in FP32 on a GPU, mv and addr the other way round, and
    binary_cross_entropy is refused on a GPU. A step under the CPU's lists is no picture of GPU training.

    The arguments are those of torch.autocast: device_type, "cuda" or "cpu" for what torch.autocast("cpu", dtype)
    does; dtype, what products compute in, torch.float16 (without it, too) or torch.bfloat16; enabled;
    cache_enabled. A dtype alone may come first: lab.autocast(torch.float16), and lists= is another name of
    device_type. It decorates functions, too.

    It casts CPU tensors, whatever it is called with; a network that gets others causes one warning a scope.

    Which lists count: those of the innermost open lab.autocast of the thread. A torch.autocast("cpu", ...) or
    torch.autocast("cuda", ...) inside of it, in a model's code or of torch.utils.checkpoint, switches on and off
    and sets the dtype, as torch.autocast("cuda", ...) does on a GPU, and leaves the lists; what else a model says
    about "cuda" (custom_fwd, custom_bwd, is_autocast_enabled, get_autocast_dtype) means these tensors. A
    torch.autocast("cuda") that was made before, on a machine without a GPU, has switched itself off for good. A
    backward pass that computes forward again does so under the lists of the first time, if that was in one of the
    thread's last 1024 scopes. Outside, and in threads that have not entered, torch.autocast("cpu") is what it was.

    Under CUDA's lists nn.LSTM, GRU and RNN run in FP16, under BF16 as well, as on a GPU, one operation after
    another: states round to FP16 at every step. The fused inference kernels of nn.TransformerEncoder are
    off, as on a GPU, and compiled networks run uncompiled; in a compiled function torch.compile refuses the
    scope. These switches are the whole process's: until the last scope ends, other threads run without the
    fused kernels and uncompiled, and without oneDNN while an nn.LSTM is computed in a scope.

    Casts of parameters are kept until the outermost scope ends, as torch does, so that gradients of one
    parameter's uses add up in 16 bits; uses by products that the CPU lists as well (linear, matmul, conv2d)
    and by those that it does not (einsum, mv, lstm_cell) add up apart.

    ValueError: another dtype, other lists. RuntimeError: left where it was not entered.

    >>> x = torch.ones(2, 2)
    >>> with autocast(torch.float16):
    ...     y = x @ x
    ...     y.dtype, y.softmax(-1).dtype
    (torch.float16, torch.float32)
    """

    def __init__(
        self,
        device_type: str | torch.dtype | None = None,
        dtype: torch.dtype | str | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        *,
        lists: str | None = None,
    ) -> None:
        if isinstance(device_type, torch.dtype) or device_type is None and isinstance(dtype, str):  # (dtype, lists)
            device_type, dtype = dtype, device_type
        if device_type is not None and lists is not None:
            raise ValueError(f"lab.autocast: {device_type!r} and lists={lists!r} are two; one is needed")
        lists = lists or str(device_type or "cuda")
        dtype = dtype or torch.float16
        if dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"lab.autocast: dtype {dtype!r} is not torch.float16 or torch.bfloat16")
        if lists not in ("cuda", "cpu"):
            raise ValueError(f'lab.autocast: lists={lists!r} is not "cuda" or "cpu"')
        self._lists = lists
        self._switch = partial(
            torch.autocast, "cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )

    def __enter__(self) -> autocast:
        overrides.install()
        autocast_names.install()
        thread.open.append(Scope(self, self._lists, self._switch()))
        return self

    def __exit__(self, *error: Any) -> None:
        thread.leave(self, *error)
