// Adam (Kingma & Ba, ICLR 2015), AdamW (Loshchilov & Hutter, ICLR 2019) and MindSpore's AdamWeightDecay,
// which is BERT's: no bias corrections, and the decay is a part of the update.
#pragma once

#include <vector>

#include "engine/optim/optimizer.hpp"

namespace fp16lab::engine::optim {

/// State: "<parameter>.first_moment" and "<parameter>.second_moment"; beta1^t and beta2^t live in StepState.
class Adam final : public Optimizer {
 public:
  Adam(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
       std::uint64_t steps, int index);

 private:
  void update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                        const WeightStore& store) override;

  AdamOptions adam_;
};

}  // namespace fp16lab::engine::optim
