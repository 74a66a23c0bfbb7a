// Training with a gradient penalty under loss scaling: a loss that contains the norm of its own gradient.
//
// Source: "Gradient penalty" in PyTorch's "Automatic Mixed Precision examples"
// (docs/source/notes/amp_examples.rst), whose steps these are, in order, for every micro-batch:
//   1. loss = L(model(x), t)                                                    autocast on
//   2. G = d(S loss)/d(parameters), scaled gradients that can be differentiated  autocast off (backward)
//   3. g = G times float(1/S), after widening to FP32                           autocast off
//   4. penalty = weight * sqrt(sum over all parameters of g^2); total = loss + penalty       autocast on
//   5. backward of S * total into the parameters' gradients
// and after the last one: unscale, clip, step; the trainer then updates the scaler.
//
// Step 3 is the rule that matters. Without it the penalty is S times too large and its weight moves with S. G
// belongs to no optimizer, so the scaler's own unscale is not for it. In 16 bits the multiplication would
// flush what scaling has saved, so G is widened first (under autocast it is FP32 already). Step 4: the sum is
// in the FP32 lists; squares and the root follow their FP32 inputs. Step 5: the second backward carries S
// once, in the saved cotangents of step 2; the cotangents of G themselves are g / ||g||, whatever S is. So
// loss scaling protects products with those saved cotangents and not that direction: its elements below 2^-25
// are lost in FP16 at every S.
//
// The penalty is one of every micro-batch (a mean of norms where gradients are accumulated, not the norm of
// the mean). The recorded loss is the total; evaluations judge the loss alone.
#pragma once

#include <span>
#include <vector>

#include "engine/train/method.hpp"

namespace fp16lab::engine {

struct GradientPenaltyOptions {
  float weight = 1.0f;  ///< the penalty's; finite, >= 0
};

/// sqrt(sum of the squares of all elements): squares of each part as one TREE, parts added in their order, as
/// a scalar. At zero, where the norm has no derivative, both value and gradient are 0 (the subgradient that
/// torch.linalg's vector_norm takes too): sqrt(x) alone would give 0 * (1 / 0) = NaN for every parameter.
/// Everywhere else, subnormal sums included, it is exactly the square root and its derivative. NaN stays NaN.
Variable l2_norm(std::span<const Variable> parts);

class GradientPenalty final : public TrainingMethod {
 public:
  /// std::invalid_argument for an impossible weight.
  explicit GradientPenalty(const GradientPenaltyOptions& options = {});

  bool recordable() const override { return true; }
  void run(Iteration& iteration) override;
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override;

 private:
  Variable penalised_loss(Iteration& iteration, const data::Batch& batch);
  Variable penalty(Iteration& iteration, const Variable& loss);

  GradientPenaltyOptions options_;
  std::vector<Variable> parameters_;  ///< those of a micro-batch; kept for its capacity
};

}  // namespace fp16lab::engine
