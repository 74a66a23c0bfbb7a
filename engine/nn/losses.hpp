// Losses as modules see them: ops inside the scope "loss", so that dL/dy is observed as "loss.prediction".
#pragma once

#include <span>
#include <string_view>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::nn {

/// logits (batch, classes), target i32 (batch) -> scalar, mean over the batch.
inline Variable cross_entropy_loss(const Variable& logits, const Tensor& target) {
  const ScopeGuard scope(logits.tape(), "loss");
  return ops::softmax_cross_entropy(logits, target);
}

/// Equal shapes -> scalar, mean over batch and outputs.
inline Variable mse_loss(const Variable& prediction, const Tensor& target) {
  const ScopeGuard scope(prediction.tape(), "loss");
  return ops::mse_loss(prediction, prediction.tape().constant(target));
}

/// What a network is trained to make small; the mean over the batch.
enum class LossKind {
  cross_entropy,    ///< applies softmax; logits (rows, classes), targets i32 (rows) or f32 (rows, classes)
  mse,              ///< mean over batch and outputs; targets f32, as many as outputs; likewise those below
  l1,               ///< |error|
  huber,            ///< e^2 / 2 up to `delta`, then straight
  bce_with_logits,  ///< binary cross-entropy of sigmoid(output); targets in [0, 1]
};
constexpr std::array<std::string_view, 5> names_of(LossKind) {
  return {"cross_entropy", "mse", "l1", "huber", "bce_with_logits"};
}

struct LossOptions {
  LossOptions(LossKind which = LossKind::cross_entropy) : kind(which) {}  // NOLINT: a kind is a loss
  LossKind kind;
  /// For cross_entropy, in [0, 1): the target's probability is 1 - s + s / classes, the others' s / classes
  /// (Szegedy et al. 2016; torch.nn.CrossEntropyLoss); soft labels p become (1 - s) p + s / classes.
  float label_smoothing = 0;
  /// Cross entropy from probabilities, as tutorials with one-hot targets compute it. Implied by smoothing.
  bool one_hot = false;
  ops::SoftmaxGradient soft = ops::SoftmaxGradient::formula;  ///< for cross_entropy of soft labels
  float delta = 1;                                            ///< for huber, > 0
};

/// Scalar. Targets of equal element count but another shape take the output's.
Variable loss_of(const LossOptions& loss, const Variable& output, const Tensor& targets);

}  // namespace fp16lab::engine::nn
