#include "engine/nn/models/mlp.hpp"

#include <memory>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::nn {

namespace {

Variable activate(Activation activation, const Variable& x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return ops::relu(x);
    case Activation::tanh:
      return ops::tanh(x);
    case Activation::gelu:
      return ops::gelu(x);
    case Activation::sigmoid:
      return ops::sigmoid(x);
  }
  throw std::logic_error("Mlp: unknown activation");
}

}  // namespace

Mlp::Mlp(Backend& backend, const MlpOptions& options)
    : activation_(options.activation), output_(options.output) {
  if (options.widths.size() < 2) {
    throw std::invalid_argument("Mlp: widths has " + std::to_string(options.widths.size()) +
                                " entries; at least inputs and outputs are needed");
  }
  const std::string prefix = options.path.empty() ? "" : options.path + ".";
  for (std::size_t layer = 1; layer < options.widths.size(); ++layer) {
    layers_.push_back(
        &add_child(std::make_unique<Linear>(backend, prefix + "fc" + std::to_string(layer),
                                            LinearOptions{.inputs = options.widths[layer - 1],
                                                          .outputs = options.widths[layer],
                                                          .bias = true,
                                                          .initialization = options.initialization,
                                                          .seed = options.seed})));
  }
}

Variable Mlp::forward(Tape& tape, const Variable& x) {
  Variable activity = x;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const bool last = layer + 1 == layers_.size();
    activity = activate(last ? output_ : activation_, layers_[layer]->forward(tape, activity));
  }
  return activity;
}

}  // namespace fp16lab::engine::nn
