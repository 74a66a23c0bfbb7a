"""What lab.emulate leaves to torch: operations that multiply no matrices."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

#: Besides elementwise operations, views and their copies, and _foreach_* and _fused_* of optimizers. Trailing
#: underscores are left out: "add" means "add_" too.
PASSES = frozenset(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full
    zeros zeros_like zero ones ones_like full full_like fill scalar_tensor arange linspace logspace range
    eye tril triu tril_indices triu_indices bartlett_window blackman_window hamming_window hann_window
    kaiser_window affine_grid_generator

    rand rand_like randint randint_like randn randn_like random randperm uniform normal normal_functional
    log_normal exponential geometric cauchy bernoulli binomial poisson multinomial _standard_gamma
    _sample_dirichlet dropout alpha_dropout feature_dropout feature_alpha_dropout _fused_dropout rrelu
    rrelu_with_noise_functional

    _to_copy copy copy_ clone lift lift_fresh detach resize resize_as set _resize_output contiguous
    _copy_from _pin_memory is_pinned is_same_size is_set_to _local_scalar_dense _has_same_storage_numel
    _unsafe_view _reshape_alias squeeze unsqueeze t transpose as_strided record_stream _lazy_clone

    cat stack _stack _chunk_cat block_diag split split_with_sizes unsafe_split unsafe_split_with_sizes
    repeat repeat_interleave flip roll rot90 constant_pad_nd channel_shuffle pixel_shuffle pixel_unshuffle
    im2col col2im unfold_backward diag_embed diagonal_backward diagonal_scatter select_backward
    select_scatter slice_backward slice_scatter as_strided_scatter complex polar trace

    index index_put _index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate index_select index_add index_copy index_fill index_reduce gather
    scatter scatter_add scatter_reduce take put masked_fill masked_scatter masked_select nonzero
    nonzero_static where searchsorted bucketize isin

    embedding embedding_dense_backward embedding_renorm _embedding_bag _embedding_bag_forward_only
    _embedding_bag_dense_backward

    sum mean prod amax amin aminmax _aminmax max min argmax argmin all any std std_mean var var_mean norm
    native_norm linalg_vector_norm nansum nanmedian median mode kthvalue count_nonzero logsumexp cumsum
    cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp sort topk unique_dim
    _unique _unique2 unique_consecutive unique_dim_consecutive bincount histc histogram hash_tensor renorm
    _is_all_true _is_any_true allclose equal dist _amp_update_scale
    _amp_foreach_non_finite_check_and_unscale

    softmax _softmax _softmax_backward_data log_softmax _log_softmax _log_softmax_backward_data
    _safe_softmax _masked_softmax glu glu_jvp glu_backward_jvp _prelu_kernel log_sigmoid_forward
    log_sigmoid_backward rrelu_with_noise native_dropout _masked_scale

    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_with_update_functional
    _batch_norm_no_update batch_norm_backward native_layer_norm native_group_norm _fused_rms_norm

    avg_pool1d adaptive_avg_pool1d adaptive_avg_pool3d avg_pool2d avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool3d
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d fractional_max_pool2d
    fractional_max_pool3d reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d

    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss smooth_l1_loss
    huber_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss multi_margin_loss
    multilabel_margin_loss_forward multilabel_margin_loss_backward _ctc_loss

    _weight_norm_interface _efficientzerotensor _pack_padded_sequence _pad_packed_sequence
    _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward to_padded_tensor hardswish floor_divide
    _add_relu _transform_bias_rescale_qkv _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl
    _thnn_fused_gru_cell

    fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fake_quantize_learnable_per_tensor_affine
    _fake_quantize_learnable_per_channel_affine _fused_moving_avg_obs_fq_helper
    _fused_moving_avg_obs_fq_helper_functional quantize_per_tensor quantize_per_tensor_dynamic
    quantize_per_channel dequantize int_repr

    _standard_gamma_grad _dirichlet_grad _philox_normal _philox_uniform linalg_cross linalg__powsum
    segment_reduce _segment_reduce_backward _cdist_backward _pdist_forward _pdist_backward
    _upsample_lanczos2d_aa _grid_sampler_2d_cpu_fallback max_pool2d_backward batch_norm_stats
    batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_backward_reduce
    batch_norm_backward_elemt batch_norm_update_stats

    _coalesce _coalesced _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors
    sparse_resize sparse_resize_and_clear resize_as_sparse copy_sparse_to_sparse sparse_mask
    _sparse_sum _assert_async _functional_assert_async lu_unpack _linalg_check_errors
    fft_fftfreq fft_rfftfreq from_file
    """.split()
)


#: torchvision's operations, except deform_conv2d, which multiplies.
_OF_TORCHVISION = frozenset("nms roi_align roi_pool ps_roi_align ps_roi_pool".split())
_NAMESPACES = frozenset(("prim", "prims", "profiler", "c10d", "_c10d_functional", "fsdp"))


def passes(func: Any) -> bool:
    """Is it torch's own? One in place or with out= is if its functional form is, and a backward one if its
    forward form is."""
    space, _, name = func._schema.name.partition("::")
    if space == "torchvision":
        return name.removeprefix("_").removesuffix("_backward") in _OF_TORCHVISION
    if space != "aten":
        return space in _NAMESPACES
    base = _functional(name)
    forward = base.removesuffix("_backward")
    return (
        base in PASSES
        or forward in PASSES
        or base.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad"))
        or base.removesuffix("_copy") != base
        or _is_elementwise(forward)
        or any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
    )


def _functional(name: str) -> str:
    """The name without what marks a form in place: "abs" of "abs_", "__rshift__" of "__irshift__"."""
    if not name.startswith("__"):
        return name.rstrip("_")
    plain = name.replace("__i", "__", 1)
    return plain if hasattr(torch.ops.aten, plain) else name


@cache
def _is_elementwise(name: str) -> bool:
    """Is a form of this name marked as elementwise? Torch does not mark all of them."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    return any(torch.Tag.pointwise in getattr(packet, form).tags for form in packet.overloads())
