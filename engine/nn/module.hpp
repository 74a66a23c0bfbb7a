// Module: a named part of a network with parameters, buffers and children.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine::nn {

/// State that is not trained but belongs to the model and its checkpoints (BatchNorm's running statistics).
struct Buffer {
  std::string name;  ///< "bn1.running_mean"
  Tensor value;
};

/// Parameters and scopes carry the path from the root: "encoder.fc1.weight". The tape's StepContext says
/// whether a forward pass trains.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(Tape& tape, const Variable& x) = 0;

  /// All parameters, own ones first, then the children's, in order of registration.
  std::vector<Parameter*> parameters() const;
  /// All buffers in the same order.
  std::vector<Buffer*> buffers() const;
  /// The scopes in which forward passes compute, in the same order: the layers that patterns of
  /// amp::AmpOptions name.
  std::vector<std::string> scopes() const;

 protected:
  Module() = default;
  /// Takes ownership; addresses stay valid for the life of the module.
  Parameter& add_parameter(std::string path, Tensor initial);
  Buffer& add_buffer(std::string path, Tensor initial);
  /// A path that forward() opens a ScopeGuard with to compute, not only to watch; gives it back.
  std::string add_scope(std::string path);
  template <class Child>
  Child& add_child(std::unique_ptr<Child> child) {
    Child& reference = *child;
    children_.push_back(std::move(child));
    return reference;
  }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::string> scopes_;
  std::vector<std::unique_ptr<Module>> children_;
};

}  // namespace fp16lab::engine::nn
