"""lab.autocast: a network on the CPU in the dtypes that CUDA's autocast gives it on a GPU."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from functools import partial
from typing import Any

import torch
from torch.backends import mha

from .autocast_lists import CUDA_POLICIES, NO_16_BIT_KERNEL, RECURRENT, WITH_DTYPE

_KEY = torch._C.DispatchKey.AutocastCPU
_BELOW = torch._C._dispatch_keyset_full_after(_KEY)


def _listed(key: str) -> frozenset[str]:
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return frozenset(name for name in names if name.startswith("aten::"))


#: What PyTorch at hand lists for autocast, before anything here changes it.
CUDA_LISTED, CPU_LISTED = _listed("AutocastCUDA"), _listed("AutocastCPU")

#: On both lists, and with the same casts (test_autocast_lists.py): PyTorch's kernel stays.
SAME_ON_BOTH = frozenset(
    name
    for name in CUDA_LISTED & CPU_LISTED
    if CUDA_POLICIES.get(name) in ("lower_precision_fp", "fp32")
)


class autocast(ContextDecorator):
    """Mixed precision on CPU tensors by CUDA's op lists.

        with lab.autocast(torch.float16):              # was: torch.autocast("cuda", torch.float16)
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()

    torch.autocast("cpu") has other lists than torch.autocast("cuda"): softmax, layer_norm, exp, pow, sum and
    60 others stay in 16 bits on the CPU and compute in FP32 on a GPU, mv and addr the other way round, and
    binary_cross_entropy is refused on a GPU. A step under the CPU's lists is no picture of GPU training.

    dtype: torch.float16 or torch.bfloat16, what products compute in.
    lists: "cuda", or "cpu" for what torch.autocast("cpu", dtype) does.
    enabled, cache_enabled: as torch.autocast has them. It decorates functions, too.

    Which lists count: those of the innermost open lab.autocast of the thread. A torch.autocast("cpu", ...)
    inside of it, in a model's code or of torch.utils.checkpoint, switches on and off and sets the dtype, as
    torch.autocast(x.device.type, ...) does on a GPU, and leaves the lists. A backward pass that computes
    forward again does so under the lists of the first time. Outside, and in threads that have not entered,
    torch.autocast("cpu") is what it was.

    Under CUDA's lists nn.LSTM, GRU and RNN run in FP16, under BF16 as well, as on a GPU; all but their
    products round at every step. The fused inference kernels of nn.TransformerEncoder are off, as on a GPU,
    and compiled networks run uncompiled; inside of a compiled function torch.compile refuses the scope.

    Casts of parameters are kept until the outermost scope ends, as torch does, so that gradients of one
    parameter's uses add up in 16 bits; uses by products that the CPU lists as well (linear, matmul, conv2d)
    and by those that it does not (einsum, mv, lstm_cell) add up apart.

    ValueError: another dtype, other lists.

    >>> x = torch.ones(2, 2)
    >>> with autocast(torch.float16):
    ...     y = x @ x
    ...     y.dtype, y.softmax(-1).dtype
    (torch.float16, torch.float32)
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.float16,
        lists: str = "cuda",
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"lab.autocast: dtype {dtype} is not torch.float16 or torch.bfloat16")
        if lists not in ("cuda", "cpu"):
            raise ValueError(f'lab.autocast: lists={lists!r} is not "cuda" or "cpu"')
        self._lists = lists
        self._switch = partial(
            torch.autocast, "cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )

    def __enter__(self) -> autocast:
        _overrides.install()
        _thread.open.append(_Scope(self._lists, self._switch()))
        return self

    def __exit__(self, *error: Any) -> None:
        _thread.leave(*error)


class _Scope:
    """An open or past lab.autocast: its lists, and the numbers of the autograd nodes that were made in it."""

    def __init__(self, lists: str, switch: torch.autocast) -> None:
        self.lists = lists
        with ExitStack() as switches:
            switches.enter_context(switch)
            if lists == "cuda":
                switches.enter_context(_as_written)
            self.switches = switches.pop_all()
        self.first_node = torch._C._autograd._get_sequence_nr()
        self.end_node = self.first_node


#: In place of an autograd node's number: forward, in an open scope.
_OPEN = -1


class _Thread(threading.local):
    """The scopes of one thread, and its casts of parameters."""

    def __init__(self) -> None:
        self.open: list[_Scope] = []
        self.past: deque[_Scope] = deque(maxlen=1024)
        self.casts: dict[tuple, tuple[weakref.ref, torch.Tensor]] = {}
        self.casts_of = _OPEN

    def leave(self, *error: Any) -> None:
        scope = self.open.pop()
        scope.switches.__exit__(*error)
        scope.end_node = torch._C._autograd._get_sequence_nr()
        self.past.append(scope)
        if not self.open:
            self.casts.clear()

    def lists(self) -> str:
        """Which lists count for the operation at hand."""
        if self.open:
            return self.open[-1].lists
        node = torch._C._current_autograd_node()
        return "cpu" if node is None else self._lists_of(node._sequence_nr())

    def _lists_of(self, node: int) -> str:
        """Those under which an autograd node was made: a backward pass is computing forward again."""
        for scope in reversed(self.past):
            if scope.first_node <= node < scope.end_node:
                # What is made now belongs to it, too: checkpoints in checkpoints.
                scope.end_node = max(scope.end_node, torch._C._autograd._get_sequence_nr())
                return scope.lists
        return "cpu"

    def parameter(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The cast of a parameter: one for all uses, as at::autocast::cached_cast keeps it.

        Kept until the outermost scope ends; by a backward pass that computes forward again, for one node.
        Unlike there, a cast made without gradients serves no use that needs them, nor one from before the
        parameter changed.
        """
        place = _OPEN if self.open else torch._C._current_autograd_node()._sequence_nr()
        if place != self.casts_of:
            self.casts.clear()
            self.casts_of = place
            if not self.open:  # a backward pass that computes forward again
                torch.autograd.Variable._execution_engine.queue_callback(self.casts.clear)
        key = (id(value), dtype, value._version, torch.is_grad_enabled())
        kept = self.casts.get(key)
        if kept is None or kept[0]() is not value:
            kept = self.casts[key] = weakref.ref(value), value.to(dtype)
        return kept[1]


class _AsWritten:
    """While it is open, networks run operation by operation: the switches are the process's, not a thread's.

    torch.nn's transformer has fused inference kernels, which it leaves aside under CUDA's autocast. What
    torch.compile made under other lists would run again under these: compiled networks run uncompiled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._restore = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._open == 0:
                if "torch._dynamo" in sys.modules:
                    self._restore.enter_context(torch.compiler.set_stance("force_eager"))
                self._restore.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
                mha.set_fastpath_enabled(False)
            self._open += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._restore.close()


_thread = _Thread()
_as_written = _AsWritten()


# ---- casts: at::autocast::cached_cast, promote_type and the rest of autocast_mode.h ----


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
        and value.dtype is not torch.float64
        and (value.is_cpu or value.is_mkldnn)
    )


def _cast(value: Any, dtype: torch.dtype, keep: bool = False) -> Any:
    """Tensors, and lists of them, as dtype where they are eligible; `keep` the casts of parameters."""
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype, keep) for item in value]
    if not _eligible(value) or value.dtype is dtype:
        return value
    if keep and value.dtype is torch.float32 and value.requires_grad and value.is_leaf:
        if torch.is_autocast_cache_enabled() and not value._is_view() and not value.is_inference():
            return _thread.parameter(value, dtype)
    return value.to(dtype)


def _cast_all(op: Callable, args: tuple, kwargs: dict, dtype: torch.dtype, keep: bool = False) -> Any:
    if kwargs:
        kwargs = {name: _cast(value, dtype, keep) for name, value in kwargs.items()}
    return op(*[_cast(value, dtype, keep) for value in args], **kwargs)


def _widest(values: Any, widest: torch.dtype) -> torch.dtype:
    lower = torch.get_autocast_dtype("cpu")
    for value in values:
        if isinstance(value, (list, tuple)):
            widest = _widest(value, widest)
        elif not _eligible(value):
            continue
        elif torch.float32 in (widest, value.dtype):
            widest = torch.float32
        elif value.dtype is not lower:
            raise RuntimeError(
                f"autocast to {lower} cannot promote {value.dtype}, as on a GPU: cast the tensor before"
            )
    return widest


# ---- policies: op -> what runs in its place, autocast being off meanwhile ----


def _lower_precision_fp(op: Any) -> Callable:
    return lambda args, kwargs: _cast_all(op, args, kwargs, torch.get_autocast_dtype("cpu"), keep=True)


def _fp32(op: Any) -> Callable:
    return lambda args, kwargs: _cast_all(op, args, kwargs, torch.float32)


def _fp32_set_opt_dtype(op: Any) -> Callable:
    place = [argument.name for argument in op._schema.arguments].index("dtype")

    def call(args: tuple, kwargs: dict) -> Any:
        given = args[place] if len(args) > place else kwargs.get("dtype")
        if given is None and _eligible(args[0]):
            return op(*args[:place], **{**kwargs, "dtype": torch.float32})
        return op(*args, **kwargs)

    return call


def _fp32_append_dtype(op: Any) -> Callable:
    with_dtype = getattr(op.overloadpacket, WITH_DTYPE[op._schema.name + "." + op._overloadname])
    defaults = [argument.default_value for argument in op._schema.arguments]

    def call(args: tuple, kwargs: dict) -> Any:
        dtype = torch.float32 if _eligible(args[0]) else args[0].dtype
        return with_dtype(*args, *defaults[len(args) :], dtype=dtype, **kwargs)

    return call


def _promote(op: Any) -> Callable:
    def call(args: tuple, kwargs: dict) -> Any:
        dtype = _widest((*args, *kwargs.values()), torch.get_autocast_dtype("cpu"))
        return _cast_all(op, args, kwargs, dtype, keep=dtype is not torch.float32)

    return call


def _banned(op: Any) -> Callable:
    refusal = torch.library.get_kernel(op, "AutocastCUDA")  # PyTorch's own words; it looks at no argument
    return lambda args, kwargs: refusal.call_boxed(torch._C.DispatchKeySet(_KEY), *args, **kwargs)


def _cudnn_rnn(op: Any) -> Callable:
    def call(args: tuple, kwargs: dict) -> Any:
        # FP16 under BF16 autocast as well: aten/src/ATen/cudnn/AutocastRNN.cpp. oneDNN has no FP16 LSTM on
        # most processors; without it PyTorch runs the cells one by one.
        was_on = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            return _cast_all(op, args, kwargs, torch.float16)
        finally:
            torch._C._set_mkldnn_enabled(was_on)

    return call


def _unknown(op: Any) -> Callable:
    def call(args: tuple, kwargs: dict) -> Any:
        raise NotImplementedError(
            f"lab.autocast: PyTorch {torch.__version__} has {op} in CUDA's autocast lists, fp16lab does not: "
            'a row is missing in fp16lab/torch/autocast_lists.py; lists="cpu" runs it by the CPU\'s lists'
        )

    return call


_POLICIES: dict[str, Callable[[Any], Callable]] = {
    "lower_precision_fp": _lower_precision_fp,
    "fp32": _fp32,
    "fp32_set_opt_dtype": _fp32_set_opt_dtype,
    "fp32_append_dtype": _fp32_append_dtype,
    "promote": _promote,
    "banned": _banned,
    "cudnn_rnn": _cudnn_rnn,
}


# ---- kernels of the dispatcher's key AutocastCPU ----


class _Overrides:
    """Kernels of AutocastCPU where CUDA's lists and the CPU's differ, from the first lab.autocast on.

    They are the process's. Where the CPU's lists count, they hand over to PyTorch's own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None

    def install(self) -> None:
        if self._library is not None:
            return
        with self._lock:
            if self._library is None:
                library = torch.library.Library("aten", "IMPL")
                for name in sorted((CUDA_LISTED | CPU_LISTED | set(RECURRENT)) - SAME_ON_BOTH):
                    library.impl(name, _kernel(name), "AutocastCPU", with_keyset=True)
                self._library = library


_overrides = _Overrides()


def _kernel(name: str) -> Callable:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    own = torch.library.get_kernel(op, "AutocastCPU").call_boxed if name in CPU_LISTED else None

    def pass_on(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return op.redispatch(keys & _BELOW, *args, **kwargs)

    by_cpu = own or pass_on
    if name in RECURRENT:
        by_cpu = _explained(pass_on)
    if name not in CUDA_LISTED and name not in RECURRENT:
        unlisted = _rounded(op, pass_on) if name in NO_16_BIT_KERNEL else pass_on
        return lambda keys, *args, **kwargs: (
            (unlisted if _thread.lists() == "cuda" else by_cpu)(keys, *args, **kwargs)
        )
    policy = "cudnn_rnn" if name in RECURRENT else CUDA_POLICIES.get(name, "")
    by_cuda = _POLICIES.get(policy, _unknown)(op)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if _thread.lists() != "cuda":
            return by_cpu(keys, *args, **kwargs)
        torch.set_autocast_enabled("cpu", False)
        try:
            return by_cuda(args, kwargs)
        finally:
            torch.set_autocast_enabled("cpu", True)

    return kernel


def _explained(call: Callable) -> Callable:
    """The CPU's own way of nn.LSTM, which oneDNN may not have in 16 bits."""

    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except RuntimeError as error:
            if "primitive" not in str(error):
                raise
            raise RuntimeError(
                f"oneDNN has no nn.LSTM in {torch.get_autocast_dtype('cpu')} on this processor: use "
                'lab.autocast(lists="cuda"), or torch.backends.mkldnn.flags(enabled=False)'
            ) from error

    return explained


def _rounded(op: Any, pass_on: Callable) -> Callable:
    """An operation that CUDA has in 16 bits and the CPU has not: computed in FP32, and rounded."""

    def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not _eligible(args[0]) or args[0].dtype is torch.float32:
            return pass_on(keys, *args, **kwargs)
        return op(args[0].to(torch.float32), *args[1:], **kwargs).to(args[0].dtype)

    return call
