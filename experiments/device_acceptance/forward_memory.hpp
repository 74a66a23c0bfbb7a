// Supervised training that looks at the pool between the forward and the backward pass.
#pragma once

#include <cstddef>

#include "engine/train/method.hpp"

namespace fp16lab::experiments::acceptance {

/// Does what engine::Supervised does with one micro-batch.
class ForwardMemory final : public engine::TrainingMethod {
 public:
  /// `activations`: set in every step, see Activations; outlives the method.
  struct Activations {
    /// Bytes of the network's input as its first layer reads it (of the batch itself, where nothing is cast), and of all
    /// that the forward pass leaves alive for the backward pass. Transient casts and scratch are given back before, and
    /// the loss comes afterwards. Under O1 also the 16-bit copies of the weights, which that level casts in every step.
    std::size_t bytes = 0;
  };
  explicit ForwardMemory(Activations& activations) : activations_(&activations) {}

  void run(engine::Iteration& iteration) override;
  Evaluation evaluate(engine::Iteration& iteration, const engine::data::Batch& batch) override;

 private:
  Activations* activations_;
};

}  // namespace fp16lab::experiments::acceptance
