#include "engine/nn/losses.hpp"

#include <stdexcept>

namespace fp16lab::engine::nn {

namespace {

/// f32 (rows, classes): 1 - smoothing + smoothing / classes at each target, smoothing / classes elsewhere.
Tensor probabilities(Backend& backend, const Tensor& targets, std::int64_t classes, float smoothing) {
  const std::int64_t rows = targets.element_count();
  Tensor certain = backend.empty({rows}, DType::f32);
  backend.fill(certain, 1.0 - static_cast<double>(smoothing));
  Tensor all = backend.empty({rows, classes}, DType::f32);
  backend.place(certain, targets, all);
  if (smoothing == 0.0f) return all;
  Tensor share = backend.empty({1}, DType::f32);
  backend.fill(share, static_cast<double>(smoothing) / static_cast<double>(classes));
  backend.binary(BinaryOp::add, all, share, all);
  return all;
}

/// (1 - smoothing) times these, and smoothing / classes more.
Tensor smoothed(Backend& backend, const Tensor& soft, float smoothing) {
  if (smoothing == 0.0f) return soft;
  Tensor kept = backend.empty({1}, DType::f32), share = backend.empty({1}, DType::f32);
  backend.fill(kept, 1.0 - static_cast<double>(smoothing));
  backend.fill(share, static_cast<double>(smoothing) / static_cast<double>(soft.shape()[-1]));
  Tensor all = backend.empty(soft.shape(), DType::f32);
  backend.binary(BinaryOp::multiply, soft, kept, all);
  backend.binary(BinaryOp::add, all, share, all);
  return all;
}

Variable cross_entropy(const LossOptions& loss, const Variable& logits, const Tensor& targets) {
  if (targets.dtype() == DType::f32) {
    Tape& tape = logits.tape();
    const ScopeGuard scope(tape, "loss");
    return ops::softmax_cross_entropy(logits,
                                      tape.constant(smoothed(tape.backend(), targets, loss.label_smoothing)),
                                      ops::Reduction::mean, loss.soft);
  }
  if (!loss.one_hot && loss.label_smoothing == 0.0f) return cross_entropy_loss(logits, targets);
  Tape& tape = logits.tape();
  const ScopeGuard scope(tape, "loss");
  return ops::softmax_cross_entropy(
      logits,
      tape.constant(probabilities(tape.backend(), targets, logits.shape()[-1], loss.label_smoothing)));
}

}  // namespace

Variable loss_of(const LossOptions& loss, const Variable& output, const Tensor& targets) {
  if (loss.kind == LossKind::cross_entropy) return cross_entropy(loss, output, targets);
  const Shape shape = output.shape();
  const bool same_count = targets.element_count() == shape.element_count();
  const Tensor wanted = same_count ? targets.reshaped(shape) : targets;
  Tape& tape = output.tape();
  const ScopeGuard scope(tape, "loss");
  const Variable target = tape.constant(wanted);
  switch (loss.kind) {
    case LossKind::mse:
      return ops::mse_loss(output, target);
    case LossKind::l1:
      return ops::l1_loss(output, target);
    case LossKind::huber:
      return ops::huber_loss(output, target, loss.delta);
    case LossKind::bce_with_logits:
      return ops::binary_cross_entropy_with_logits(output, target);
    case LossKind::cross_entropy:
      break;
  }
  throw std::logic_error("unknown loss");
}

}  // namespace fp16lab::engine::nn
