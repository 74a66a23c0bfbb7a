#include "engine/nn/conv2d.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

namespace {

/// Refuses channels, kernels and groups that no `layer` can have.
void check(const char* layer, const std::string& path, const Conv2dOptions& options) {
  const auto [rows, columns] = options.kernel;
  const std::int64_t inputs = options.inputs, outputs = options.outputs, groups = options.geometry.groups;
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

FilterLayer::FilterLayer(Backend& backend, const char* layer, std::string path, const Conv2dOptions& options,
                         std::int64_t outer, std::int64_t inner)
    : path_(add_scope(std::move(path))), geometry_(options.geometry) {
  check(layer, path_, options);
  const auto [rows, columns] = options.kernel;
  const std::int64_t channels = inner / geometry_.groups;
  const Shape shape{outer, channels, rows, columns};  // so that the products of its extents fit
  const std::int64_t taps = rows * columns, fan_in = channels * taps, fan_out = outer * taps;
  const std::string weight_name = path_ + ".weight";
  weight_ = &add_parameter(weight_name, initial_weight(backend, shape, options.initialization, fan_in,
                                                       fan_out, options.seed, weight_name));
  if (!options.bias) return;
  const std::string bias_name = path_ + ".bias";
  bias_ = &add_parameter(bias_name, initial_bias(backend, {options.outputs}, options.initialization, fan_in,
                                                 options.seed, bias_name));
}

Conv2d::Conv2d(Backend& backend, std::string path, const Conv2dOptions& options)
    : FilterLayer(backend, "Conv2d", std::move(path), options, options.outputs, options.inputs) {}

Variable Conv2d::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::conv2d(x, weight(tape), bias(tape), geometry_);
}

ConvTranspose2d::ConvTranspose2d(Backend& backend, std::string path, const Conv2dOptions& options,
                                 std::array<std::int64_t, 2> output_padding)
    : FilterLayer(backend, "ConvTranspose2d", std::move(path), options, options.inputs, options.outputs),
      output_padding_(output_padding) {}

Variable ConvTranspose2d::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::conv_transpose2d(x, weight(tape), bias(tape), geometry_, output_padding_);
}

}  // namespace fp16lab::engine::nn
