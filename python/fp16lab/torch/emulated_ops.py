"""What lab.emulate does with each operation of PyTorch: the one table.

PRODUCTS are computed by the tensor core. What PASSES is torch's own: it multiplies no matrices. Everything
else is refused as soon as it has a floating-point tensor, so that no product goes by unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._prims_common import suggest_memory_format

from .tensor_products import TensorProducts

aten = torch.ops.aten
Handler = Callable[..., Any]


class EmulationError(NotImplementedError):
    """An operation that lab.emulate does not know, or cannot emulate as it was called.

    >>> try:
    ...     with lab.emulate():
    ...         _ = torch.cdist(torch.ones(2, 3), torch.ones(2, 3))
    ... except lab.EmulationError as error:
    ...     print(str(error)[:43])
    aten::_cdist_forward is on no list of lab.e
    """


class Run(Protocol):
    """What a product asks of the scope that it runs in."""

    products: TensorProducts

    def count_emulated(self, func: Any, *operands: torch.Tensor) -> None:
        """Counts a product that is emulated elsewhere."""

    def emulates(self, func: Any, *operands: torch.Tensor, unless: str = "") -> bool:
        """Counts the product; False: torch multiplies. EmulationError, with nothing counted: it cannot be emulated,
        because of `unless` or of an operand whose memory is not its value."""


# ---- what passes, besides operations that torch marks as pointwise, views and their copies, _foreach_* and
# _fused_* of optimizers. Trailing underscores are left out: "add" means "add_" too.

PASSES = frozenset(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full
    zeros zeros_like zero ones ones_like full full_like fill scalar_tensor arange linspace logspace range eye
    tril triu tril_indices triu_indices bartlett_window blackman_window hamming_window hann_window
    kaiser_window affine_grid_generator

    rand rand_like randint randint_like randn randn_like random randperm uniform normal normal_functional
    log_normal exponential geometric cauchy bernoulli binomial poisson multinomial _standard_gamma
    _sample_dirichlet dropout alpha_dropout feature_dropout feature_alpha_dropout _fused_dropout rrelu
    rrelu_with_noise_functional

    _to_copy copy copy_ clone lift lift_fresh detach resize resize_as set _resize_output contiguous
    _copy_from _pin_memory is_pinned is_same_size is_set_to _local_scalar_dense _has_same_storage_numel
    _unsafe_view _reshape_alias squeeze unsqueeze t transpose as_strided record_stream _lazy_clone

    cat stack _stack _chunk_cat block_diag split split_with_sizes unsafe_split unsafe_split_with_sizes repeat
    repeat_interleave flip roll rot90 constant_pad_nd channel_shuffle pixel_shuffle pixel_unshuffle im2col
    col2im unfold_backward diag_embed diagonal_backward diagonal_scatter select_backward select_scatter
    slice_backward slice_scatter as_strided_scatter complex polar trace

    index index_put _index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate index_select index_add index_copy index_fill index_reduce gather
    scatter scatter_add scatter_reduce take put masked_fill masked_scatter masked_scatter_backward
    masked_select nonzero nonzero_static where searchsorted bucketize isin

    embedding embedding_dense_backward embedding_renorm _embedding_bag _embedding_bag_forward_only
    _embedding_bag_backward _embedding_bag_dense_backward

    sum mean prod amax amin aminmax _aminmax max min argmax argmin all any std std_mean var var_mean norm
    native_norm linalg_vector_norm nansum nanmedian median mode kthvalue count_nonzero logsumexp
    cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp sort topk unique_dim
    _unique _unique2 unique_consecutive unique_dim_consecutive bincount histc histogram hash_tensor renorm
    _is_all_true _is_any_true allclose equal dist _amp_update_scale _amp_foreach_non_finite_check_and_unscale

    softmax _softmax _softmax_backward_data log_softmax _log_softmax _log_softmax_backward_data _safe_softmax
    _masked_softmax _masked_softmax_backward glu glu_backward glu_jvp glu_backward_jvp _prelu_kernel
    _prelu_kernel_backward log_sigmoid_forward log_sigmoid_backward rrelu_with_noise
    rrelu_with_noise_backward native_dropout native_dropout_backward _masked_scale

    native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_with_update_functional
    _batch_norm_no_update batch_norm_backward native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward

    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward adaptive_avg_pool2d
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
    max_pool3d_with_indices_backward max_unpool2d max_unpool3d fractional_max_pool2d
    fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward
    reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d
    reflection_pad3d_backward replication_pad1d replication_pad1d_backward replication_pad2d
    replication_pad2d_backward replication_pad3d replication_pad3d_backward
    upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
    upsample_nearest3d upsample_nearest3d_backward _upsample_nearest_exact1d
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d _upsample_nearest_exact3d_backward upsample_linear1d upsample_linear1d_backward
    upsample_bilinear2d upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward
    upsample_trilinear3d upsample_trilinear3d_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward
    grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward

    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward
    smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward
    multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward
    multilabel_margin_loss_backward _ctc_loss _ctc_loss_backward

    _weight_norm_interface _weight_norm_interface_backward _efficientzerotensor
    _pack_padded_sequence _pad_packed_sequence elu_backward hardtanh_backward hardswish_backward
    hardsigmoid_backward leaky_relu_backward softplus_backward threshold_backward
    """.split()
)


def passes(func: Any) -> bool:
    """Is it torch's own by the table?"""
    space, _, name = func._schema.name.partition("::")
    if space != "aten":
        return space in ("prim", "prims", "profiler", "c10d", "_c10d_functional", "fsdp")
    base = name if name.startswith("__") else name.rstrip("_")
    return (
        base in PASSES
        or base.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad"))
        or base.removesuffix("_copy") != base
        or torch.Tag.pointwise in func.tags
        or any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
    )


# ---- products. Handlers take what the operation takes, behind the run and the operation itself.


def _matrices(a: torch.Tensor, b: torch.Tensor, dims: int) -> bool:
    """Can a (..., m, k) be multiplied by b (..., k, n), both of `dims` dimensions?"""
    return a.ndim == b.ndim == dims and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]


def _torchs_error(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Operands that do not fit: torch says so in its own words."""
    func(*args, **kwargs)
    raise EmulationError(f"{func.name()} is not emulated for operands of these shapes and dtypes")


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
        return _torchs_error(func, a, b)
    if not run.emulates(func, a, b):
        return func(a, b)
    return run.products.matmul(a, b)


def _mv(run: Run, func: Any, a: Any, x: Any) -> Any:
    if a.ndim != 2 or a.shape[1:] != x.shape:
        return _torchs_error(func, a, x)
    if not run.emulates(func, a, x):
        return func(a, x)
    return run.products.matmul(a, x)


def _dot(run: Run, func: Any, x: Any, y: Any) -> Any:
    if x.ndim != 1 or x.shape != y.shape:
        return _torchs_error(func, x, y)
    if not run.emulates(func, x, y):
        return func(x, y)
    return run.products.matmul(x, y)


def _addmm(run: Run, func: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if c.dtype != a.dtype or not _matrices(a, b, 3 if func is aten.baddbmm.default else 2):
        return _torchs_error(func, c, a, b, beta=beta, alpha=alpha)
    if not run.emulates(func, a, b):
        return func(c, a, b, beta=beta, alpha=alpha)
    return _epilogue(run, a, b, c, beta, alpha)


def _addmv(run: Run, func: Any, c: Any, a: Any, x: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if c.dtype != a.dtype or a.ndim != 2 or a.shape[1:] != x.shape:
        return _torchs_error(func, c, a, x, beta=beta, alpha=alpha)
    if not run.emulates(func, a, x):
        return func(c, a, x, beta=beta, alpha=alpha)
    column = c if c.ndim == 0 else c.unsqueeze(1)
    return _epilogue(run, a, x.unsqueeze(1), column, beta, alpha).squeeze(1)


def _addr(run: Run, func: Any, c: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if x.ndim != 1 or y.ndim != 1:
        return _torchs_error(func, c, x, y, beta=beta, alpha=alpha)
    if not run.emulates(func, x, y):
        return func(c, x, y, beta=beta, alpha=alpha)
    return _epilogue(run, x.unsqueeze(1), y.unsqueeze(0), c, beta, alpha)


def _addbmm(run: Run, func: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """One product after the other, each rounded, as torch adds them up."""
    if c.dtype != a.dtype or not _matrices(a, b, 3):
        return _torchs_error(func, c, a, b, beta=beta, alpha=alpha)
    if not run.emulates(func, a, b):
        return func(c, a, b, beta=beta, alpha=alpha)
    for i in range(a.shape[0]):
        c, beta = _epilogue(run, a[i], b[i], c, beta, alpha), 1
    return c if a.shape[0] > 0 else c * beta


def _pair(values: Any, missing: int, one_dimensional: bool) -> tuple[int, int]:
    """Of a convolution's argument: (vertical, horizontal)."""
    numbers = tuple(values) if len(values) > 1 or one_dimensional else (values[0], values[0])
    return (missing, numbers[0]) if one_dimensional else (numbers[0], numbers[1])


def _unplanar(x: torch.Tensor) -> str:
    """Why a convolution of it is not emulated, or nothing."""
    if x.ndim in (3, 4):
        return ""
    return f"an input of {x.ndim - 2} spatial dimensions; one or two are emulated (3-d convolutions are not)"


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
        return _torchs_error(func, *given)
    if not run.emulates(func, x, weight, unless=_unplanar(x)):
        return func(*given)
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
        of_bias = run.products.sum_channels(
            dy, image, filters, conv.stride, conv.padding, conv.dilation, conv.groups
        )
    return of_x, of_weight, of_bias


def _fused_attention(run: Run, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Of FP32 where torch multiplies; otherwise lab.emulate has put its own attention in its place."""
    run.emulates(func, *args[:3], unless="it was called directly; scaled_dot_product_attention is emulated")
    return func(*args, **kwargs)


def _scaled_mm(
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
    """FP8: the sums of the tensor core's instruction over all of K, times scale_a, times scale_b, + bias, each rounded
    to FP32, then rounded to out_dtype. Scales of the tensor, of rows of a and of columns of b. Under a library's plan
    its sums, times the product of the two scales, which is rounded first; it knows no other epilogue."""
    scales = ((scale_a, (a.shape[0], 1)), (scale_b, (1, b.shape[1])))
    unless = ""
    for scale, shape in scales:
        if scale.numel() != 1 and tuple(scale.shape) != shape:
            unless = f"a scale of shape {tuple(scale.shape)}; one number or {shape} is emulated"
    run.emulates(func, a, b, unless=unless)
    if run.products.planned:
        if bias is not None or scale_result is not None or scale_a.numel() != 1 or scale_b.numel() != 1:
            raise run.products.unknown("a bias, a scale of the result, or scales of rows and columns")
        planned = run.products.matmul_fp8(a, b, use_fast_accum)
        scaled: torch.Tensor = planned * (scale_a.float() * scale_b.float())
        return scaled.to(out_dtype or a.dtype)
    sums = run.products.matmul_fp8(a, b, use_fast_accum)
    for scale, _ in scales:
        sums = sums * scale.float()
    if bias is not None:
        sums = sums + bias.float()
    if scale_result is not None:
        sums = sums * scale_result.float()
    return sums.to(out_dtype or a.dtype)


def _int_mm(run: Run, func: Any, a: Any, b: Any) -> Any:
    """Of integers: exact, torch's own, and counted."""
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
    "_scaled_mm": _scaled_mm,
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
            return _torchs_error(func, *args, out=out, **kwargs)
        if out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)

    return handle


def product_handler(func: Any) -> Handler | None:
    """Of a product, its handler; in place and out= like the plain operation."""
    space, _, name = func._schema.name.partition("::")
    if space != "aten":
        return _lab_matmul if (space, name) == ("fp16lab", "matmul") else None
    handler = _OF_PACKET.get(name) or _OF_PACKET.get(name.removesuffix("_"))
    if handler is None:
        return None
    overload = func._overloadname
    if overload in _PLAIN and name in _OF_PACKET:
        return handler
    plain = getattr(aten, name.removesuffix("_") if name not in _OF_PACKET else name).default
    if overload == "out" and not func._schema.returns[0].type.kind() == "TupleType":
        return _into_out(handler, plain)
    if overload in _PLAIN:
        return _in_place(handler, plain)
    return None
