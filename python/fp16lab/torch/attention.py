"""Scaled dot-product attention as lab.emulate computes it."""

from __future__ import annotations

import math
from typing import Any

import torch


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The arguments and errors of torch.nn.functional.scaled_dot_product_attention, by its plain algorithm:

        scores = (q sqrt(scale)) (k sqrt(scale))^T          a product, rounded to the operands' dtype
        p = softmax(scores + mask) in FP32, rounded to that dtype; then dropout
        result = p v                                        a product

    Gradients are those of these operations, and their products are products of the tensor core too. Fused
    kernels of a GPU keep scores in FP32 and cut them into tiles, in an order of their own.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("attn_mask should be None where is_causal is True")
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = torch.matmul(query * root, (key * root).mT)
    if is_causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~kept, -math.inf)
    elif attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask
    p = torch.softmax(scores, -1, dtype=torch.float32)
    if attn_mask is not None:  # where a row is masked altogether torch has zeros
        p = p.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    p = p.to(query.dtype)
    if dropout_p > 0:
        p = torch.dropout(p, dropout_p, True)
    return torch.matmul(p, value)
