"""Kernels of the dispatcher's key AutocastCPU that cast as CUDA's autocast does, where its lists count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from .autocast_lists import CUDA_POLICIES, NO_16_BIT_KERNEL, RECURRENT, WITH_DTYPE
from .autocast_scopes import thread
from .scopes import onednn_off

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


def listed(lists: str) -> frozenset[str]:
    """The operations for which autocast casts by these lists, "cuda" or "cpu": their parts meet it no more."""
    return CUDA_LISTED.union(RECURRENT) if lists == "cuda" else CPU_LISTED


# ---- casts: at::autocast::cached_cast, promote_type and the rest of autocast_mode.h ----


def _eligible(value: torch.Tensor) -> bool:
    dtype = value.dtype
    return dtype.is_floating_point and dtype is not torch.float64 and (value.is_cpu or value.is_mkldnn)


def _cast(value: torch.Tensor, dtype: torch.dtype, keep: bool) -> torch.Tensor:
    """As dtype, if it is eligible; `keep` the casts of parameters."""
    if value.dtype is dtype or not _eligible(value):
        return value
    if keep and value.dtype is torch.float32 and value.requires_grad and value.is_leaf:
        if torch.is_autocast_cache_enabled() and not value._is_view() and not value.is_inference():
            return thread.parameter(value, dtype)
    return value.to(dtype)


class _Tensors:
    """Where an operation has tensors among its arguments, none of which is keyword-only."""

    def __init__(self, op: Any) -> None:
        types = [str(argument.type) for argument in op._schema.arguments]
        self._op = op
        self._single = [i for i, kind in enumerate(types) if kind in ("Tensor", "Optional[Tensor]")]
        self._lists = [i for i, kind in enumerate(types) if kind == "List[Tensor]"]

    def call(self, args: tuple, kwargs: dict, dtype: torch.dtype, keep: bool) -> Any:
        """The operation, with its tensors as dtype."""
        cast, count = list(args), len(args)
        for i in self._single:
            if i < count and args[i] is not None:
                cast[i] = _cast(args[i], dtype, keep)
        for i in self._lists:
            cast[i] = [_cast(value, dtype, keep) for value in args[i]]
        return self._op(*cast, **kwargs)

    def widest(self, args: tuple, lower: torch.dtype) -> torch.dtype:
        """FP32 if one tensor is FP32, `lower` if all are."""
        widest = lower
        for i in self._single:
            if i >= len(args) or args[i] is None or not _eligible(args[i]):
                continue
            if torch.float32 in (widest, args[i].dtype):
                widest = torch.float32
            elif args[i].dtype is not lower:
                raise RuntimeError(
                    f"autocast to {lower} cannot promote {args[i].dtype}, as on a GPU: cast the tensor before"
                )
        return widest


# ---- policies: op -> what runs in its place, autocast being off meanwhile ----


def _lower_precision_fp(op: Any) -> Callable:
    tensors = _Tensors(op)
    return lambda args, kwargs: tensors.call(args, kwargs, torch.get_autocast_dtype("cpu"), True)


def _fp32(op: Any) -> Callable:
    tensors = _Tensors(op)
    return lambda args, kwargs: tensors.call(args, kwargs, torch.float32, False)


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
    tensors = _Tensors(op)
    return lambda args, kwargs: tensors.call(
        args, kwargs, tensors.widest(args, torch.get_autocast_dtype("cpu")), False
    )


def _banned(op: Any) -> Callable:
    refusal = torch.library.get_kernel(op, "AutocastCUDA")  # PyTorch's own words; it looks at no argument
    return lambda args, kwargs: refusal.call_boxed(torch._C.DispatchKeySet(_KEY), *args, **kwargs)


def _cudnn_rnn(op: Any) -> Callable:
    tensors = _Tensors(op)

    def call(args: tuple, kwargs: dict) -> Any:
        # FP16 under BF16 autocast as well: aten/src/ATen/cudnn/AutocastRNN.cpp. Where oneDNN has an FP16 LSTM
        # for the processor it would be one operation: without oneDNN the same ones run everywhere.
        with onednn_off:
            return tensors.call(args, kwargs, torch.float16, False)

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


# ---- kernels ----


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


overrides = _Overrides()


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
            (unlisted if thread.lists() == "cuda" else by_cpu)(keys, *args, **kwargs)
        )
    policy = "cudnn_rnn" if name in RECURRENT else CUDA_POLICIES.get(name, "")
    by_cuda = _POLICIES.get(policy, _unknown)(op)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.lists() != "cuda":
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
