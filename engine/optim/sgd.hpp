// Stochastic gradient descent with momentum, Nesterov's variant and L2 weight decay, in torch's order of
// operations.
#pragma once

#include <vector>

#include "engine/optim/optimizer.hpp"

namespace fp16lab::engine::optim {

/// State: "<parameter>.velocity" where there is momentum.
class Sgd final : public Optimizer {
 public:
  Sgd(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
      std::uint64_t steps, int index);

 private:
  void update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                        const WeightStore& store) override;

  SgdOptions sgd_;
  Tensor no_velocity_;  ///< undefined: plain SGD has none
};

}  // namespace fp16lab::engine::optim
