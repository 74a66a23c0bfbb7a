// Linear: y = x W^T + b.
#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/initialization.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct LinearOptions {
  std::int64_t inputs = 0;   ///< >= 1
  std::int64_t outputs = 0;  ///< >= 1
  bool bias = true;
  Initialization initialization = Initialization::torch_linear;
  float deviation = 0.0f;  ///< > 0: weight normal(0, deviation) and bias 0, whatever `initialization` says
  std::uint64_t seed = 0;
};

/// Parameters "<path>.weight" (outputs, inputs) and "<path>.bias" (outputs). Observed gradients:
/// "<path>.input", "<path>.weight", "<path>.bias".
class Linear final : public Module {
 public:
  Linear(Backend& backend, std::string path, const LinearOptions& options);

  /// x (..., inputs) -> (..., outputs)
  Variable forward(Tape& tape, const Variable& x) override;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;  ///< null: no bias
};

}  // namespace fp16lab::engine::nn
