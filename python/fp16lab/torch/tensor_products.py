"""Products of torch tensors with the bits of a tensor core: matrix products and convolutions."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from .. import _core
from ..products import Plan, matmul, plans
from ..tensor_memory import in_memory
from . import product_sums

FORMATS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}

_Pair = tuple[int, int]


class _OfThread(threading.local):
    """The C++ library's products: each has threads and memory of its own, for one caller."""

    def __init__(self) -> None:
        self.products = cache(_core.TensorProducts)


_of_thread = _OfThread()


class PlanError(ValueError):
    """A product whose order a library's plan does not know."""


class TensorProducts:
    """The products of one generation. Bits never depend on the number of threads, which is torch's.

    model: a name of fp16lab.models(), or a chip. accumulator: "f32" or "f16", of FP16 operands; others have FP32 sums.
    f32: how FP32 operands are multiplied: "tf32", rounded to TF32 and multiplied by the tensor core, or
    "fma", one chain of fused multiply-adds over ascending k.
    library: a name of fp16lab.plans() or a Plan: the order over K of its calls, with FP32 sums, for 16-bit and FP8
    products.
    tensor_core: the row's own name, "hopper" of "H100". ValueError: a model that does not have these formats, no
    plan of this name, or one with other sums than FP32.
    """

    def __init__(self, model: str, accumulator: str, f32: str, library: str | Plan = "instruction") -> None:
        self._plan = library if isinstance(library, Plan) else Plan(library)
        name = self._plan.name
        if name not in plans():
            raise ValueError(f"library is {name!r}; one of {', '.join(plans())} is needed")
        self.planned = name != "instruction"
        if self.planned and accumulator != "f32":
            raise ValueError(f'library {name!r} adds in FP32: accumulator "f32" is needed with it')
        self.model, self.accumulator, self._tf32 = model, accumulator, f32 == "tf32"
        self.tensor_core: str = _of_thread.products(model, accumulator, 1).tensor_core

    def _of(self) -> Any:
        return _of_thread.products(self.model, self.accumulator, torch.get_num_threads())

    def matmul(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None = None,
        addend: torch.Tensor | None = None,
        out: torch.dtype | None = None,
    ) -> torch.Tensor:
        """a (m, k) b (k, n) or, of as many matrices, a (batch, m, k) b (batch, k, n), of mv and dot b (k), and a too:
        the sums of the tensor core, + bias (n), + addend (of the result's shape), each addition rounded to FP32, then
        rounded once to `out`: the dtype of a, or float32. Any strides. bias: of a's dtype; addend: of `out`."""
        if b.ndim == 1:
            if self.planned and a.dtype != torch.float32:
                return self._by_plan(a, b, bias, addend, out or a.dtype)
            matrix = a.reshape(-1, a.shape[-1])
            return self.matmul(matrix, b.unsqueeze(1), bias, addend, out).reshape(a.shape[:-1])
        if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:  # addresses follow
            raise ValueError(f"matrices of {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied")
        dtype = out or a.dtype
        if self.planned and a.dtype != torch.float32:
            return self._by_plan(a, b, bias, addend, dtype)
        batched = a.ndim == 3
        a, transpose_a = _dense(a)
        b, transpose_b = _dense(b)
        m, k = (a.shape[-1], a.shape[-2]) if transpose_a else (a.shape[-2], a.shape[-1])
        n = b.shape[-2] if transpose_b else b.shape[-1]
        batch = a.shape[0] if batched else 1
        result = torch.empty((batch, m, n) if batched else (m, n), dtype=dtype)
        if result.numel() == 0:
            return result
        if bias is not None:
            bias = bias.contiguous()
        if addend is not None:
            addend = addend.contiguous()
        sums = self._of().gemm(
            _address(a),
            _address(b),
            result.data_ptr(),
            (batch, m, n, k),
            transpose_a,
            transpose_b,
            0 if bias is None else _address(bias),
            0 if addend is None else _address(addend),
            FORMATS[a.dtype],
            FORMATS[dtype],
            self._tf32 and a.dtype == torch.float32,
            product_sums.wanted(),
        )
        product_sums.keep(result, sums)
        return result

    def _by_plan(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        addend: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """As matmul, in the order that the library has for a call of this shape and layout."""
        sums = self._sums_by_plan(a, b, self._plan)
        for term in (bias, addend):
            if term is not None:
                sums += term.float()
        return sums.to(dtype)

    def unknown(self, what: str) -> PlanError:
        return PlanError(f"plan '{self._plan.name}' has no rule for {what}")

    def _sums_by_plan(self, a: torch.Tensor, b: torch.Tensor, plan: Plan) -> torch.Tensor:
        plan = replace(plan, threads=torch.get_num_threads())
        try:
            sums: torch.Tensor = matmul(
                a.detach(), b.detach(), self.model, out="f32", threads=plan.threads, plan=plan
            )
        except ValueError as error:
            raise PlanError(str(error)) from None
        return sums

    def matmul_fp8(self, a: torch.Tensor, b: torch.Tensor, use_fast_accum: bool) -> torch.Tensor:
        """The sums, in FP32, of a (m, k) b (k, n) in float8_e4m3fn or float8_e5m2. use_fast_accum: of a plan."""
        if self.planned:
            return self._sums_by_plan(a, b, replace(self._plan, fast_accumulation=use_fast_accum))
        sums: torch.Tensor = matmul(a, b, self.model, out="f32", threads=torch.get_num_threads())
        return sums

    def convolve(
        self,
        direction: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        y: torch.Tensor,
        bias: torch.Tensor | None,
        stride: _Pair,
        padding: _Pair,
        dilation: _Pair,
        groups: int,
    ) -> None:
        """One of the three products of y = convolution of x (N, C, H, W) with weight (K, C / groups, R, S):
        "forward" fills y, "input" x (its gradient, or a transposed convolution), "weight" the weight. x and y
        are dense in one memory format, contiguous or channels last; the weight is contiguous. bias: for each
        channel of what is filled; none of a weight."""
        if self.planned and x.dtype != torch.float32:
            result, wanted = {
                "forward": (y, "output"),
                "input": (x, "input_gradient"),
                "weight": (weight, "weight_gradient"),
            }[direction]
            sums = self._convolved_by_plan(wanted, x, weight, y, bias, stride, padding, dilation, groups)
            result.copy_(sums if direction == "weight" else sums.permute(0, 3, 1, 2))
            return
        last = _channels_last(x) or _channels_last(y)
        sums = self._of().convolve(
            direction,
            _address(x),
            _extents(x, last),
            _address(weight),
            tuple(weight.shape),
            _address(y),
            _extents(y, last),
            0 if bias is None else _address(bias),
            stride,
            padding,
            dilation,
            groups,
            last,
            FORMATS[x.dtype],
            self._tf32 and x.dtype == torch.float32,
            product_sums.wanted(),
        )
        product_sums.keep({"forward": y, "input": x, "weight": weight}[direction], sums)

    def _convolved_by_plan(
        self,
        wanted: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        y: torch.Tensor,
        bias: torch.Tensor | None,
        stride: _Pair,
        padding: _Pair,
        dilation: _Pair,
        groups: int,
    ) -> torch.Tensor:
        """The FP32 sums that `wanted` names, channels last but of a weight. bias: of an output, contiguous."""
        shape = {
            "output": (y.shape[0], *y.shape[2:], y.shape[1]),
            "input_gradient": (x.shape[0], *x.shape[2:], x.shape[1]),
            "weight_gradient": tuple(weight.shape),
            "bias_gradient": (y.shape[1],),
        }[wanted]
        sums = torch.empty(shape, dtype=torch.float32)
        threads = torch.get_num_threads()
        try:
            _core.convolve(
                wanted,
                _address(x),
                _address(weight),
                _address(y),
                0 if bias is None else _address(bias),
                tuple(x.shape),
                tuple(weight.shape),
                stride,
                padding,
                dilation,
                groups,
                _channels_last(x) or _channels_last(y),
                FORMATS[x.dtype],
                self.model,
                self._plan.name,
                self._plan.threads or threads,
                sums.data_ptr(),
                threads,
            )
        except ValueError as error:
            raise PlanError(str(error)) from None
        return sums

    def bias_gradient(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        stride: _Pair,
        padding: _Pair,
        dilation: _Pair,
        groups: int,
    ) -> torch.Tensor:
        """The gradient of a convolution's bias: dY (N, K, P, Q) summed in FP32, in one fixed tree, or as a plan says
        for this convolution."""
        if self.planned and x.dtype != torch.float32:
            sums = self._convolved_by_plan(
                "bias_gradient", x, weight, gradient, None, stride, padding, dilation, groups
            )
            return sums.to(gradient.dtype)
        return self.sum_channels(gradient)

    def sum_channels(self, gradient: torch.Tensor) -> torch.Tensor:
        """dY (N, K, P, Q) summed in FP32 for each of K, in one fixed tree."""
        last = _channels_last(gradient)
        result = torch.empty(gradient.shape[1], dtype=gradient.dtype)
        self._of().sum_channels(
            _address(gradient), _extents(gradient, last), last, result.data_ptr(), FORMATS[gradient.dtype]
        )
        return result


def _address(tensor: torch.Tensor) -> int:
    """The address of its numbers; ValueError where its memory is not its value."""
    plain = in_memory(tensor, "an operand")
    if plain.data_ptr() != tensor.data_ptr():
        raise ValueError("an operand is lazily negated or zero: resolve_neg() makes it a plain tensor")
    return int(plain.data_ptr())


def _dense(matrices: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The same matrices without gaps in memory, and whether they are stored transposed."""
    if matrices.is_contiguous():
        return matrices, False
    transposed = matrices.mT
    if transposed.is_contiguous():
        return transposed, True
    return matrices.contiguous(), False


def _channels_last(x: torch.Tensor) -> bool:
    return not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def _extents(x: torch.Tensor, channels_last: bool) -> tuple[int, ...]:
    n, c, h, w = x.shape
    return (n, h, w, c) if channels_last else (n, c, h, w)
