"""lab.emulate knows every operation of PyTorch: a walk of the dispatcher, beside its own lists of elementwise ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fp16lab.torch.emulated_ops import product_handler
from fp16lab.torch.emulating import IN_PARTS
from fp16lab.torch.passing_ops import passes

aten = torch.ops.aten
#: Refused where an operand is a floating-point tensor, in torch 2.15: solvers and transforms, sparse, quantized and
#: nested tensors, and kernels of other devices than the CPU, which a program of CPU tensors cannot call.
REFUSED = frozenset(
    """
    _addmm_activation _assert_tensor_metadata _cholesky_solve_helper _compute_linear_combination
    _conv_depthwise2d _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
    _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _convolution _copy_from_and_resize
    _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search _cudnn_attention_backward
    _cudnn_attention_forward _cudnn_attention_forward_no_dropout_inplace _cudnn_ctc_loss
    _cudnn_init_dropout_state _cudnn_rnn _cudnn_rnn_backward _cudnn_rnn_flatten_weight _dimI _dimV
    _dyn_quant_matmul_4bit _dyn_quant_pack_4bit_weight _efficient_attention_backward
    _efficient_attention_forward _embedding_bag_per_sample_weights_backward _empty_affine_quantized
    _empty_per_channel_affine_quantized _fft_c2c _fft_c2r _fft_r2c _fill_mem_eff_dropout_mask_
    _flash_attention_backward _flash_attention_forward _flash_attention_forward_no_dropout_inplace _foobar
    _functional_assert_scalar _functional_sym_constrain_range _functional_sym_constrain_range_for_size
    _fused_sdp_choice _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors
    _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd _lstm_mps
    _make_dep_token _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor
    _mixed_dtypes_linear _mkldnn_reshape _mkldnn_transpose _mkldnn_transpose_ _mps_convolution
    _mps_convolution_transpose _native_multi_head_attention _nested_compute_contiguous_strides_offsets
    _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor
    _nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen _nested_get_min_seqlen
    _nested_get_offsets _nested_get_ragged_idx _nested_select_backward _nested_sum_backward
    _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list
    _nested_tensor_size _nested_tensor_softmax_with_shape _nested_tensor_storage_offsets
    _nested_tensor_strides _new_zeros_with_same_feature_meta _nnpack_spatial_convolution _nnz
    _philox_key_fold_in _philox_key_split _philox_randint _philox_randint_ _scaled_addmm _scaled_addmm_
    _scaled_dot_product_attention_math_for_mps _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_fused_attention_overrideable
    _scaled_dot_product_fused_attention_overrideable_backward _slow_conv2d_backward _slow_conv2d_forward
    _sparse_addmm _sparse_compressed_tensor_with_dims _sparse_csr_prod _sparse_csr_sum _sparse_log_softmax
    _sparse_log_softmax_backward_data _sparse_mask_projection _sparse_mm_reduce_impl
    _sparse_mm_reduce_impl_backward _sparse_semi_structured_addmm _sparse_semi_structured_apply
    _sparse_semi_structured_apply_dense _sparse_semi_structured_linear _sparse_semi_structured_mm
    _sparse_semi_structured_tile _sparse_softmax _sparse_softmax_backward_data _sparse_sparse_matmul
    _spdiags _spsolve _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
    _to_sparse_semi_structured _transformer_encoder_layer_fwd _triton_multi_head_attention
    _triton_scaled_dot_attention _use_cudnn_ctc_loss _use_miopen_ctc_loss
    _validate_compressed_sparse_indices _weight_int4pack_mm _weight_int4pack_mm_for_cpu
    _weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm addmm baddbmm bmm cholesky_inverse
    cholesky_solve conv_depthwise3d conv_tbc convolution_backward_overrideable cudnn_affine_grid_generator
    cudnn_affine_grid_generator_backward cudnn_batch_norm cudnn_batch_norm_backward cudnn_convolution
    cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler
    cudnn_grid_sampler_backward dense_dim empty_quantized geqrf hspmm is_coalesced linalg_cholesky_ex
    linalg_eig linalg_eigvals linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex
    linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp
    linalg_matrix_sqrth linalg_pinv linalg_polar linalg_qr linear linear_backward lstm_mps_backward
    matmul_backward miopen_batch_norm miopen_batch_norm_backward miopen_convolution
    miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss
    miopen_depthwise_convolution miopen_rnn miopen_rnn_backward mkldnn_adaptive_avg_pool2d
    mkldnn_adaptive_avg_pool2d_backward mkldnn_convolution mkldnn_linear mkldnn_linear_backward
    mkldnn_linear_backward_input mkldnn_linear_backward_weights mkldnn_max_pool2d
    mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_max_pool3d_backward mkldnn_reorder_conv2d_weight
    mkldnn_reorder_conv3d_weight mkldnn_rnn_layer mkldnn_rnn_layer_backward mm mps_convolution_backward
    mps_convolution_transpose_backward ormqr q_per_channel_axis q_per_channel_scales
    q_per_channel_zero_points q_scale q_zero_point qscheme quantized_batch_norm quantized_gru
    quantized_lstm quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d shallow_copy_data_
    slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d
    sparse_compressed_tensor sparse_coo_tensor sparse_dim sparse_sampled_addmm sspaddmm to_mkldnn
    triangular_solve
    """.split()
)


def operations() -> Iterator[torch._ops.OpOverload]:
    """aten's operations with tensors."""
    for name in torch._C._dispatch_get_all_op_names():
        base, _, form = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and not base.startswith("_test_"):
            func = getattr(getattr(aten, base, None), form or "default", None)
            if func is not None and "Tensor" in str(func._schema):
                yield func


def base_of(func: torch._ops.OpOverload) -> str:
    return func._schema.name.removeprefix("aten::")


def is_known(func: torch._ops.OpOverload) -> bool:
    """Is it a product, made of known operations, or torch's own?"""
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return (
        product_handler(func) is not None or composite or func._schema.name in IN_PARTS or passes(func)
    )


def elementwise() -> set[str]:
    """By PyTorch's tags, its native_functions.yaml, DTensor's list and the test suite's ufuncs."""
    found = {base_of(func) for func in operations() if torch.Tag.pointwise in func.tags}
    yaml = Path(torch.__file__).parent.parent / "torchgen/packaged/ATen/native/native_functions.yaml"
    if yaml.exists():
        for entry in yaml.read_text().split("\n- func: ")[1:]:
            if "structured_inherits: TensorIteratorBase" in entry:
                found.add(re.split(r"[.(]", entry)[0])
    if torch.distributed.is_available():
        from torch.distributed.tensor._ops import _pointwise_ops

        listed = [each for each in vars(_pointwise_ops).values() if isinstance(each, (list, dict, set))]
        found |= {
            base_of(func)
            for each in listed
            for func in each
            if isinstance(func, torch._ops.OpOverload) and func.namespace == "aten"
        }
    try:
        from torch.testing._internal import common_methods_invocations as suite
    except ImportError:  # without expecttest
        return found
    ufuncs = [*suite.unary_ufuncs, *suite.binary_ufuncs]
    return found | {name for info in ufuncs if hasattr(aten, name := info.aten_name or info.name)}


def test_every_elementwise_operation_passes_in_all_its_forms():
    names = elementwise()
    assert len(names) > 200
    forms = names | {f"{name}_" for name in names} | {f"{name}_backward" for name in names}
    refused = {str(func) for func in operations() if base_of(func) in forms and not is_known(func)}
    assert not refused


def test_a_form_in_place_passes_where_its_functional_form_does():
    checked = 0
    for func in operations():
        name = base_of(func)
        plain = getattr(aten, name.rstrip("_"), None)
        if name.endswith("_") and not name.startswith("__") and plain is not None:
            if any(passes(getattr(plain, form)) for form in plain.overloads()):
                assert is_known(func), func
                checked += 1
    assert checked > 150


@pytest.mark.skipif(not torch.__version__.startswith("2.15."), reason="the list is that of torch 2.15")
def test_what_is_refused_is_listed():
    """A closed partition: an operation that is new to it is found here."""
    refused = {base_of(func) for func in operations() if not is_known(func)}
    assert not refused - REFUSED and not REFUSED - refused


#: What a product must never be taken for.
PRODUCTS = (
    "mm", "addmm", "bmm", "convolution", "convolution_backward", "_scaled_mm", "_grouped_mm", "_trilinear",
    "_flash_attention_forward", "_weight_int8pack_mm", "linear_backward", "matmul_backward", "linalg_inv_ex",
    "mkldnn_rnn_layer", "_sparse_addmm", "_embedding_bag_per_sample_weights_backward",
)  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_do_not_pass(name):
    packet = getattr(aten, name)
    assert not any(passes(getattr(packet, form)) for form in packet.overloads())


def test_regions_of_torchvision_pass_and_its_products_do_not():
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    ops = torch.ops.torchvision
    assert all(passes(each.default) for each in (ops.nms, ops.roi_align, ops._roi_align_backward))
    assert not passes(ops.deform_conv2d.default)
