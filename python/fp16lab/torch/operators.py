"""torch.ops.fp16lab.matmul: a tensor core's product for people who write layers."""

from __future__ import annotations

from typing import Any

import torch

from ..products import matmul as _matmul
from .tensor_products import FORMATS


@torch.library.custom_op("fp16lab::matmul", mutates_args=())
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    model: str = "hopper",
    accumulator: str = "f32",
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """fp16lab.matmul of tensors, with gradients, fake tensors and torch.export: shapes as torch.matmul.

    a, b: float16, bfloat16, float32 (TF32 registers), or FP8. out_dtype: float16, bfloat16 or float32; None:
    that of a, float32 for FP8. Gradients are products of the same tensor core: the result's gradient is
    rounded to the operand's dtype first, which then is not FP8 (TypeError).

    >>> import fp16lab.torch
    >>> a, b = torch.ones(2, 3).half(), torch.ones(3, 2).half()
    >>> torch.ops.fp16lab.matmul(a, b, "volta")
    tensor([[3., 3.],
            [3., 3.]], dtype=torch.float16)
    """
    out = FORMATS.get(out_dtype) if out_dtype is not None else None
    if out_dtype is not None and out is None:
        raise TypeError(f"out_dtype is {out_dtype}; float16, bfloat16 or float32 is needed")
    format = out or FORMATS.get(a.dtype, "f32")
    result: torch.Tensor = _matmul(
        a.detach(), b.detach(), model, accumulator, format, threads=torch.get_num_threads()
    )
    return result


@matmul.register_fake
def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    model: str = "hopper",
    accumulator: str = "f32",
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    dtype = out_dtype or (a.dtype if a.dtype in FORMATS else torch.float32)
    shape = torch.matmul(a.float(), b.float()).shape
    return a.new_empty(shape, dtype=dtype)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.model, ctx.accumulator, _ = inputs
    ctx.save_for_backward(a, b)


def _gradients(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    if a.dtype not in FORMATS:
        raise TypeError(
            f"fp16lab::matmul of {a.dtype} has no gradient: FP8 gradients have scales of their own"
        )
    of_a = of_b = None
    g = gradient.to(a.dtype)
    rows = a if a.ndim > 1 else a.unsqueeze(0)
    columns = b if b.ndim > 1 else b.unsqueeze(1)
    if a.ndim == 1:
        g = g.unsqueeze(-2 if b.ndim > 1 else -1)
    if b.ndim == 1:
        g = g.unsqueeze(-1)
    if ctx.needs_input_grad[0]:
        of_a = matmul(g, columns.mT, ctx.model, ctx.accumulator).sum_to_size(rows.shape).reshape(a.shape)
    if ctx.needs_input_grad[1]:
        of_b = matmul(rows.mT, g, ctx.model, ctx.accumulator).sum_to_size(columns.shape).reshape(b.shape)
    return of_a, of_b, None, None, None


matmul.register_autograd(_gradients, setup_context=_setup)
