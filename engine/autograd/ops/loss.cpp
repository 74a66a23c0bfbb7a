// Losses: FP32 throughout, whatever enters. What a dialect's lists say of a loss, they say of it as a whole,
// so its parts run without the policy.
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/composite.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

/// A loss's output: the dtype that the policy chose, and the policy, which is off while the loss is computed.
struct Result {
  Op loss = Op::leaf;
  DType dtype = DType::f32;
  CastPolicy* policy = nullptr;
};

/// Prediction and target of equal shape, in FP32; the gradient of the first is observed as "prediction".
struct Pair {
  Variable prediction;
  Variable target;
  Result result;
};

Pair enter_pair(Op loss, const Variable& prediction, const Variable& target) {
  std::array<Variable, 2> inputs = {prediction, target};
  const DType dtype = composite::enter(loss, inputs, std::array{SlotLabel::prediction, SlotLabel::none});
  if (!(inputs[0].shape() == inputs[1].shape())) {
    reject(loss,
           "prediction " + describe(prediction) + " and target " + describe(target) + " differ in shape");
  }
  return {inputs[0], inputs[1], {loss, dtype, inputs[0].tape().cast_policy()}};
}

/// (local shards)
Variable of_each_shard(const Variable& losses, Reduction reduction) {
  const Variable rows = by_shard(losses);
  std::array<int, Shape::max_rank> axes{};
  std::iota(axes.begin(), axes.end(), 1);
  const std::span<const int> all(axes.data(), static_cast<std::size_t>(rows.shape().rank() - 1));
  return reduction == Reduction::mean ? mean(rows, all) : sum(rows, all);
}

/// The mean is a sum in FP32 (TREE) divided once. A 16-bit loss is rounded here, after the reduction: a mean
/// does not overflow because its sum would.
Variable reduced(const Variable& losses, Reduction reduction, const Result& result) {
  const Variable value = reduction == Reduction::none      ? losses
                         : stack_height(losses.tape()) > 1 ? of_each_shard(losses, reduction)
                         : reduction == Reduction::mean    ? mean(losses)
                                                           : sum(losses);
  return handed_on(result.loss, cast(value, result.dtype), result.policy);
}

void check_logits(const Variable& logits) {
  if (logits.shape().rank() != 2)
    reject(Op::softmax_cross_entropy, "logits must be (rows, classes), not " + describe(logits));
}

/// x[row, target[row]]; an error names the target.
Variable picked(const Variable& x, const Tensor& target) {
  try {
    return pick(x, target);
  } catch (const std::out_of_range& error) {
    throw std::out_of_range(std::string(name_of(Op::softmax_cross_entropy)) + ": target: " + error.what());
  }
}

/// log p, at least -100 (so that a wrong certain prediction has a finite loss); NaN stays.
Variable clamped(const Variable& logarithm) { return maximum(logarithm, scalar_like(logarithm, -100.0f)); }

Variable complement(const Variable& p) { return subtract(scalar_like(p, 1.0f), p); }

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Tensor& target, Reduction reduction) {
  std::array<Variable, 1> inputs = {logits};
  const DType dtype = composite::enter(Op::softmax_cross_entropy, inputs, std::array{SlotLabel::prediction});
  const Variable x = inputs[0];
  const Result result{Op::softmax_cross_entropy, dtype, x.tape().cast_policy()};
  check_logits(x);
  if (!target.defined() || target.dtype() != DType::i32 || !(target.shape() == Shape{x.shape()[0]})) {
    reject(Op::softmax_cross_entropy, "target " + (target.defined() ? target.describe() : "undefined") +
                                          " for logits " + describe(logits) + "; i32 (" +
                                          std::to_string(x.shape()[0]) + ") is needed");
  }
  const CastPolicyGuard off(x.tape(), nullptr);
  // log(sum(exp(x - m))) + m - x[t] does not depend on m: its gradient is the same with m held constant.
  const Variable shifted = subtract(x, detach(max(detach(x), 1, true)));
  const Variable log_sum = log(sum(exp(shifted), 1));
  return reduced(subtract(log_sum, picked(shifted, target)), reduction, result);
}

Variable softmax_cross_entropy(const Variable& logits, const Variable& probabilities, Reduction reduction,
                               SoftmaxGradient gradient) {
  const auto [x, p, result] = enter_pair(Op::softmax_cross_entropy, logits, probabilities);
  check_logits(x);
  Tape& tape = x.tape();
  Backend& backend = tape.backend();
  const CastPolicyGuard off(tape, nullptr);
  const Variable log_q = log_softmax(x, 1);
  // A class of probability 0 contributes +0, also where log q is -infinity (a masked class): 0 log 0 = 0.
  Tensor terms = composite::binary(backend, BinaryOp::multiply, p.tensor(), log_q.tensor());
  backend.binary(BinaryOp::select_positive, p.tensor(), terms, terms);
  Tensor rows = backend.empty({x.shape()[0]}, DType::f32);
  backend.reduce(ReduceOp::sum, terms, 1, rows);
  backend.unary(UnaryOp::negate, rows, rows);
  const auto spread = [](const Variable& g, const Variable& over) {
    return negate(multiply(reshape(g, {g.shape()[0], 1}), over));
  };
  const auto towards_p = [log_q, spread](const Variable& g, const Variable&) { return spread(g, log_q); };
  const Variable losses =
      gradient == SoftmaxGradient::formula
          ? tape.record(
                Op::softmax_cross_entropy, rows,
                {{log_q, [p = p, spread](const Variable& g, const Variable&) { return spread(g, p); }},
                 {p, towards_p}})
          : tape.record(
                Op::softmax_cross_entropy, rows,
                {{x, [p = p, log_q, spread](const Variable& g,
                                            const Variable&) { return spread(g, subtract(p, exp(log_q))); }},
                 {p, towards_p}});
  return reduced(losses, reduction, result);
}

Variable mse_loss(const Variable& prediction, const Variable& target, Reduction reduction) {
  const auto [y, t, result] = enter_pair(Op::mse_loss, prediction, target);
  const CastPolicyGuard off(y.tape(), nullptr);
  const Variable error = subtract(y, t);
  const Variable squares = multiply(error, error);
  const Variable loss = reduced(squares, reduction, result);
  if (reduction != Reduction::none) y.tape().drop_value(squares);  // vjps need the error, and no square
  return loss;
}

Variable l1_loss(const Variable& prediction, const Variable& target, Reduction reduction) {
  const auto [y, t, result] = enter_pair(Op::l1_loss, prediction, target);
  const CastPolicyGuard off(y.tape(), nullptr);
  return reduced(absolute(subtract(y, t)), reduction, result);
}

Variable huber_loss(const Variable& prediction, const Variable& target, float delta, Reduction reduction) {
  if (!(delta > 0.0f) || std::isinf(delta))
    reject(Op::huber_loss, "delta " + std::to_string(delta) + "; a finite number above 0 is needed");
  const auto [y, t, result] = enter_pair(Op::huber_loss, prediction, target);
  Tape& tape = y.tape();
  Backend& backend = tape.backend();
  const CastPolicyGuard off(tape, nullptr);
  const Variable error = subtract(y, t);
  // With q = min(|e|, delta) both branches are q (|e| - q / 2).
  const Tensor magnitude = composite::unary(backend, UnaryOp::absolute, error.tensor());
  const Tensor q =
      composite::binary(backend, BinaryOp::minimum, magnitude, composite::scalar(backend, delta));
  Tensor losses = composite::binary(backend, BinaryOp::multiply, q, composite::scalar(backend, 0.5f));
  backend.binary(BinaryOp::subtract, magnitude, losses, losses);
  backend.binary(BinaryOp::multiply, q, losses, losses);
  const Variable value = tape.record(Op::huber_loss, losses,
                                     {{error, [error, delta](const Variable& g, const Variable&) {
                                         const Variable bound = scalar_like(error, delta);
                                         return multiply(g, maximum(minimum(error, bound), negate(bound)));
                                       }}});
  return reduced(value, reduction, result);
}

Variable binary_cross_entropy(const Variable& probability, const Variable& target, Reduction reduction) {
  const auto [p, t, result] = enter_pair(Op::binary_cross_entropy, probability, target);
  Tape& tape = p.tape();
  Backend& backend = tape.backend();
  const CastPolicyGuard off(tape, nullptr);
  // -(t log p + (1 - t) log(1 - p)); log(1 - p) as log1p(-p), which does not round 1 - p for small p.
  const Tensor least = composite::scalar(backend, -100.0f);
  Tensor losses = composite::unary(backend, UnaryOp::log, p.tensor());
  backend.binary(BinaryOp::maximum, losses, least, losses);
  backend.binary(BinaryOp::multiply, t.tensor(), losses, losses);
  Tensor rest = composite::unary(backend, UnaryOp::negate, p.tensor());
  backend.unary(UnaryOp::log1p, rest, rest);
  backend.binary(BinaryOp::maximum, rest, least, rest);
  backend.binary(BinaryOp::multiply,
                 composite::binary(backend, BinaryOp::subtract, composite::scalar(backend, 1.0f), t.tensor()),
                 rest, rest);
  backend.binary(BinaryOp::add, losses, rest, losses);
  backend.unary(UnaryOp::negate, losses, losses);
  // dL/dp = (p - t) / (p (1 - p)), the denominator at least 1e-12: torch's derivative, which stays finite
  // where the clamp has made the loss flat.
  const auto gradient_p = [p = p, t = t](const Variable& g, const Variable&) {
    const Variable slope = maximum(multiply(complement(p), p), scalar_like(p, 1e-12f));
    return multiply(g, divide(subtract(p, t), slope));
  };
  const auto gradient_t = [p = p](const Variable& g, const Variable&) {
    return multiply(g, subtract(clamped(log1p(negate(p))), clamped(log(p))));
  };
  const Variable value = tape.record(Op::binary_cross_entropy, losses, {{p, gradient_p}, {t, gradient_t}});
  return reduced(value, reduction, result);
}

Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction) {
  const auto [x, t, result] = enter_pair(Op::binary_cross_entropy_with_logits, logits, target);
  Tape& tape = x.tape();
  Backend& backend = tape.backend();
  const CastPolicyGuard off(tape, nullptr);
  // max(x, 0) - x t + log1p(exp(-|x|)), from right to left.
  Tensor tail = composite::unary(backend, UnaryOp::absolute, x.tensor());
  backend.unary(UnaryOp::negate, tail, tail);
  backend.unary(UnaryOp::exp, tail, tail);
  backend.unary(UnaryOp::log1p, tail, tail);
  Tensor losses = composite::unary(backend, UnaryOp::relu, x.tensor());
  backend.binary(BinaryOp::subtract, losses,
                 composite::binary(backend, BinaryOp::multiply, x.tensor(), t.tensor()), losses);
  backend.binary(BinaryOp::add, losses, tail, losses);
  // dL/dx = sigmoid(x) - t, written as (1 - t) sigmoid(x) - t sigmoid(-x): for t = 0 and t = 1 exact to the
  // last places of sigmoid even where sigmoid(x) is 1 but for less than an ulp, so that gradients far out in
  // the tails fade instead of vanishing at 2^-24.
  const auto gradient_x = [x = x, t = t](const Variable& g, const Variable&) {
    const Variable slope = subtract(multiply(complement(t), sigmoid(x)), multiply(t, sigmoid(negate(x))));
    return multiply(g, slope);
  };
  const auto gradient_t = [x = x](const Variable& g, const Variable&) { return negate(multiply(g, x)); };
  const Variable value =
      tape.record(Op::binary_cross_entropy_with_logits, losses, {{x, gradient_x}, {t, gradient_t}});
  return reduced(value, reduction, result);
}

}  // namespace fp16lab::engine::ops
