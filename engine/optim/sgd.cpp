#include "engine/optim/sgd.hpp"

#include <utility>

namespace fp16lab::engine::optim {

Sgd::Sgd(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
         std::uint64_t steps, int index)
    : Optimizer(backend, std::move(parameters), options, steps, index),
      sgd_{.momentum = static_cast<float>(options.momentum),
           .dampening = static_cast<float>(options.dampening),
           .weight_decay = static_cast<float>(options.weight_decay),
           .nesterov = options.nesterov,
           .gradient_factor = gradient_factor(options)} {
  if (sgd_.momentum == 0.0f) return;
  for (const Parameter* parameter : this->parameters()) add_state(*parameter, "velocity");
}

void Sgd::update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                           const WeightStore& store) {
  Tensor& velocity = sgd_.momentum == 0.0f ? no_velocity_ : state_tensor(which);
  backend().sgd_step(sgd_, parameter.value, parameter.gradient, velocity, index(), step, store);
}

}  // namespace fp16lab::engine::optim
