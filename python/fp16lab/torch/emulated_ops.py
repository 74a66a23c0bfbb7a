"""What lab.emulate does with each operation of PyTorch: the one table.

PRODUCTS are computed by the tensor core. What PASSES is torch's own: it multiplies no matrices. Everything
else is refused as soon as it has a floating-point tensor, so that no product goes by unseen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from . import scaled_products, volumes
from .emulation import EmulationError, Handler, Run, torchs_error

aten = torch.ops.aten


# ---- products. Handlers take the run, the operation, and then the operation's arguments.


def _matrices(a: torch.Tensor, b: torch.Tensor, dims: int) -> bool:
    """Can a (..., m, k) be multiplied by b (..., k, n), both of `dims` dimensions?"""
    return a.ndim == b.ndim == dims and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]


def _epilogue(
    run: Run, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, beta: float, alpha: float
) -> torch.Tensor:
    """beta c + alpha (a b). Where both are 1 or c is unread (beta = 0), c is added to the sums in FP32 and
    the result is rounded once; else both products by alpha and beta are rounded to FP32 first."""
    if beta == 0:
        c = None  # unread: it may hold NaN
    shape = (*a.shape[:-1], b.shape[-1])
    if alpha == 1 and (c is None or beta == 1 and c.dtype == a.dtype):
        if c is not None and c.ndim > 0 and c.numel() == c.shape[-1] == shape[-1]:  # a row
            return run.products.matmul(a, b, bias=c.reshape(-1))
        return run.products.matmul(a, b, addend=None if c is None else c.expand(shape))
    sums = run.products.matmul(a, b, out=torch.float32) * alpha
    if c is not None:
        sums += c.float() * beta
    return sums.to(a.dtype)


def _mm(run: Run, func: Any, a: Any, b: Any) -> Any:
    if not _matrices(a, b, 3 if func is aten.bmm.default else 2):
        return torchs_error(func, a, b)
    if not run.emulates(func, a, b):
        return func(a, b)
    return run.products.matmul(a, b)


def _mv(run: Run, func: Any, a: Any, x: Any) -> Any:
    if a.ndim != 2 or a.shape[1:] != x.shape:
        return torchs_error(func, a, x)
    if not run.emulates(func, a, x):
        return func(a, x)
    return run.products.matmul(a, x)


def _dot(run: Run, func: Any, x: Any, y: Any) -> Any:
    if x.ndim != 1 or x.shape != y.shape:
        return torchs_error(func, x, y)
    if not run.emulates(func, x, y):
        return func(x, y)
    return run.products.matmul(x, y)


def _addmm(run: Run, func: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if c.dtype != a.dtype or not _matrices(a, b, 3 if func is aten.baddbmm.default else 2):
        return torchs_error(func, c, a, b, beta=beta, alpha=alpha)
    if not run.emulates(func, a, b):
        return func(c, a, b, beta=beta, alpha=alpha)
    return _epilogue(run, a, b, c, beta, alpha)


def _addmv(run: Run, func: Any, c: Any, a: Any, x: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if c.dtype != a.dtype or a.ndim != 2 or a.shape[1:] != x.shape:
        return torchs_error(func, c, a, x, beta=beta, alpha=alpha)
    if not run.emulates(func, a, x):
        return func(c, a, x, beta=beta, alpha=alpha)
    if run.products.planned and a.dtype != torch.float32:
        raise run.products.unknown("addmv, where c enters; mv and an addition are right")
    column = c if c.ndim == 0 else c.unsqueeze(1)
    return _epilogue(run, a, x.unsqueeze(1), column, beta, alpha).squeeze(1)


def _addr(run: Run, func: Any, c: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if x.ndim != 1 or y.ndim != 1:
        return torchs_error(func, c, x, y, beta=beta, alpha=alpha)
    if not run.emulates(func, x, y):
        return func(c, x, y, beta=beta, alpha=alpha)
    return _epilogue(run, x.unsqueeze(1), y.unsqueeze(0), c, beta, alpha)


def _addbmm(run: Run, func: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """One product after the other, each rounded, as torch adds them up."""
    if c.dtype != a.dtype or not _matrices(a, b, 3):
        return torchs_error(func, c, a, b, beta=beta, alpha=alpha)
    if not run.emulates(func, a, b):
        return func(c, a, b, beta=beta, alpha=alpha)
    for i in range(a.shape[0]):
        c, beta = _epilogue(run, a[i], b[i], c, beta, alpha), 1
    return c if a.shape[0] > 0 else c * beta


def _pair(values: Any, missing: int, one_dimensional: bool) -> tuple[int, int]:
    """A convolution's argument as (vertical, horizontal)."""
    numbers = tuple(values) if len(values) > 1 or one_dimensional else (values[0], values[0])
    return (missing, numbers[0]) if one_dimensional else (numbers[0], numbers[1])


def _unplanar(x: torch.Tensor) -> str:
    """Why a convolution of it is not emulated, or nothing."""
    return "" if x.ndim in (3, 4, 5) else f"an input of {x.ndim - 2} spatial dimensions; one to three are emulated"


class _Convolution:
    """The arguments of aten.convolution, as those of a convolution of planes."""

    def __init__(self, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int):
        self.flat, self.half = x.ndim == 3, x.dtype != torch.float32
        self.groups = groups
        self.stride = _pair(stride, 1, self.flat)
        self.padding = _pair(padding, 0, self.flat)
        self.dilation = _pair(dilation, 1, self.flat)
        last = any(t.ndim == 4 and suggest_memory_format(t) == torch.channels_last for t in (x, weight))
        self.format = torch.channels_last if last else torch.contiguous_format

    def require_rule(self, run: Run, transposed: bool) -> None:
        if run.products.planned and self.half and (self.flat or transposed):
            raise run.products.unknown("transposed convolutions, nor for those of one dimension")

    def plane(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, L) as (N, C, 1, L), dense."""
        return (x.unsqueeze(2) if self.flat else x).contiguous(memory_format=self.format)

    def filters(self, weight: torch.Tensor) -> torch.Tensor:
        return (weight.unsqueeze(2) if self.flat else weight).contiguous()

    def empty(self, like: torch.Tensor, shape: Any) -> torch.Tensor:
        return torch.empty(shape, dtype=like.dtype, memory_format=self.format)

    def given(self, result: torch.Tensor) -> torch.Tensor:
        return result.squeeze(2) if self.flat else result

    def run(self, run: Run, direction: str, x: Any, weight: Any, y: Any, bias: Any = None) -> None:
        run.products.convolve(
            direction, x, weight, y, bias, self.stride, self.padding, self.dilation, self.groups
        )


def _convolution(
    run: Run,
    func: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    given = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    inputs, channels = weight.shape[1] * groups, weight.shape[0]
    if transposed:
        inputs, channels = channels, inputs
    if (
        x.ndim != weight.ndim
        or x.shape[1] != inputs
        or min(*stride, *dilation) < 1
        or bias is not None
        and (bias.shape, bias.dtype) != ((channels,), x.dtype)
    ):
        return torchs_error(func, *given)
    if not run.emulates(func, x, weight, unless=_unplanar(x)):
        return func(*given)
    if x.ndim == 5:
        return volumes.convolution(run, func, *given)
    conv = _Convolution(x, weight, stride, padding, dilation, groups)
    conv.require_rule(run, transposed)
    image, filters = conv.plane(x), conv.filters(weight)
    holes = _pair(output_padding, 0, conv.flat)
    extents = []
    for axis in (0, 1):
        size, reach = image.shape[2 + axis], conv.dilation[axis] * (filters.shape[2 + axis] - 1)
        if transposed:
            extents.append((size - 1) * conv.stride[axis] - 2 * conv.padding[axis] + reach + holes[axis] + 1)
        else:
            extents.append((size + 2 * conv.padding[axis] - reach - 1) // conv.stride[axis] + 1)
    result = conv.empty(x, (image.shape[0], channels, *extents))
    if transposed:
        conv.run(run, "input", result, filters, image, bias)
    else:
        conv.run(run, "forward", image, filters, result, bias)
    return conv.given(result)


def _convolution_backward(
    run: Run,
    func: Any,
    gradient: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> Any:
    given = (gradient, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
    if not run.emulates(func, gradient, x, weight, unless=_unplanar(x)):
        return func(*given, output_mask)
    if x.ndim == 5:
        return volumes.convolution_backward(
            run, gradient, x, weight, stride, padding, dilation, transposed, groups, output_mask
        )
    conv = _Convolution(x, weight, stride, padding, dilation, groups)
    conv.require_rule(run, transposed)
    image, filters, dy = conv.plane(x), conv.filters(weight), conv.plane(gradient)
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        of_x = conv.empty(x, image.shape)
        if transposed:
            conv.run(run, "forward", dy, filters, of_x)
        else:
            conv.run(run, "input", of_x, filters, dy)
        of_x = conv.given(of_x)
    if output_mask[1]:
        of_weight = torch.empty(filters.shape, dtype=weight.dtype)
        if transposed:
            conv.run(run, "weight", dy, of_weight, image)
        else:
            conv.run(run, "weight", image, of_weight, dy)
        of_weight = conv.given(of_weight)
    if output_mask[2]:
        of_bias = run.products.bias_gradient(
            dy, image, filters, conv.stride, conv.padding, conv.dilation, conv.groups
        )
    return of_x, of_weight, of_bias


def _fused_attention(run: Run, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Attention in FP32 where torch multiplies; otherwise lab.emulate has replaced it by its own."""
    run.emulates(func, *args[:3], unless="it was called directly; scaled_dot_product_attention is emulated")
    return func(*args, **kwargs)


def _of_dtype(run: Run, func: Any, *args: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """mm(a, b, out_dtype=) and the like: rounded once, to another dtype than the operands'."""
    *c, a, b, dtype = args
    if not _matrices(a, b, 3 if func._schema.name in ("aten::bmm", "aten::baddbmm") else 2):
        return torchs_error(func, *args)
    if not run.emulates(func, a, b):
        return func(*args)
    sums = run.products.matmul(a, b, out=torch.float32) * alpha
    if c and beta != 0:
        sums = sums + c[0].float() * beta
    return sums.to(dtype)


def _solve_triangular(run: Run, func: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    run.emulates(func, a, b, unless="the order of a GPU's substitution is not known")
    return func(a, b, **kwargs)


def _int_mm(run: Run, func: Any, a: Any, b: Any) -> Any:
    """Counts a product of integers, which torch computes exactly."""
    run.emulates(func, a, b)
    return func(a, b)


def _lab_matmul(run: Run, func: Any, a: Any, b: Any, *args: Any) -> Any:
    """torch.ops.fp16lab.matmul, which names its own tensor core."""
    run.count_emulated(func, a, b)
    return func(a, b, *args)


def _embedding_bag(run: Run, func: Any, *args: Any, **kwargs: Any) -> Any:
    if any(v is not None for v in (*args[6:7], kwargs.get("per_sample_weights"))):
        raise EmulationError(f"{func.name()} with weights of samples multiplies, and is not emulated")
    return func(*args, **kwargs)


_OF_PACKET: dict[str, Handler] = {
    "mm": _mm,
    "bmm": _mm,
    "mv": _mv,
    "dot": _dot,
    "vdot": _dot,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmv,
    "addr": _addr,
    "addbmm": _addbmm,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_mm": scaled_products.scaled_mm,
    "_scaled_mm_v2": scaled_products.scaled_mm_v2,
    "_scaled_grouped_mm": scaled_products.scaled_grouped_mm,
    "_scaled_grouped_mm_v2": scaled_products.scaled_grouped_mm_v2,
    "linalg_solve_triangular": _solve_triangular,
    "_int_mm": _int_mm,
    "_scaled_dot_product_flash_attention_for_cpu": _fused_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _fused_attention,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
}
_PLAIN = frozenset(("default", ""))


def _in_place(handler: Handler, plain: Any) -> Handler:
    def handle(run: Run, func: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        return target.copy_(handler(run, plain, target, *args, **kwargs))

    return handle


def _into_out(handler: Handler, plain: Any) -> Handler:
    def handle(run: Run, func: Any, *args: Any, out: Any, **kwargs: Any) -> Any:
        result = handler(run, plain, *args, **kwargs)
        if out.dtype != result.dtype:
            return torchs_error(func, *args, out=out, **kwargs)
        if out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)

    return handle


def product_handler(func: Any) -> Handler | None:
    """The handler of a product; in place and out= like the plain operation."""
    space, _, name = func._schema.name.partition("::")
    if space != "aten":
        return _lab_matmul if (space, name) == ("fp16lab", "matmul") else None
    handler = _OF_PACKET.get(name) or _OF_PACKET.get(name.removesuffix("_"))
    if handler is None:
        return None
    overload = func._overloadname
    if overload in _PLAIN and name in _OF_PACKET:
        return handler
    if overload == "dtype":
        return _of_dtype
    plain = getattr(aten, name.removesuffix("_") if name not in _OF_PACKET else name).default
    if overload == "out" and not func._schema.returns[0].type.kind() == "TupleType":
        return _into_out(handler, plain)
    if overload in _PLAIN:
        return _in_place(handler, plain)
    return None
