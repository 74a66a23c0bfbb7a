// Losses as modules see them: ops inside the scope "loss", so that dL/dy is observed as "loss.prediction".
#pragma once

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

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

}  // namespace fp16lab::engine::nn
