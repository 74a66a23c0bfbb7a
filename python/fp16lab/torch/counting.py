"""Exponent histograms of PyTorch tensors: counted where they lie, without a copy, by the C++ library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeGuard

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ..tensor_memory import has_parts, in_memory, local_parts

#: What a histogram counts of a tensor, by dtype.
FORMATS = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}


@contextmanager
def unseen() -> Iterator[None]:
    """What is computed inside belongs to no graph, to no mode such as lab.op_stats, and to no transformation of
    torch.func."""
    with ExitStack() as scope:
        scope.enter_context(torch.no_grad())
        if torch._C._len_torch_dispatch_stack() > 0:
            scope.enter_context(_disable_current_modes())
        if torch._C._functorch.peek_interpreter_stack() is not None:
            scope.enter_context(temporarily_clear_interpreter_stack())
        yield


def is_countable(value: object) -> TypeGuard[torch.Tensor]:
    """Is it a tensor of one of `FORMATS`, with numbers in this process (no meta or fake tensor)?"""
    return isinstance(value, torch.Tensor) and value.dtype in FORMATS and has_parts(value)


def format_of(tensor: torch.Tensor) -> str:
    """ "f64", "f32", "f16" or "bf16"; TypeError for other dtypes."""
    if tensor.dtype not in FORMATS:
        known = ", ".join(str(dtype) for dtype in FORMATS)
        raise TypeError(f"a histogram counts {known}, not {tensor.dtype}")
    return FORMATS[tensor.dtype]


def count(tensor: torch.Tensor, histogram: _core.Histogram | None = None) -> _core.Histogram:
    """Adds every element to `histogram` (a new one without) and returns it.

    `tensor`: any shape and strides, of float32, float16, bfloat16 or float64 (what lies beyond FP32's range is in
    the first bin or the last, as fp16lab.histogram has it); on a GPU it is copied to the host first; of a sparse
    one the values are counted, the zeros between them not; of a DTensor this rank's part. TypeError for other
    dtypes. Counts never depend on the order of elements, so a transposed tensor is not copied.

    >>> count(torch.tensor([1.0, 0.5, 0.0])).zero
    1
    """
    histogram = _core.Histogram() if histogram is None else histogram
    name = format_of(tensor)
    with unseen():
        for part in local_parts(tensor):
            codes = in_memory(part.cpu(), "the tensor")
            if not codes.is_contiguous():
                codes = codes.as_strided((codes.numel(),), (1,)) if _is_dense(codes) else codes.contiguous()
            histogram._count(codes, name, 1)  # which reads it by DLPack
    return histogram


def _is_dense(tensor: torch.Tensor) -> bool:
    """Do its elements fill one piece of memory, in any order?"""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
