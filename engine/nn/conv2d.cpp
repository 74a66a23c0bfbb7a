#include "engine/nn/conv2d.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

namespace {

/// Refuses channels, kernels and groups of which there is no `layer`.
void check(const char* layer, const std::string& path, std::int64_t inputs, std::int64_t outputs,
           const std::array<std::int64_t, 2>& kernel, std::int64_t groups) {
  const auto [rows, columns] = kernel;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(std::string(layer) + " " + path + ": " + std::to_string(inputs) +
                                " input channels, " + std::to_string(outputs) + " output channels, " + why);
  };
  if (inputs < 1 || outputs < 1 || rows < 1 || columns < 1)
    refuse("kernel " + std::to_string(rows) + " x " + std::to_string(columns) + "; all must be >= 1");
  if (groups < 1 || inputs % groups != 0 || outputs % groups != 0)
    refuse(std::to_string(groups) + " groups; they must divide both");
}

}  // namespace

Conv2d::Conv2d(Backend& backend, std::string path, const Conv2dOptions& options)
    : path_(add_scope(std::move(path))), geometry_(options.geometry) {
  const std::int64_t groups = geometry_.groups;
  check("Conv2d", path_, options.inputs, options.outputs, options.kernel, groups);
  const auto [rows, columns] = options.kernel;
  const std::int64_t taps = rows * columns, channels = options.inputs / groups;
  const std::int64_t fan_in = channels * taps, fan_out = options.outputs * taps;
  const std::string weight_name = path_ + ".weight";
  weight_ = &add_parameter(
      weight_name, initial_weight(backend, {options.outputs, channels, rows, columns}, options.initialization,
                                  fan_in, fan_out, options.seed, weight_name));
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

ConvTranspose2d::ConvTranspose2d(Backend& backend, std::string path, const ConvTranspose2dOptions& options)
    : path_(add_scope(std::move(path))),
      geometry_(options.geometry),
      output_padding_(options.output_padding) {
  const std::int64_t groups = geometry_.groups;
  check("ConvTranspose2d", path_, options.inputs, options.outputs, options.kernel, groups);
  const auto [rows, columns] = options.kernel;
  const std::int64_t taps = rows * columns, channels = options.outputs / groups;
  const std::int64_t fan_in = channels * taps, fan_out = options.inputs * taps;
  const std::string weight_name = path_ + ".weight";
  weight_ = &add_parameter(
      weight_name, initial_weight(backend, {options.inputs, channels, rows, columns}, options.initialization,
                                  fan_in, fan_out, options.seed, weight_name));
  if (!options.bias) return;
  const std::string bias_name = path_ + ".bias";
  bias_ = &add_parameter(bias_name, initial_bias(backend, {options.outputs}, options.initialization, fan_in,
                                                 options.seed, bias_name));
}

Variable ConvTranspose2d::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::conv_transpose2d(x, tape.parameter(*weight_),
                               bias_ == nullptr ? Variable() : tape.parameter(*bias_), geometry_,
                               output_padding_);
}

}  // namespace fp16lab::engine::nn
