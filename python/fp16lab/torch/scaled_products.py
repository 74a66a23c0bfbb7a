"""Products of FP8 with scales: _scaled_mm and _scaled_grouped_mm, in both of their forms.

Sums of the tensor core's instruction over all of K, times the scale of a, times the scale of b, + bias, each rounded to
FP32; then rounded to out_dtype. Scales are those of a tensor, or of rows of a and columns of b. Or they are of blocks
(MXFP8, MXFP4, NVFP4), which enter Blackwell's own sums; then come the scales of the tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import _core
from ..products import models
from .emulation import Run, torchs_error

#: torch.nn.functional.ScalingType, of which the first four are emulated.
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
    epilogue. Scales of blocks are known by their dtype here, and come in tiles."""
    unless = ""
    if scale_a.dtype in _TILED or scale_b.dtype in _TILED:
        if scale_result is not None:
            run.emulates(func, a, b, unless="block scales and a scale of the result")
        of_a, of_b = (([scale], [_TILED.get(scale.dtype, 0)], [1]) for scale in (scale_a, scale_b))
        return _block_scaled(run, func, a, b, of_a, of_b, bias, out_dtype or a.dtype)
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
    if _RECIPES[recipe_a[0]] in _BLOCKS and _RECIPES[recipe_b[0]] in _BLOCKS:
        scales = (scale_a, recipe_a, swizzle_a), (scale_b, recipe_b, swizzle_b)
        return _block_scaled(run, func, a, b, *scales, bias, out_dtype)
    unless = _beyond(recipe_a, swizzle_a, recipe_b, swizzle_b, ("TensorWise", "RowWise", *_BLOCKS))
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


#: Recipes of block scales: the elements of K that have one, and the dtype of scales.
_BLOCKS = {"BlockWise1x16": (16, torch.float8_e4m3fn), "BlockWise1x32": (32, torch.float8_e8m0fnu)}
_TILED = {dtype: _RECIPES.index(name) for name, (_, dtype) in _BLOCKS.items()}
_FP4 = getattr(torch, "float4_e2m1fn_x2", None)
_ELEMENTS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", _FP4: "e2m1"}
_BLACKWELL = ("b200", "blackwell", "blackwell-tcgen05")


def _block_scaled(
    run: Run, func: Any, a: Any, b: Any, of_a: Any, of_b: Any, bias: Any, out_dtype: Any
) -> torch.Tensor:
    """a (m, k) b (k, n), whose scales are (m, k / block) and (n, k / block); FP4 has two numbers in a byte along k."""
    unless, model = "", run.products.model.lower()
    scaled = [name for name, rows in models().items() if rows and rows[0]["scales"]]
    if run.products.planned:
        raise run.products.unknown("block scales")
    if model not in (*_BLACKWELL, *scaled):
        unless = f"block scales on {model!r}, which takes none; lab.emulate(\"b200\") does"
    elif of_a[1][0] != of_b[1][0] or a.dtype not in _ELEMENTS or b.dtype not in _ELEMENTS:
        unless = f"block scales of recipes {of_a[1]} and {of_b[1]} for {a.dtype} and {b.dtype}"
    run.emulates(func, a, b, unless=unless)
    operands: list[tuple[Any, Any, Any, float]] = []
    of_tensors = 1.0
    for name, x, (scales, recipe, swizzle) in (("a", a, of_a), ("b", b.t(), of_b)):
        codes = _codes(x)
        block, dtype = _BLOCKS[_RECIPES[recipe[0]]]
        if codes.shape[1] % block:
            raise ValueError(f"scaled_mm: k is {codes.shape[1]}; a multiple of {block} has scales of {block} elements")
        blocks = codes.shape[0], codes.shape[1] // block
        numbers = _scales(f"scale_{name}", scales[0], dtype, blocks, bool(swizzle and swizzle[0]))
        scale = "e8m0" if dtype == torch.float8_e8m0fnu else "ue4m3"
        quantizer = ("scaled_mm", _ELEMENTS[x.dtype], scale, 1, block, "floor" if scale == "e8m0" else "te")
        operands.append((quantizer, codes, numbers, 1.0))
        if len(scales) > 1:
            of_tensors = float(np.float32(of_tensors) * np.float32(scales[1].item()))
    result = np.empty((a.shape[0], b.shape[1]), np.float32)
    row = model if model in scaled else ""
    left, right = operands
    _core.quantized_matmul(*left, *right, row, result, torch.get_num_threads())
    sums = torch.from_numpy(result)
    if of_tensors != 1:
        sums = sums * of_tensors
    if bias is not None:
        sums = sums + bias.float()
    return sums.to(out_dtype or torch.bfloat16)


def _codes(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """A code in a byte, rows first. x is a row of numbers a row, whose memory may be transposed."""
    words = x.view(torch.uint8) if x.is_contiguous() else x.t().view(torch.uint8).t()
    array: np.ndarray[Any, Any] = words.contiguous().numpy()
    if x.dtype != _FP4:
        return array
    return np.stack((array & 15, array >> 4), -1).reshape(array.shape[0], -1)


def _scales(
    name: str, scales: torch.Tensor, dtype: torch.dtype, blocks: tuple[int, int], swizzled: bool
) -> np.ndarray[Any, Any]:
    """FP32 numbers, a row for each row of codes. Swizzled, they come in tiles of 128 x 4, 32 rows of 16 (cuBLAS,
    "1D block scaling factors layout")."""
    rows, columns = blocks
    down, across = -(-rows // 128), -(-columns // 4)
    needed = (down * 512 * across,) if swizzled else blocks
    if scales.dtype != dtype or (scales.numel() != needed[0] if swizzled else tuple(scales.shape) != blocks):
        raise ValueError(
            f"scaled_mm: {name} is {scales.dtype} {tuple(scales.shape)}; {dtype} {needed}"
            f"{' in tiles' if swizzled else ''} is needed"
        )
    numbers = scales.float().abs()
    if swizzled:
        numbers = numbers.reshape(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(down * 128, across * 4)
    plain: np.ndarray[Any, Any] = numbers[:rows, :columns].contiguous().numpy()
    return plain


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
