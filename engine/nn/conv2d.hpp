// Conv2d and ConvTranspose2d: cross-correlation with learned filters, and its transpose.
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
  Conv2dGeometry geometry = {};              ///< its groups divide inputs and outputs
  bool bias = true;
  Initialization initialization = Initialization::torch_linear;  ///< torch.nn.Conv2d has the same default
  std::uint64_t seed = 0;
};

/// Parameters "<path>.weight" (outputs, inputs / groups, R, S) and "<path>.bias" (outputs). fan_in = inputs /
/// groups R S, fan_out = outputs R S. Observed gradients: "<path>.input", "<path>.weight", "<path>.bias".
/// std::invalid_argument for options that give no such layer.
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

struct ConvTranspose2dOptions {
  std::int64_t inputs = 0;                           ///< channels, >= 1
  std::int64_t outputs = 0;                          ///< channels, >= 1
  std::array<std::int64_t, 2> kernel{3, 3};          ///< >= 1
  Conv2dGeometry geometry = {};                      ///< of the convolution that is transposed
  std::array<std::int64_t, 2> output_padding{0, 0};  ///< >= 0, below the stride
  bool bias = true;
  Initialization initialization = Initialization::torch_linear;
  std::uint64_t seed = 0;
};

/// ops::conv_transpose2d, as torch.nn.ConvTranspose2d: parameters "<path>.weight" (inputs, outputs / groups,
/// R, S) and "<path>.bias" (outputs). The fans are those that torch reads off the weight's shape: fan_in =
/// outputs / groups R S, fan_out = inputs R S. Observed and refused as Conv2d.
class ConvTranspose2d final : public Module {
 public:
  ConvTranspose2d(Backend& backend, std::string path, const ConvTranspose2dOptions& options);

  /// x (N, C, H, W) or (N, H, W, C) by the geometry's layout
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  Conv2dGeometry geometry_;
  std::array<std::int64_t, 2> output_padding_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;  ///< null: no bias
};

}  // namespace fp16lab::engine::nn
