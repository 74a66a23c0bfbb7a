#include "engine/amp/levels/op_lists.hpp"

#include <algorithm>
#include <array>

namespace fp16lab::engine::amp {

namespace {

constexpr OpListRow white(Op op, std::string_view name = {}) { return {op, OpList::white, name}; }
constexpr OpListRow black(Op op, std::string_view name = {}) { return {op, OpList::black, name}; }
/// An unlisted op, for its name's sake.
constexpr OpListRow follows(Op op, std::string_view name) { return {op, OpList::follows, name}; }

constexpr OpListRow banned_cross_entropy() {
  return {Op::binary_cross_entropy, OpList::banned, "binary_cross_entropy",
          "a probability that was rounded to 16 bits is 0 or 1 where it is neither in FP32, and its "
          "logarithm infinite",
          Op::binary_cross_entropy_with_logits};
}

template <std::size_t... counts>
constexpr auto joined(const std::array<OpListRow, counts>&... parts) {
  std::array<OpListRow, (counts + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

// ---- torch ----

// torch's autocast on CUDA, as its source lists it (aten/src/ATen/autocast_mode.h and .cpp, torch 2.x):
//   AT_FORALL_LOWER_PRECISION_FP: products, convolutions and recurrent cells. convolution_backward, the
//     gradients of conv2d, never runs under autocast, and keeps it company here.
//   AT_FORALL_FP32: exp, log, log1p, rsqrt, layer_norm, rms_norm, group_norm, mse_loss, l1_loss, huber_loss,
//     nll_loss (the second half of cross_entropy, whose first half, log_softmax, is next),
//     binary_cross_entropy_with_logits.
//   AT_FORALL_FP32_SET_OPT_DTYPE: sum, softmax, log_softmax.
//   Banned in autocast_mode.cpp: binary_cross_entropy.
// It lists no mean, whose FP16 kernel accumulates in FP32 and rounds once; FP32 throughout is the same sum,
// and spares the rounding. Rows without a name are ours in this sense. No row, so they follow their inputs:
// relu, gelu, tanh, sigmoid, sqrt, abs, erf (erfinv only is listed), dropout, pooling, embedding, batch_norm
// and all that moves elements.
constexpr std::array torch_lists = {
    white(Op::matmul, "matmul"),
    white(Op::matmul, "mm"),
    white(Op::matmul, "mv"),
    white(Op::matmul, "bmm"),
    white(Op::matmul, "einsum"),
    white(Op::matmul, "chain_matmul"),
    white(Op::matmul, "linalg_multi_dot"),
    white(Op::matmul, "linalg_vecdot"),
    white(Op::linear, "linear"),
    white(Op::linear, "addmm"),
    white(Op::linear, "addmv"),
    white(Op::linear, "addbmm"),
    white(Op::linear, "baddbmm"),
    white(Op::conv2d, "conv2d"),
    white(Op::conv2d, "convolution"),
    white(Op::conv2d, "_convolution"),
    white(Op::conv2d, "cudnn_convolution"),
    white(Op::conv_transpose2d, "conv_transpose2d"),
    white(Op::conv_transpose2d, "cudnn_convolution_transpose"),
    white(Op::lstm, "lstm_cell"),
    white(Op::conv2d_input_gradient),
    white(Op::conv2d_weight_gradient),
    black(Op::exp, "exp"),
    black(Op::log, "log"),
    black(Op::log1p, "log1p"),
    black(Op::reciprocal_square_root, "rsqrt"),
    black(Op::sum, "sum"),
    black(Op::mean),
    black(Op::softmax, "softmax"),
    black(Op::log_softmax, "log_softmax"),
    black(Op::layer_norm, "layer_norm"),
    black(Op::rms_norm, "rms_norm"),
    black(Op::group_norm, "group_norm"),
    black(Op::softmax_cross_entropy, "nll_loss"),
    black(Op::softmax_cross_entropy, "nll_loss2d"),
    black(Op::mse_loss, "mse_loss"),
    black(Op::l1_loss, "l1_loss"),
    black(Op::huber_loss, "smooth_l1_loss"),
    black(Op::binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits"),
    banned_cross_entropy(),
    follows(Op::add, "add"),
    follows(Op::subtract, "sub"),
    follows(Op::multiply, "mul"),
    follows(Op::divide, "div"),
    follows(Op::negate, "neg"),
    follows(Op::square_root, "sqrt"),
    follows(Op::absolute, "abs"),
    follows(Op::max, "amax"),
    follows(Op::average_pool2d, "avg_pool2d"),
    follows(Op::concat, "cat"),
    follows(Op::permute, "permute"),
    follows(Op::broadcast_to, "expand"),
};

// ---- paddle ----

// python/paddle/amp/amp_lists.py as paddlepaddle 3.3.1 has it (tests/golden/amp_op_lists.tsv), dygraph names.
// OD has the white list only, O2 the white list and the extra black one. FP16 and BF16 differ in ops that
// this engine does not have (fake_quantize_*, fused_attention); other snapshots of Paddle have an empty black
// list for BF16.
//   * Linear is matmul_v2 and elementwise_add, a convolution with a bias conv2d and elementwise_add.
//   * max_pool2d is pool2d, unlisted; max_pool2d_with_index (white) is what return_mask = True calls.
//   * F.mse_loss is a subtraction, square and reduce_mean, F.l1_loss abs and reduce_mean: whole losses here,
//     in FP32 because their reductions are.
//   * conv2d_transpose is unlisted, log1p, rms_norm and bce_loss are as well.
constexpr std::array paddle_white = {
    white(Op::matmul, "matmul_v2"), white(Op::matmul, "matmul"), white(Op::matmul, "mul"),
    white(Op::matmul, "einsum"),    white(Op::conv2d, "conv2d"),
};
constexpr std::array paddle_black = {
    black(Op::exp, "exp"),
    black(Op::log, "log"),
    black(Op::reciprocal_square_root, "rsqrt"),
    black(Op::sum, "reduce_sum"),
    black(Op::mean, "reduce_mean"),
    black(Op::mean, "mean"),
    black(Op::softmax, "softmax"),
    black(Op::log_softmax, "log_softmax"),
    black(Op::layer_norm, "layer_norm"),
    black(Op::group_norm, "group_norm"),
    black(Op::softmax_cross_entropy, "softmax_with_cross_entropy"),
    black(Op::softmax_cross_entropy, "cross_entropy"),
    black(Op::softmax_cross_entropy, "cross_entropy2"),
    black(Op::softmax_cross_entropy, "nll_loss"),
    black(Op::mse_loss, "square"),
    black(Op::l1_loss),
    black(Op::huber_loss, "huber_loss"),
    black(Op::binary_cross_entropy_with_logits, "sigmoid_cross_entropy_with_logits"),
};
constexpr std::array paddle_extra_black = {
    black(Op::embedding, "lookup_table_v2"),
    black(Op::embedding, "lookup_table"),
    black(Op::scatter_rows, "scatter"),
};
constexpr std::array paddle_names = {
    follows(Op::add, "elementwise_add"),
    follows(Op::subtract, "elementwise_sub"),
    follows(Op::multiply, "elementwise_mul"),
    follows(Op::divide, "elementwise_div"),
    follows(Op::maximum, "elementwise_max"),
    follows(Op::minimum, "elementwise_min"),
    follows(Op::square_root, "sqrt"),
    follows(Op::absolute, "abs"),
    follows(Op::max, "reduce_max"),
    follows(Op::max_pool2d, "pool2d"),
    follows(Op::conv_transpose2d, "conv2d_transpose"),
    follows(Op::reshape, "reshape2"),
    follows(Op::broadcast_to, "expand_v2"),
    follows(Op::permute, "transpose2"),
    follows(Op::binary_cross_entropy, "bce_loss"),
};
constexpr auto paddle_od = joined(paddle_white, paddle_names);
constexpr auto paddle_o1 = joined(paddle_white, paddle_black, paddle_extra_black, paddle_names);
constexpr auto paddle_o2 = joined(paddle_white, paddle_extra_black, paddle_names);

// ---- mindspore ----

// mindspore/train/amp.py: AMP_WHITE_LIST (O1), AMP_BLACK_LIST (O2). Cells and primitives under one name each;
// O3 has no list. nn.Dense is one op here, as the cell is there.
constexpr std::array mindspore_white = {
    white(Op::matmul, "MatMul"),
    white(Op::matmul, "BatchMatMul"),
    white(Op::linear, "Dense"),
    white(Op::conv2d, "Conv2d"),
    white(Op::conv2d, "Conv2D"),
    white(Op::conv2d_input_gradient, "Conv2DBackpropInput"),
    white(Op::conv_transpose2d, "Conv2DTranspose"),
    white(Op::conv_transpose2d, "Conv2dTranspose"),
    white(Op::relu, "ReLU"),
    white(Op::lstm, "LSTMCell"),
};
constexpr std::array mindspore_black = {
    black(Op::batch_norm, "BatchNorm2d"),
    black(Op::batch_norm, "BatchNorm1d"),
    black(Op::layer_norm, "LayerNorm"),
};
// AMP_AUTO_WHITE_LIST, AMP_AUTO_BLACK_LIST (auto of 2.x, read from 2.10.0): primitives, not cells, so that
// nn.Dense and nn.Conv2d are MatMul or Conv2D and then BiasAdd, which takes the wider of its inputs as every
// primitive without a list does. Dense is what mint.nn.Linear calls. ReduceSum is in no list, SumExt
// (mint.sum) is; LSTM is in none. nn.SoftmaxCrossEntropyWithLogits and nn.MSELoss, whose inputs are FP32 by
// then, are in none either: our losses are nn.CrossEntropyLoss (LogSoftmax, NLLLoss) and mint's.
constexpr std::array mindspore_auto_white = {
    white(Op::matmul, "MatMul"),
    white(Op::matmul, "MatMulExt"),
    white(Op::matmul, "BatchMatMul"),
    white(Op::matmul, "BatchMatMulExt"),
    white(Op::matmul, "Einsum"),
    white(Op::matmul, "Mv"),
    white(Op::linear, "Dense"),
    white(Op::linear, "Addmm"),
    white(Op::linear, "Addbmm"),
    white(Op::linear, "Addmv"),
    white(Op::linear, "Baddbmm"),
    white(Op::conv2d, "Conv2D"),
    white(Op::conv2d, "Conv2DExt"),
    white(Op::conv2d, "Convolution"),
    white(Op::conv_transpose2d, "Conv2DTranspose"),
    white(Op::conv_transpose2d, "ConvTranspose2D"),
};
constexpr std::array mindspore_auto_black = {
    black(Op::exp, "Exp"),
    black(Op::log, "Log"),
    black(Op::log1p, "Log1p"),
    black(Op::reciprocal_square_root, "Rsqrt"),
    black(Op::sum, "SumExt"),
    black(Op::softmax, "Softmax"),
    black(Op::log_softmax, "LogSoftmax"),
    black(Op::log_softmax, "LogSoftmaxExt"),
    black(Op::layer_norm, "LayerNorm"),
    black(Op::layer_norm, "LayerNormExt"),
    black(Op::group_norm, "GroupNorm"),
    black(Op::batch_norm, "BatchNorm"),
    black(Op::batch_norm, "BatchNormExt"),
    black(Op::softmax_cross_entropy, "NLLLoss"),
    black(Op::softmax_cross_entropy, "NLLLoss2d"),
    black(Op::mse_loss, "MSELossExt"),
    black(Op::l1_loss, "L1LossExt"),
    black(Op::huber_loss, "SmoothL1Loss"),
    black(Op::binary_cross_entropy_with_logits, "BCEWithLogitsLoss"),
};
constexpr std::array mindspore_bias_add = {follows(Op::add, "BiasAdd")};

/// Names of ops that auto alone lists, at the other levels.
constexpr std::array mindspore_listed_names = {
    follows(Op::exp, "Exp"),
    follows(Op::log, "Log"),
    follows(Op::log1p, "Log1p"),
    follows(Op::reciprocal_square_root, "Rsqrt"),
    follows(Op::sum, "ReduceSum"),
    follows(Op::softmax, "Softmax"),
    follows(Op::log_softmax, "LogSoftmax"),
    follows(Op::group_norm, "GroupNorm"),
    follows(Op::softmax_cross_entropy, "SoftmaxCrossEntropyWithLogits"),
    follows(Op::mse_loss, "MSELoss"),
    follows(Op::l1_loss, "L1Loss"),
    follows(Op::huber_loss, "HuberLoss"),
    follows(Op::binary_cross_entropy_with_logits, "BCEWithLogitsLoss"),
};
constexpr std::array mindspore_names = {
    follows(Op::conv2d_weight_gradient, "Conv2DBackpropFilter"),
    follows(Op::rms_norm, "RmsNorm"),
    follows(Op::max_pool2d, "MaxPool"),
    follows(Op::average_pool2d, "AvgPool"),
    follows(Op::add, "Add"),
    follows(Op::subtract, "Sub"),
    follows(Op::multiply, "Mul"),
    follows(Op::divide, "RealDiv"),
    follows(Op::maximum, "Maximum"),
    follows(Op::minimum, "Minimum"),
    follows(Op::negate, "Neg"),
    follows(Op::square_root, "Sqrt"),
    follows(Op::absolute, "Abs"),
    follows(Op::sign, "Sign"),
    follows(Op::sigmoid, "Sigmoid"),
    follows(Op::tanh, "Tanh"),
    follows(Op::erf, "Erf"),
    follows(Op::gelu, "GeLU"),
    follows(Op::max, "ReduceMax"),
    follows(Op::mean, "ReduceMean"),
    follows(Op::reshape, "Reshape"),
    follows(Op::broadcast_to, "BroadcastTo"),
    follows(Op::permute, "Transpose"),
    follows(Op::slice, "Slice"),
    follows(Op::concat, "Concat"),
    follows(Op::embedding, "Embedding"),
    follows(Op::dropout, "Dropout"),
    follows(Op::binary_cross_entropy, "BCELoss"),
};
constexpr auto mindspore_o1 = joined(mindspore_white, mindspore_listed_names, mindspore_names);
constexpr auto mindspore_o2 = joined(mindspore_black, mindspore_listed_names, mindspore_names);
constexpr auto mindspore_o3 = joined(mindspore_listed_names, mindspore_names);
constexpr auto mindspore_auto =
    joined(mindspore_auto_white, mindspore_auto_black, mindspore_bias_add, mindspore_names);

// ---- apex ----

// apex/amp/lists: functional_overrides.py, torch_overrides.py, tensor_overrides.py (bmm is FP16 from CUDA 9.1
// on, mean FP32 before torch 1.1 only). Its CASTS (add, div, mul) and SEQUENCE_CASTS (cat) promote to the
// widest input, as all ops without a list do here. Unlike torch's, its lists lack log1p and mean. O2 and O3
// patch no functions.
constexpr std::array apex_lists = {
    white(Op::matmul, "matmul"),
    white(Op::matmul, "__matmul__"),
    white(Op::matmul, "mm"),
    white(Op::matmul, "mv"),
    white(Op::matmul, "bmm"),
    white(Op::linear, "linear"),
    white(Op::linear, "addmm"),
    white(Op::linear, "addmv"),
    white(Op::linear, "addbmm"),
    white(Op::linear, "baddbmm"),
    white(Op::conv2d, "conv2d"),
    white(Op::conv_transpose2d, "conv_transpose2d"),
    white(Op::conv2d_input_gradient),   // in conv2d's company
    white(Op::conv2d_weight_gradient),  // likewise
    white(Op::lstm),                    // amp.py wraps the backends of RNNs and their cells (wrap.rnn_cast)
    black(Op::exp, "exp"),
    black(Op::log, "log"),
    black(Op::reciprocal_square_root, "rsqrt"),
    black(Op::gelu, "gelu"),
    black(Op::sum, "sum"),
    black(Op::softmax, "softmax"),
    black(Op::log_softmax, "log_softmax"),
    black(Op::layer_norm, "layer_norm"),
    black(Op::group_norm, "group_norm"),
    black(Op::softmax_cross_entropy, "cross_entropy"),
    black(Op::softmax_cross_entropy, "nll_loss"),
    black(Op::mse_loss, "mse_loss"),
    black(Op::l1_loss, "l1_loss"),
    black(Op::huber_loss, "smooth_l1_loss"),
    black(Op::binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits"),
    banned_cross_entropy(),
    follows(Op::add, "add"),
    follows(Op::subtract, "sub"),
    follows(Op::multiply, "mul"),
    follows(Op::divide, "div"),
    follows(Op::concat, "cat"),
};

}  // namespace

std::span<const OpListRow> op_lists(Dialect dialect, Level level, [[maybe_unused]] DType low) {
  if (level == Level::O0) return {};
  switch (dialect) {
    case Dialect::torch:
      return level == Level::O1 ? std::span<const OpListRow>(torch_lists) : std::span<const OpListRow>();
    case Dialect::paddle:
      if (level == Level::OD) return paddle_od;
      return level == Level::O1 ? std::span<const OpListRow>(paddle_o1) : paddle_o2;
    case Dialect::mindspore:
      if (level == Level::O1) return mindspore_o1;
      if (level == Level::O3) return mindspore_o3;
      return level == Level::automatic ? std::span<const OpListRow>(mindspore_auto) : mindspore_o2;
    case Dialect::apex:
      return level == Level::O1 ? std::span<const OpListRow>(apex_lists) : std::span<const OpListRow>();
  }
  return {};
}

OpListRow row_of(Dialect dialect, Level level, DType low, Op op) {
  const auto rows = op_lists(dialect, level, low);
  const auto row =
      std::find_if(rows.begin(), rows.end(), [op](const OpListRow& candidate) { return candidate.op == op; });
  return row == rows.end() ? OpListRow{op, OpList::follows} : *row;
}

std::optional<Op> op_from_name(Dialect dialect, std::string_view name) {
  if (name.empty()) return std::nullopt;  // rows without a name are ours
  // Theirs first: what a name means in the dialect counts.
  for (const Level level : levels_of(dialect)) {
    for (const OpListRow& row : op_lists(dialect, level))
      if (row.name == name) return row.op;
  }
  for (std::size_t i = 0; i < op_count; ++i)
    if (name_of(static_cast<Op>(i)) == name) return static_cast<Op>(i);
  return std::nullopt;
}

}  // namespace fp16lab::engine::amp
