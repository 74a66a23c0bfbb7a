"""CUDA's autocast lists: which operation computes in which dtype under torch.autocast("cuda").

They are those of aten/src/ATen/autocast_mode.h (AT_FORALL_*), which PyTorch's wheel carries, and of
autocast_mode.cpp. What PyTorch at hand lists counts: an operation that it lists and this table does not is an
error where it is called (autocast_kernels.py). tests/with_torch/test_autocast_lists.py compares the table
with the header, with what CUDA's autocast does, and with the lists of the C++ engine.
"""

from __future__ import annotations

#: Policy -> operations, named as by the dispatcher, without aten:: in front. Policies have the names of
#: at::autocast::CastPolicy, or "banned" (an error) and "cudnn_rnn" (below).
_LISTS = {
    "lower_precision_fp": """
        _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d
        conv_transpose2d.input conv_transpose3d.input convolution cudnn_convolution
        cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
        baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell
        gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
        scaled_dot_product_attention""",
    "fp32": """
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
        pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
        frobenius_norm.dim nuclear_norm nuclear_norm.dim linalg_matrix_sqrth cosine_similarity
        poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
        smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
        triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
        logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
        upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
        _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa""",
    "fp32_set_opt_dtype": """
        prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
        linalg_matrix_norm.str_ord sum sum.dim_IntList""",
    "fp32_append_dtype": "norm.Scalar norm.ScalarOpt_dim",
    "promote": "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add",
    "banned": "binary_cross_entropy",
    "cudnn_rnn": "_cudnn_rnn",
}

CUDA_POLICIES = {f"aten::{op}": policy for policy, ops in _LISTS.items() for op in ops.split()}

#: nn.LSTM, GRU and RNN: on a GPU they all reach cuDNN by aten::_cudnn_rnn. CPU tensors do not, so that its
#: policy is applied here.
RECURRENT = tuple(
    f"aten::{cell}.{of}" for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu") for of in ("input", "data")
)

#: Overloads that take an output dtype, of those that do not.
WITH_DTYPE = {"aten::norm.Scalar": "ScalarOpt_dtype", "aten::norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}

#: Not on CUDA's lists, and on the CPU's for want of a 16-bit kernel that CUDA has.
NO_16_BIT_KERNEL = ("aten::avg_pool3d",)
