// Names of the operations: what op lists, error messages and tapes speak of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp16lab::engine {

/// Every differentiable operation. Composite ones (losses) are listed because autocast decides on them as a
/// whole.
enum class Op : std::uint8_t {
  leaf,      ///< a parameter, an input or a constant: no operation
  identity,  ///< the same value under a new id: a place to observe a gradient
  cast,
  matmul,
  linear,
  add,
  subtract,
  multiply,
  divide,
  select_positive,
  scale,
  divide_constant,
  negate,
  relu,
  exp,
  log,
  square_root,
  sum,
  max,
  mean,
  reshape,
  broadcast_to,
  pick,
  place,
  softmax_cross_entropy,
  mse_loss,
  count,
};

inline constexpr std::size_t op_count = static_cast<std::size_t>(Op::count);

constexpr std::string_view name_of(Op op) {
  constexpr std::array<std::string_view, op_count> names = {
      "leaf",    "identity",        "cast",     "matmul", "linear",
      "add",     "subtract",        "multiply", "divide", "select_positive",
      "scale",   "divide_constant", "negate",   "relu",   "exp",
      "log",     "square_root",     "sum",      "max",    "mean",
      "reshape", "broadcast_to",    "pick",     "place",  "softmax_cross_entropy",
      "mse_loss"};
  return op < Op::count ? names[static_cast<std::size_t>(op)] : "?";
}

}  // namespace fp16lab::engine
