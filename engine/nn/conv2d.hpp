// Conv2d: cross-correlation with learned filters, groups = 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/nn/initialization.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct Conv2dOptions {
  std::int64_t inputs = 0;                   ///< channels, >= 1
  std::int64_t outputs = 0;                  ///< channels, >= 1
  std::array<std::int64_t, 2> kernel{3, 3};  ///< >= 1
  Conv2dGeometry geometry = {};
  bool bias = true;
  Initialization initialization = Initialization::torch_linear;  ///< torch.nn.Conv2d has the same default
  std::uint64_t seed = 0;
};

/// Parameters "<path>.weight" (outputs, inputs, R, S) and "<path>.bias" (outputs). fan_in = inputs R S,
/// fan_out = outputs R S. Observed gradients: "<path>.input", "<path>.weight", "<path>.bias".
class Conv2d final : public Module {
 public:
  Conv2d(Backend& backend, std::string path, const Conv2dOptions& options);

  /// x (N, C, H, W) or (N, H, W, C) by the geometry's layout
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  Conv2dGeometry geometry_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;  ///< null: no bias
};

}  // namespace fp16lab::engine::nn
