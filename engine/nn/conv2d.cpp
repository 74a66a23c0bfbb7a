#include "engine/nn/conv2d.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Conv2d::Conv2d(Backend& backend, std::string path, const Conv2dOptions& options)
    : path_(add_scope(std::move(path))), geometry_(options.geometry) {
  const auto [rows, columns] = options.kernel;
  if (options.inputs < 1 || options.outputs < 1 || rows < 1 || columns < 1) {
    throw std::invalid_argument("Conv2d " + path_ + ": " + std::to_string(options.inputs) +
                                " input channels, " + std::to_string(options.outputs) +
                                " output channels, kernel " + std::to_string(rows) + " x " +
                                std::to_string(columns) + "; all must be >= 1");
  }
  const std::int64_t taps = rows * columns;
  const std::int64_t fan_in = options.inputs * taps, fan_out = options.outputs * taps;
  const std::string weight_name = path_ + ".weight";
  weight_ = &add_parameter(
      weight_name, initial_weight(backend, {options.outputs, options.inputs, rows, columns},
                                  options.initialization, fan_in, fan_out, options.seed, weight_name));
  if (!options.bias) return;
  const std::string bias_name = path_ + ".bias";
  bias_ = &add_parameter(bias_name, initial_bias(backend, {options.outputs}, options.initialization, fan_in,
                                                 options.seed, bias_name));
}

Variable Conv2d::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::conv2d(x, tape.parameter(*weight_), bias_ == nullptr ? Variable() : tape.parameter(*bias_),
                     geometry_);
}

}  // namespace fp16lab::engine::nn
