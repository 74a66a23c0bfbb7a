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

/// What both have: parameters "<path>.weight" (outer, inner / groups, R, S), of fan_in = inner / groups R S
/// and fan_out = outer R S as torch reads them off the shape, and "<path>.bias" (outputs). x is (N, C, H, W)
/// or (N, H, W, C) by the geometry's layout. Observed gradients: "<path>.input", "<path>.weight",
/// "<path>.bias". std::invalid_argument for options that give no such layer.
class FilterLayer : public Module {
 protected:
  FilterLayer(Backend& backend, const char* layer, std::string path, const Conv2dOptions& options,
              std::int64_t outer, std::int64_t inner);

  std::string path_;
  Conv2dGeometry geometry_;
  Variable weight(Tape& tape) const { return tape.parameter(*weight_); }
  /// Undefined without a bias.
  Variable bias(Tape& tape) const { return bias_ == nullptr ? Variable() : tape.parameter(*bias_); }

 private:
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;  ///< null: no bias
};

/// Weight (outputs, inputs / groups, R, S).
class Conv2d final : public FilterLayer {
 public:
  Conv2d(Backend& backend, std::string path, const Conv2dOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;
};

/// ops::conv_transpose2d, as torch.nn.ConvTranspose2d: weight (inputs, outputs / groups, R, S). The geometry
/// is that of the convolution that is transposed.
class ConvTranspose2d final : public FilterLayer {
 public:
  /// output_padding: >= 0, below the stride.
  ConvTranspose2d(Backend& backend, std::string path, const Conv2dOptions& options,
                  std::array<std::int64_t, 2> output_padding = {0, 0});
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::array<std::int64_t, 2> output_padding_;
};

}  // namespace fp16lab::engine::nn
