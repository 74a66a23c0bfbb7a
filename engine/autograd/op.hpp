// Names of the operations: what op lists, error messages and tapes speak of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp16lab::engine {

/// Every differentiable operation. Composite ones (norms, softmax, losses) are listed because autocast decides
/// on them as a whole.
enum class Op : std::uint8_t {
  leaf,      ///< a parameter, an input or a constant: no operation
  identity,  ///< the same value under a new id: a place to observe a gradient
  cast,
  matmul,
  linear,
  conv2d,
  conv2d_input_gradient,
  conv2d_weight_gradient,
  max_pool2d,
  pool_pick,
  pool_place,
  average_pool2d,
  average_pool2d_transposed,
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  select_positive,
  scale,
  divide_constant,
  negate,
  relu,
  exp,
  log,
  log1p,
  square_root,
  reciprocal_square_root,
  absolute,
  sign,
  sigmoid,
  tanh,
  erf,
  gelu,
  sum,
  max,
  mean,
  reshape,
  broadcast_to,
  permute,
  slice,
  place_slice,
  concat,
  pick,
  place,
  embedding,
  scatter_rows,
  dropout,
  softmax,
  log_softmax,
  layer_norm,
  batch_norm,
  softmax_cross_entropy,
  mse_loss,
  l1_loss,
  huber_loss,
  binary_cross_entropy,
  binary_cross_entropy_with_logits,
  custom,  ///< the user's own (engine/autograd/custom_op.hpp)
  count,
};

inline constexpr std::size_t op_count = static_cast<std::size_t>(Op::count);

constexpr std::string_view name_of(Op op) {
  constexpr std::array<std::string_view, op_count> names = {
      "leaf",
      "identity",
      "cast",
      "matmul",
      "linear",
      "conv2d",
      "conv2d_input_gradient",
      "conv2d_weight_gradient",
      "max_pool2d",
      "pool_pick",
      "pool_place",
      "average_pool2d",
      "average_pool2d_transposed",
      "add",
      "subtract",
      "multiply",
      "divide",
      "maximum",
      "minimum",
      "select_positive",
      "scale",
      "divide_constant",
      "negate",
      "relu",
      "exp",
      "log",
      "log1p",
      "square_root",
      "reciprocal_square_root",
      "absolute",
      "sign",
      "sigmoid",
      "tanh",
      "erf",
      "gelu",
      "sum",
      "max",
      "mean",
      "reshape",
      "broadcast_to",
      "permute",
      "slice",
      "place_slice",
      "concat",
      "pick",
      "place",
      "embedding",
      "scatter_rows",
      "dropout",
      "softmax",
      "log_softmax",
      "layer_norm",
      "batch_norm",
      "softmax_cross_entropy",
      "mse_loss",
      "l1_loss",
      "huber_loss",
      "binary_cross_entropy",
      "binary_cross_entropy_with_logits",
      "custom",
  };
  static_assert(!names.back().empty(), "one name for every op");
  return op < Op::count ? names[static_cast<std::size_t>(op)] : "?";
}

/// Is it computed by a matrix product?
constexpr bool is_product(Op op) {
  return op == Op::matmul || op == Op::linear || op == Op::conv2d || op == Op::conv2d_input_gradient ||
         op == Op::conv2d_weight_gradient;
}

}  // namespace fp16lab::engine
