"""Products of FP8 with scales: _scaled_mm and _scaled_grouped_mm, in both of their forms.

Sums of the tensor core's instruction over all of K, times the scale of a, times the scale of b, + bias, each rounded to
FP32; then rounded to out_dtype. Scales are those of a tensor, or of rows of a and columns of b.
"""

from __future__ import annotations

from typing import Any

import torch

from .emulation import Run, torchs_error

#: torch.nn.functional.ScalingType, of which the first two are emulated.
_RECIPES = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")


def scaled_mm(
    run: Run,
    func: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Under a library's plan its sums, times the product of the two scales, which is rounded first; it knows no other
    epilogue."""
    unless = ""
    for scale, shape in ((scale_a, (a.shape[0], 1)), (scale_b, (1, b.shape[1]))):
        if scale.numel() != 1 and tuple(scale.shape) != shape:
            unless = f"a scale of shape {tuple(scale.shape)}; one number or {shape} is emulated"
    run.emulates(func, a, b, unless=unless)
    return _scaled(run, a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)


def scaled_mm_v2(
    run: Run,
    func: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    recipe_a: Any,
    swizzle_a: Any,
    scale_b: Any,
    recipe_b: Any,
    swizzle_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    unless = _beyond(recipe_a, swizzle_a, recipe_b, swizzle_b, ("TensorWise", "RowWise"))
    if unless:
        run.emulates(func, a, b, unless=unless)
    return scaled_mm(run, func, a, b, scale_a[0], scale_b[0], bias, None, out_dtype, use_fast_accum)


def scaled_grouped_mm(
    run: Run,
    func: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """a (M, K) or (G, M, K) by b (K, N) or (G, K, N), whose scales are of rows of a (M) or (G, M) and columns of b (N)
    or (G, N). offs (G): where the groups end in what both together have but once: rows of a, columns of b, or K, and
    then there are scales for each group, (G M) and (G N). What is beyond the last group is zero."""
    fits = (
        min(a.ndim, b.ndim) >= 2
        and a.shape[-1] == b.shape[-2]
        and (offs is None) == (a.ndim == b.ndim == 3)
        and not (a.ndim == b.ndim == 3 and a.shape[0] != b.shape[0])
        and scale_result is None
    )
    if not fits:
        return torchs_error(func, a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum)
    run.emulates(func, a, b)
    ends = [] if offs is None else offs.tolist()
    groups = len(ends) if a.ndim == b.ndim == 2 else a.shape[0] if a.ndim == 3 else b.shape[0]
    spans = list(zip([0, *ends], ends)) if ends else [(0, 0)] * groups
    m, n = a.shape[-2], b.shape[-1]
    jagged = (a.ndim == 2) != (b.ndim == 2)
    result = torch.zeros((m, n) if jagged else (groups, m, n), dtype=out_dtype or torch.bfloat16)
    if a.ndim == b.ndim == 2:
        scale_a, scale_b = scale_a.view(groups, m), scale_b.view(groups, n)
    for group, (begin, end) in enumerate(spans):
        span = slice(begin, end)
        if a.ndim == b.ndim == 2:
            operands, into = (a[:, span], b[span]), result[group]
        elif a.ndim == 2:
            operands, into = (a[span], b[group]), result[span]
        elif b.ndim == 2:
            operands, into = (a[group], b[:, span]), result[:, span]
        else:
            operands, into = (a[group], b[group]), result[group]
        rows = scale_a[span] if scale_a.ndim == 1 else scale_a[group]
        columns = scale_b[span] if scale_b.ndim == 1 else scale_b[group]
        of_bias = None if bias is None else bias[group] if bias.ndim == 2 else bias
        scales = rows.reshape(-1, 1), columns.reshape(1, -1)
        into.copy_(_scaled(run, *operands, *scales, of_bias, None, result.dtype, use_fast_accum))
    return result


def scaled_grouped_mm_v2(
    run: Run,
    func: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    recipe_a: Any,
    swizzle_a: Any,
    scale_b: Any,
    recipe_b: Any,
    swizzle_b: Any,
    offs: Any = None,
    bias: Any = None,
    out_dtype: Any = None,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    unless = _beyond(recipe_a, swizzle_a, recipe_b, swizzle_b, ("RowWise",))
    if unless:
        run.emulates(func, a, b, unless=unless)
    return scaled_grouped_mm(
        run, func, a, b, scale_a[0], scale_b[0], offs, bias, None, out_dtype, use_fast_accum
    )


def _beyond(recipe_a: Any, swizzle_a: Any, recipe_b: Any, swizzle_b: Any, known: tuple[str, ...]) -> str:
    """Why these scales are not emulated, or nothing."""
    for recipes in (recipe_a, recipe_b):
        names = [_RECIPES[each] if each < len(_RECIPES) else str(each) for each in recipes]
        if len(names) != 1 or names[0] not in known:
            return f"scales of recipe {' and '.join(names) or 'none'}; {' and '.join(known)} are emulated"
    return "swizzled scales; those of NO_SWIZZLE are emulated" if any((*swizzle_a, *swizzle_b)) else ""


def _scaled(
    run: Run,
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any,
    scale_result: Any,
    out_dtype: Any,
    use_fast_accum: bool,
) -> torch.Tensor:
    if run.products.planned:
        if bias is not None or scale_result is not None or scale_a.numel() != 1 or scale_b.numel() != 1:
            raise run.products.unknown("a bias, a scale of the result, or scales of rows and columns")
        planned = run.products.matmul_fp8(a, b, use_fast_accum)
        both: torch.Tensor = planned * (scale_a.float() * scale_b.float())
        return both.to(out_dtype or a.dtype)
    sums = run.products.matmul_fp8(a, b, use_fast_accum)
    for scale in (scale_a, scale_b):
        sums = sums * scale.float()
    if bias is not None:
        sums = sums + bias.float()
    if scale_result is not None:
        sums = sums * scale_result.float()
    return sums.to(out_dtype or a.dtype)
