// RMSprop (Tieleman & Hinton, Coursera 2012) as PyTorch has it, plain or centered (Graves, arXiv 1308.0850).
#pragma once

#include <vector>

#include "engine/optim/optimizer.hpp"

namespace fp16lab::engine::optim {

/// State: "<parameter>.square_average"; behind it "<parameter>.gradient_average" if centered and
/// "<parameter>.velocity" where there is momentum.
class Rmsprop final : public Optimizer {
 public:
  Rmsprop(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
          std::uint64_t steps, int index);

 private:
  void update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                        const WeightStore& store) override;

  RmspropOptions rmsprop_;
  std::size_t states_ = 1;  ///< of each parameter
  Tensor none_;             ///< undefined: for the states that the options want not
};

}  // namespace fp16lab::engine::optim
