"""What scopes have in common: they end once, in their own thread, and hold switches of the whole process."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch.backends import mha

from .. import _core


class Switch:
    """A switch of the whole process. Who enters holds it, in any thread: the first one turns it, and the last one
    that leaves, in whatever order they do, puts it back where the first one found it.

    turn: turns it, and returns what turns it back.
    """

    def __init__(self, turn: Callable[[], Callable[[], object]]) -> None:
        self._turn = turn
        self._lock = threading.Lock()
        self._holders = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._turn_back = self._turn()
            self._holders += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._turn_back()


def _fused_encoders_off() -> Callable[[], object]:
    was_on = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    return lambda: mha.set_fastpath_enabled(was_on)


def _force_eager() -> Callable[[], object]:
    stance = torch.compiler.set_stance("force_eager")
    return lambda: stance.__exit__(None, None, None)


def _onednn_off() -> Callable[[], object]:
    was_on = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    return lambda: torch._C._set_mkldnn_enabled(was_on)


#: torch.nn's transformer has fused inference kernels, MultiheadAttention too.
fused_encoders_off = Switch(_fused_encoders_off)
#: oneDNN has an LSTM in one operation, for some dtypes and processors.
onednn_off = Switch(_onednn_off)
#: What torch.compile made elsewhere would run as it is.
uncompiled = Switch(_force_eager)


# After each of torch's operations its threads spin for milliseconds, on the processors that other threads of fp16lab would
# need: it computes on torch's own. A torch without OpenMP has no such function.
with suppress(OSError, AttributeError):
    _parallel = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    _core.share_on_openmp_threads(ctypes.cast(_parallel, ctypes.c_void_p).value or 0)


class Opened:
    """What a scope holds while it is open. name: of the scope, for errors; of_thread: it ends in the thread that
    entered it."""

    def __init__(self, name: str, of_thread: bool = True) -> None:
        self._name, self._of_thread = name, of_thread
        self._held: ExitStack | None = None

    def require_closed(self) -> None:
        """RuntimeError: it is open."""
        if self._held is not None:
            raise RuntimeError(f"this {self._name} is open already: it is entered again after it was left")

    def hold(self, scope: ExitStack) -> None:
        """Takes over what `scope` has to undo."""
        self._held, self._thread = scope.pop_all(), threading.current_thread()

    def close(self, *error: Any) -> None:
        """RuntimeError: it is not open, or another thread's, and stays as it is."""
        if self._held is None:
            raise RuntimeError(f"this {self._name} is not open: it was never entered, or was left already")
        if self._of_thread and self._thread is not threading.current_thread():
            raise RuntimeError(
                f"this {self._name} was entered in the thread '{self._thread.name}', and is left in that one alone"
            )
        held, self._held = self._held, None
        held.__exit__(*(error or (None, None, None)))
