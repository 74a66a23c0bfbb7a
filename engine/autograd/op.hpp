// Names of the operations, for op lists, error messages and tapes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine {

enum class OpClass : std::uint8_t {
  product,   ///< computed by matrix products
  plain,     ///< any other one that an op list may name
  unlisted,  ///< not for op lists: it has no dtype of its own, or says its dtype itself
};

/// Every differentiable operation: X(name, class). Composite ones (norms, softmax, losses) are listed because
/// autocast decides on them as a whole.
///   leaf      a parameter, an input or a constant: no operation
///   identity  the same value under a new id: a place to observe a gradient
///   custom    the user's own (engine/autograd/custom_op.hpp)
#define FP16LAB_OPS(X)                       \
  X(leaf, unlisted)                          \
  X(identity, unlisted)                      \
  X(cast, unlisted)                          \
  X(matmul, product)                         \
  X(linear, product)                         \
  X(conv2d, product)                         \
  X(conv2d_input_gradient, product)          \
  X(conv2d_weight_gradient, product)         \
  X(conv_transpose2d, product)               \
  X(lstm, product)                           \
  X(max_pool2d, plain)                       \
  X(pool_pick, unlisted)                     \
  X(pool_place, unlisted)                    \
  X(average_pool2d, plain)                   \
  X(average_pool2d_transposed, unlisted)     \
  X(add, plain)                              \
  X(subtract, plain)                         \
  X(multiply, plain)                         \
  X(divide, plain)                           \
  X(maximum, plain)                          \
  X(minimum, plain)                          \
  X(select_positive, plain)                  \
  X(scale, plain)                            \
  X(divide_constant, plain)                  \
  X(negate, plain)                           \
  X(relu, plain)                             \
  X(exp, plain)                              \
  X(log, plain)                              \
  X(log1p, plain)                            \
  X(square_root, plain)                      \
  X(reciprocal_square_root, plain)           \
  X(absolute, plain)                         \
  X(sign, plain)                             \
  X(sigmoid, plain)                          \
  X(tanh, plain)                             \
  X(erf, plain)                              \
  X(gelu, plain)                             \
  X(sum, plain)                              \
  X(max, plain)                              \
  X(mean, plain)                             \
  X(reshape, plain)                          \
  X(broadcast_to, plain)                     \
  X(permute, plain)                          \
  X(slice, plain)                            \
  X(place_slice, plain)                      \
  X(concat, plain)                           \
  X(pick, plain)                             \
  X(place, plain)                            \
  X(embedding, plain)                        \
  X(scatter_rows, plain)                     \
  X(dropout, plain)                          \
  X(softmax, plain)                          \
  X(log_softmax, plain)                      \
  X(layer_norm, plain)                       \
  X(rms_norm, plain)                         \
  X(group_norm, plain)                       \
  X(batch_norm, plain)                       \
  X(softmax_cross_entropy, plain)            \
  X(mse_loss, plain)                         \
  X(l1_loss, plain)                          \
  X(huber_loss, plain)                       \
  X(binary_cross_entropy, plain)             \
  X(binary_cross_entropy_with_logits, plain) \
  X(custom, unlisted)

enum class Op : std::uint8_t {
#define FP16LAB_OP(name, kind) name,
  FP16LAB_OPS(FP16LAB_OP)
#undef FP16LAB_OP
};

#define FP16LAB_OP(name, kind) +1
inline constexpr std::size_t op_count = 0 FP16LAB_OPS(FP16LAB_OP);
#undef FP16LAB_OP

constexpr std::array<std::string_view, op_count> names_of(Op) {
#define FP16LAB_OP(name, kind) #name,
  return {FP16LAB_OPS(FP16LAB_OP)};
#undef FP16LAB_OP
}

constexpr OpClass class_of(Op op) {
  constexpr std::array<OpClass, op_count> classes = {
#define FP16LAB_OP(name, kind) OpClass::kind,
      FP16LAB_OPS(FP16LAB_OP)
#undef FP16LAB_OP
  };
  return classes[static_cast<std::size_t>(op)];
}

constexpr bool is_product(Op op) { return class_of(op) == OpClass::product; }

}  // namespace fp16lab::engine
