#include "engine/nn/module.hpp"

#include <utility>

namespace fp16lab::engine::nn {

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  for (const auto& child : children_) {
    for (Parameter* parameter : child->parameters()) all.push_back(parameter);
  }
  return all;
}

Parameter& Module::add_parameter(std::string path, Tensor initial) {
  parameters_.push_back(std::make_unique<Parameter>(std::move(path), std::move(initial)));
  return *parameters_.back();
}

}  // namespace fp16lab::engine::nn
