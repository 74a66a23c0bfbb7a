// What operations that multiply matrices share. Internal to engine/autograd.
#pragma once

#include <optional>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

/// How the operands of a product, and the gradient of its result, are rounded on their way into a product.
/// Captured by vjps: backward passes run without the policy that asked for it.
struct Fp8 {
  Fp8Rounding a{};
  Fp8Rounding b{};
  Fp8Rounding gradient{};
};

/// Tells the cast policy of the product that is about to be computed, and gives what it wants of it.
Fp8 announced(Op op, const Variable& a, const ProductShape& shape);

/// matmul of operands that have been checked and have one dtype.
Variable product(const Variable& a, const Variable& b, Transpose transpose, const Fp8& fp8);

/// x (..., in) and weight (out, in) in one gemm, with the bias in its epilogue where there is one: one node,
/// which is linear, or Paddle's matmul. Without `formats` the policy is told and asked.
Variable linear_product(Op op, const Variable& x, const Variable& weight, const Variable& bias,
                        std::optional<Fp8> formats = {});

}  // namespace fp16lab::engine::ops
