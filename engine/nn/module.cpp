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

std::vector<Buffer*> Module::buffers() const {
  std::vector<Buffer*> all;
  for (const auto& buffer : buffers_) all.push_back(buffer.get());
  for (const auto& child : children_) {
    for (Buffer* buffer : child->buffers()) all.push_back(buffer);
  }
  return all;
}

std::vector<std::string> Module::scopes() const {
  std::vector<std::string> all = scopes_;
  for (const auto& child : children_) {
    for (std::string& scope : child->scopes()) all.push_back(std::move(scope));
  }
  return all;
}

std::string Module::add_scope(std::string path) { return scopes_.emplace_back(std::move(path)); }

Buffer& Module::add_buffer(std::string path, Tensor initial) {
  buffers_.push_back(std::make_unique<Buffer>(Buffer{std::move(path), std::move(initial)}));
  return *buffers_.back();
}

Parameter& Module::add_parameter(std::string path, Tensor initial) {
  parameters_.push_back(std::make_unique<Parameter>(std::move(path), std::move(initial)));
  return *parameters_.back();
}

}  // namespace fp16lab::engine::nn
