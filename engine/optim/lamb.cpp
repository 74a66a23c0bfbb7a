#include "engine/optim/lamb.hpp"

#include <utility>

namespace fp16lab::engine::optim {

Lamb::Lamb(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
           std::uint64_t steps, int index)
    : Optimizer(backend, std::move(parameters), options, steps, index),
      lamb_{.beta1 = static_cast<float>(options.beta1),
            .beta2 = static_cast<float>(options.beta2),
            .epsilon = static_cast<float>(epsilon_of(options)),
            .weight_decay = static_cast<float>(options.weight_decay),
            .gradient_factor = gradient_factor(options)} {
  for (const Parameter* parameter : this->parameters()) {
    add_state(*parameter, "first_moment");
    add_state(*parameter, "second_moment");
  }
}

void Lamb::update_parameter(std::size_t which, Parameter& parameter, const Tensor& step,
                            const WeightStore& store) {
  backend().lamb_step(lamb_, parameter.value, parameter.gradient, state_tensor(2 * which),
                      state_tensor(2 * which + 1), index(), step, store);
}

}  // namespace fp16lab::engine::optim
