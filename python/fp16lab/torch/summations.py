"""In which order torch adds the products of a matrix product, on whatever computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..summations import SummationTree
from ..summations import reveal as _reveal

#: big, unit, most_units: what the dtype has, with sums in FP32 or in the dtype.
_PROBES = {
    torch.float64: (2.0**100, 1.0, 16384),
    torch.float32: (2.0**100, 1.0, 16384),
    torch.bfloat16: (2.0**100, 1.0, 256),
    torch.float16: (2.0**15, 2.0**-22, 256),
}


def reveal(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    k: int,
    dtype: torch.dtype = torch.bfloat16,
    shape: tuple[int, int] = (1, 1),
    at: tuple[int, int] = (0, 0),
    device: torch.device | str = "cpu",
) -> SummationTree:
    """The order in which a product of matrices adds its k products.

    function: takes a of the shape (m, k) and b of (k, n), contiguous and of `dtype`, and gives their product,
    (m, n): `torch.mm`, or `lambda a, b: torch.nn.functional.linear(a, b.t().contiguous())`. Libraries choose
    another order for other shapes, layouts, dtypes and numbers of threads, so ask for those that you use.
    shape: (m, n). at: the element of the result whose order is asked for; its row of a holds the terms, all
    others zeros, and b holds ones. dtype: float64, float32, bfloat16 or float16.

    Errors: as fp16lab.reveal's; TypeError or ValueError for another dtype, or a result that has no such
    element. Source: analysis/summation_tree.hpp.

    >>> import torch, fp16lab.torch as lab
    >>> with lab.emulate("hopper"):
    ...     tree = lab.reveal(torch.mm, 64, shape=(2, 3), at=(1, 2))
    >>> tree.in_words
    'chain of 4 blocks of 16'
    """
    if dtype not in _PROBES:
        known = ", ".join(str(known).removeprefix("torch.") for known in _PROBES)
        raise TypeError(f"dtype is {dtype}; one of {known} is needed")
    for name, value, example in (("shape", shape, "(m, n) such as (64, 64)"), ("at", at, "(row, column)")):
        if not isinstance(value, (tuple, list)) or [type(x) for x in value] != [int, int]:
            raise TypeError(f"{name} is {value!r}; two whole numbers, {example}, are needed")
    m, n = shape
    row, column = at
    if not (0 <= row < m and 0 <= column < n):
        raise ValueError(f"at is {tuple(at)}; an element of a result of the shape {(m, n)} is needed")
    b = torch.ones(k, n, dtype=dtype, device=device)

    def sum_of(terms: Any) -> float:
        a = torch.zeros(m, k, dtype=dtype, device=device)
        a[row] = torch.from_numpy(terms).to(a)
        product = function(a, b)
        if not isinstance(product, torch.Tensor) or tuple(product.shape) != (m, n):
            what = tuple(product.shape) if isinstance(product, torch.Tensor) else type(product).__name__
            raise TypeError(f"the function gave {what}; a tensor of the shape {(m, n)} is needed")
        return float(product[row, column].item())

    with torch.no_grad():
        return _reveal(sum_of, k, *_PROBES[dtype])
