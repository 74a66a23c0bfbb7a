#include "engine/nn/linear.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Linear::Linear(Backend& backend, std::string path, const LinearOptions& options) : path_(std::move(path)) {
  if (options.inputs < 1 || options.outputs < 1) {
    throw std::invalid_argument("Linear " + path_ + ": " + std::to_string(options.inputs) + " inputs and " +
                                std::to_string(options.outputs) + " outputs; both must be >= 1");
  }
  const std::string weight_name = path_ + ".weight";
  weight_ = &add_parameter(
      weight_name, uniform_parameter(backend, {options.outputs, options.inputs}, options.seed, weight_name,
                                     weight_bound(options.initialization, options.inputs, options.outputs)));
  if (!options.bias) return;
  const std::string bias_name = path_ + ".bias";
  bias_ = &add_parameter(bias_name, uniform_parameter(backend, {options.outputs}, options.seed, bias_name,
                                                      bias_bound(options.initialization, options.inputs)));
}

Variable Linear::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::linear(x, tape.parameter(*weight_), bias_ == nullptr ? Variable() : tape.parameter(*bias_));
}

}  // namespace fp16lab::engine::nn
