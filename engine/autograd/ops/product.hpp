// What operations that multiply matrices share. Internal to engine/autograd.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

/// How the operands of a product, and the gradient of its result, are rounded on their way into a product.
/// Captured by vjps: backward passes run without the policy that asked for it.
struct Formats : ProductOperands {
  std::optional<DType> gradient{};  ///< to FP8
  bool tf32 = false;                ///< all three, of FP32 operands

  /// The formats of a product in the backward pass, with these operands. Quantizers have a product each, and
  /// none for gradients of gradients.
  Formats with(OperandRounding left, OperandRounding right) const {
    return a.quantizer != nullptr ? Formats{} : Formats{{left, right}, gradient, tf32};
  }
  OperandRounding of_gradient() const { return {.fp8 = gradient}; }
};

/// Announces the product, no linear layer's, to the cast policy before it is computed, and returns the
/// policy's formats.
Formats announced(Op op, const Variable& a, const ProductShape& shape);

/// matmul of operands that have been checked and have one dtype. `shared_over_steps` > 0: b is a matrix that
/// all examples share, and a, not transposed, has their rows, as by_shard takes them.
Variable product(const Variable& a, const Variable& b, Transpose transpose, const Formats& formats,
                 std::int64_t shared_over_steps = 0);

/// x (..., in) and weight (out, in) in one gemm, with the bias in its epilogue where there is one: one node,
/// which is linear, or Paddle's matmul. Without `formats` it asks the policy for them.
Variable linear_product(Op op, const Variable& x, const Variable& weight, const Variable& bias,
                        std::optional<Formats> formats = {});

/// product + bias as an add of its own, whose bias has the layer's name for it; the bias broadcasts in the
/// shape `as`, and `of_bias` gives its gradient. No vjp needs the product itself: the sum takes its place, in
/// its memory, so that a layer leaves one activation and not two.
Variable add_bias(const Variable& product, const Variable& bias, const Shape& as, Vjp of_bias);

}  // namespace fp16lab::engine::ops
