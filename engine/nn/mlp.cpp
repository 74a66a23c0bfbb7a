#include "engine/nn/mlp.hpp"

#include <memory>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::nn {

std::string_view name_of(Activation activation) { return activation == Activation::none ? "none" : "relu"; }

Activation activation_from_name(std::string_view name) {
  if (name == "none") return Activation::none;
  if (name == "relu") return Activation::relu;
  throw std::invalid_argument("model.activation = \"" + std::string(name) + "\": known are none, relu");
}

Mlp::Mlp(Backend& backend, const MlpOptions& options) : activation_(options.activation) {
  if (options.widths.size() < 2) {
    throw std::invalid_argument("model.widths has " + std::to_string(options.widths.size()) +
                                " entries; at least inputs and outputs are needed");
  }
  for (std::size_t layer = 1; layer < options.widths.size(); ++layer) {
    layers_.push_back(
        &add_child(std::make_unique<Linear>(backend, "fc" + std::to_string(layer),
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
    activity = layers_[layer]->forward(tape, activity);
    const bool last = layer + 1 == layers_.size();
    if (activation_ == Activation::relu && !last) activity = ops::relu(activity);
  }
  return activity;
}

}  // namespace fp16lab::engine::nn
