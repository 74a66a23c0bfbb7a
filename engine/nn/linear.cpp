#include "engine/nn/linear.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Linear::Linear(Backend& backend, std::string path, const LinearOptions& options)
    : path_(add_scope(std::move(path))) {
  if (options.inputs < 1 || options.outputs < 1) {
    throw std::invalid_argument("Linear " + path_ + ": " + std::to_string(options.inputs) + " inputs and " +
                                std::to_string(options.outputs) + " outputs; both must be >= 1");
  }
  const std::string weight_name = path_ + ".weight";
  const Shape shape{options.outputs, options.inputs};
  const bool normal = options.deviation > 0.0f;
  weight_ = &add_parameter(
      weight_name, normal ? normal_parameter(backend, shape, options.seed, weight_name, options.deviation)
                          : initial_weight(backend, shape, options.initialization, options.inputs,
                                           options.outputs, options.seed, weight_name));
  if (!options.bias) return;
  const std::string bias_name = path_ + ".bias";
  bias_ = &add_parameter(
      bias_name, normal ? uniform_parameter(backend, {options.outputs}, options.seed, bias_name, 0.0f)
                        : initial_bias(backend, {options.outputs}, options.initialization, options.inputs,
                                       options.seed, bias_name));
}

Variable Linear::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::linear(x, tape.parameter(*weight_), bias_ == nullptr ? Variable() : tape.parameter(*bias_));
}

}  // namespace fp16lab::engine::nn
