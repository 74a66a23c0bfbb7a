// A scale for every named layer, each with torch's rule (fairscale's LayerwiseGradientScaler).
//
// The gradient of a layer's output carries S times the layer's scale; layers that scaler.groups does not name
// have scale 1. A layer whose gradients overflow backs off, the others count on; the step is skipped for all
// of them. Where ours differs (engine/amp/scalers/grouped_layer_scaler.hpp): scales are FP32, not FP64; what
// is applied is the power of two at or below; and an overflow is blamed on the layer before the first one
// that shows it as well.
#pragma once

#include <array>

#include "engine/amp/policies/layer_rule.hpp"

namespace fp16lab::engine::amp {

struct LayerwiseScaling : ConstantLossScale {
  static constexpr std::string_view name = "layerwise";
  static constexpr std::string_view rule =
      "every layer that scaler.groups names has a scale with torch's rule; an overflow in any skips the step";
  static constexpr std::string_view source =
      "facebookresearch/fairscale fairscale/optim/layerwise_gradient_scaler.py";
  static constexpr std::array parameters = {layers_loss_scale_parameter(), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5), growth_interval_parameter(10000),
                                            min_scale_parameter(0x1p-126), max_scale_parameter(0x1p127)};
};

}  // namespace fp16lab::engine::amp
