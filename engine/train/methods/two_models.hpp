// Two models, two losses that mix both, two optimizers, one scaler.
//
// Source: "Working with multiple models, losses, and optimizers" in PyTorch's "Automatic Mixed Precision
// examples" (docs/source/notes/amp_examples.rst), whose steps these are, in order:
//   1. a = model0(x), b = model1(x); loss0 = L(2a + 3b, t), loss1 = L(3a - 5b, t)             autocast on
//   2. backward of S * loss0, retaining the graph: the second loss shares the part below a and b
//   3. backward of S * loss1; its gradients are added to the first's, in both models   (1 to 3 for every
//                                                                                      micro-batch)
//   4. unscale the gradients of optimizer 0, explicitly, because they are to be used: clipped here
//   5. step optimizer 0, and step optimizer 1, which unscales its own first
// and then the trainer updates the scaler once. Every loss is scaled by the same S (unless scaler.per_loss
// gives each a scale of its own; both losses move both models, so an overflow in either skips every model
// that it reached). Each optimizer skips for overflows of its own gradients only, so one model may step while
// the other does not; the scaler backs off if any of them overflowed. (Paddle keeps one flag for all
// optimizers, so that the last one unscaled speaks for the others.)
//
// The recorded loss is loss0 + loss1; evaluations judge loss0 and its output, 2a + 3b. train.clip_norm and
// train.clip_value apply to model 0.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "engine/nn/module.hpp"
#include "engine/train/method.hpp"

namespace fp16lab::engine {

namespace nn {

/// The loss of outputs a and b: first * a + second * b.
struct Combination {
  float first = 1.0f;
  float second = 1.0f;
};

/// Parameters: those of the first model, then those of the second; their paths must differ
/// (MlpOptions::path).
class ModelPair final : public Module {
 public:
  /// The losses of the example compare 2a + 3b and 3a - 5b with the same target.
  static constexpr std::array combinations{Combination{2.0f, 3.0f}, Combination{3.0f, -5.0f}};

  /// std::invalid_argument if either is null.
  ModelPair(std::unique_ptr<Module> first, std::unique_ptr<Module> second);

  /// combinations[0] of the outputs: what evaluations judge.
  Variable forward(Tape& tape, const Variable& x) override;
  /// Equal shapes; each product and the sum round on their own.
  static Variable combine(const Combination& combination, const Variable& a, const Variable& b);

  Module& first() const { return *first_; }
  Module& second() const { return *second_; }

 private:
  Module* first_;
  Module* second_;
};

}  // namespace nn

class TwoModels final : public TrainingMethod {
 public:
  /// The names of its groups.
  static constexpr std::array<std::string_view, 2> names{"model0", "model1"};
  /// std::invalid_argument for a model that is no nn::ModelPair.
  std::vector<OptimizerGroup> groups(nn::Module& model) const override;
  bool recordable() const override { return true; }
  int losses() const override { return static_cast<int>(nn::ModelPair::combinations.size()); }
  void run(Iteration& iteration) override;
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override;

 private:
  /// `last`: is it the iteration's last micro-batch?
  void forward_backward(Iteration& iteration, const data::Batch& batch, bool last);
};

}  // namespace fp16lab::engine
