// Module: a named part of a network with parameters and children.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine::nn {

/// Parameters and scopes carry the path from the root: "encoder.fc1.weight".
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(Tape& tape, const Variable& x) = 0;

  /// All parameters, own ones first, then the children's, in order of registration.
  std::vector<Parameter*> parameters() const;

 protected:
  Module() = default;
  /// Takes ownership; addresses stay valid for the life of the module.
  Parameter& add_parameter(std::string path, Tensor initial);
  template <class Child>
  Child& add_child(std::unique_ptr<Child> child) {
    Child& reference = *child;
    children_.push_back(std::move(child));
    return reference;
  }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Module>> children_;
};

}  // namespace fp16lab::engine::nn
