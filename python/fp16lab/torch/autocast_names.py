"""What a model says about "cuda" holds inside of lab.autocast, whose lists are CUDA's.

torch.autocast("cuda", ...), torch.cuda.amp.autocast, custom_fwd and custom_bwd(device_type="cuda"),
is_autocast_enabled("cuda"), get_autocast_dtype("cuda") and their setters all go through four functions of torch and
one of torch.amp. Where CUDA's lists count, in an open lab.autocast and in the backward pass of what was computed in
one, "cuda" there is "cpu", whose tensors these are. Elsewhere, in other threads too, nothing changes.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.cuda.amp import common
from torch.jit import _builtins

from .autocast_scopes import thread

_lock = threading.Lock()
_installed = False


def install() -> None:
    """From the first lab.autocast on; for the process."""
    global _installed
    with _lock:
        if _installed:
            return
        for name in ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"):
            _replace(name, _of_state)
        _replace("get_autocast_gpu_dtype", _of_gpu)
        autocast_mode._cast = _of_cast(autocast_mode._cast)
        autocast_mode.autocast.__init__ = _of_init(autocast_mode.autocast.__init__)  # type: ignore[method-assign]
        _installed = True


def _replace(name: str, by: Callable[[Callable], Callable]) -> None:
    """torch.jit.script goes on taking torch.NAME for the operation that it knows."""
    original = getattr(torch, name)
    operation = _builtins._find_builtin(original)
    call = by(original)
    setattr(torch, name, call)
    if operation is not None:
        _builtins._register_builtin(call, operation)


def _is_ours(device: Any) -> bool:
    """Does "cuda" mean CPU tensors here? (torch.compile traces torch's own.)"""
    return device == "cuda" and not torch.compiler.is_compiling() and thread.lists() == "cuda"


def _of_state(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any) -> Any:
        if original.__name__ == "set_autocast_enabled" and len(args) == 1 or not args:
            args = ("cuda", *args)  # what torch means without a device
        return original("cpu" if _is_ours(args[0]) else args[0], *args[1:])

    return call


def _of_gpu(original: Callable) -> Callable:
    @wraps(original)
    def get_autocast_gpu_dtype() -> Any:
        return torch.get_autocast_dtype("cpu") if _is_ours("cuda") else original()

    return get_autocast_gpu_dtype


def _of_cast(original: Callable) -> Callable:
    @wraps(original)
    def cast(value: Any, device_type: str, dtype: Any) -> Any:
        return original(value, "cpu" if _is_ours(device_type) else device_type, dtype)

    return cast


def _of_init(original: Callable) -> Callable:
    @wraps(original)
    def init(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
    ) -> None:
        ours = _is_ours(device_type)  # without a GPU torch's own would not switch on
        if device_type == "cuda" and enabled and not ours and common.amp_definitely_not_available():
            # Torch's own warning would name the line below as its place.
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
            enabled = False
        original(self, device_type, dtype, enabled and not ours, cache_enabled)
        if ours:
            self._enabled = enabled

    return init
