#include "engine/optim/rmsprop.hpp"

#include <utility>

namespace fp16lab::engine::optim {

Rmsprop::Rmsprop(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
                 std::uint64_t steps, int index)
    : Optimizer(backend, std::move(parameters), options, steps, index),
      rmsprop_{.alpha = static_cast<float>(options.alpha),
               .epsilon = static_cast<float>(epsilon_of(options)),
               .momentum = static_cast<float>(options.momentum),
               .centered = options.centered,
               .weight_decay = static_cast<float>(options.weight_decay),
               .gradient_factor = gradient_factor(options)} {
  const bool moves_on = rmsprop_.momentum != 0.0f;
  for (const Parameter* parameter : this->parameters()) {
    add_state(*parameter, "square_average");
    if (rmsprop_.centered) add_state(*parameter, "gradient_average");
    if (moves_on) add_state(*parameter, "velocity");
  }
  states_ = 1 + (rmsprop_.centered ? 1 : 0) + (moves_on ? 1 : 0);
}

void Rmsprop::update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                               const WeightStore& store) {
  const std::size_t first = which * states_;
  Tensor& average = rmsprop_.centered ? state_tensor(first + 1) : none_;
  Tensor& velocity = rmsprop_.momentum != 0.0f ? state_tensor(first + states_ - 1) : none_;
  backend().rmsprop_step(rmsprop_, parameter.value, parameter.gradient, state_tensor(first), average,
                         velocity, index(), step, store);
}

}  // namespace fp16lab::engine::optim
