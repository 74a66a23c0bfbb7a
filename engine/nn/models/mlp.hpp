// Mlp: linear layers fc1..fcN with an activation between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/linear.hpp"
#include "engine/nn/module.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::nn {

/// `none` makes a deep linear network; gelu is the exact one, x Phi(x).
enum class Activation { none, relu, tanh, gelu, sigmoid };
constexpr std::array<std::string_view, 5> names_of(Activation) {
  return {"none", "relu", "tanh", "gelu", "sigmoid"};
}

struct MlpOptions {
  std::vector<std::int64_t> widths;          ///< inputs, hidden widths, outputs: at least two
  Activation activation = Activation::relu;  ///< after every layer but the last
  Activation output = Activation::none;      ///< after the last layer
  std::string path = {};  ///< "generator" names the layers generator.fc1 ...; empty: fc1 ...
  Initialization initialization = Initialization::torch_linear;
  std::uint64_t seed = 0;
};

class Mlp final : public Module {
 public:
  Mlp(Backend& backend, const MlpOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  Activation activation_;
  Activation output_;
  std::vector<Linear*> layers_;
};

}  // namespace fp16lab::engine::nn
