// What composite operations (norms, softmax, losses) share: inputs widened to FP32, and verbs as expressions.
// Internal to engine/autograd.
#pragma once

#include <span>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine::composite {

/// Brings the inputs of `op` to FP32 and returns the dtype that the cast policy (or, without one, promotion)
/// asks of the op: the dtype to which the caller rounds its result. Each input enters through one node whose
/// vjp is the one place where its gradient is rounded to its own dtype, observed there as its label; if
/// nothing is rounded that node is an identity, so that the gradient has a name at every level. An input
/// without a label that is FP32 already stays as it is.
DType enter(Op op, std::span<Variable> inputs, std::span<const SlotLabel> labels);

/// One input alone, widened without asking the policy: a parameter of a norm, which no list rounds.
Variable enter_parameter(Op op, const Variable& input, SlotLabel label);

/// `compute()` with the cast policy off: what a list says of a composite, it says of it as a whole.
template <class Compute>
Variable without_policy(Tape& tape, const Compute& compute) {
  const CastPolicyGuard off(tape, nullptr);
  return compute();
}

// Verbs of x's back end, each into a new tensor: temporaries that die with the expression instead of living
// on the tape. All f32.
Tensor unary(Backend& backend, UnaryOp op, const Tensor& x);
Tensor binary(Backend& backend, BinaryOp op, const Tensor& a, const Tensor& b);  ///< the larger shape
Tensor scalar(Backend& backend, float value);
Tensor divide(Backend& backend, const Tensor& x, float divisor);
/// Along `axis`, which is kept with extent 1.
Tensor reduce(Backend& backend, ReduceOp op, const Tensor& x, int axis);

}  // namespace fp16lab::engine::composite
