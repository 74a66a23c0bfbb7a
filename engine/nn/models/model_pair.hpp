// ModelPair: two models with one input whose outputs are combined, as in PyTorch's AMP example of multiple
// models.
#pragma once

#include <array>
#include <memory>

#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

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

}  // namespace fp16lab::engine::nn
