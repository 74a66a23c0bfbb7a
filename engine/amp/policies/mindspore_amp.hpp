// MindSpore's amp.DynamicLossScaler, of functional training loops: FP32, a true division, growth only where
// finite.
//
// The peer has no defaults; those here are of DynamicLossScaleManager.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct MindSporeAmpScaling : GoodStepScaling<OneFactor<float>> {
  static constexpr std::string_view name = "mindspore-amp";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow, not below 1; S *= growth_factor after growth_interval good steps "
      "in a row";
  static constexpr std::string_view source =
      "mindspore-ai/mindspore python/mindspore/amp.py, DynamicLossScaler";
  static constexpr std::array parameters = {initial_scale_parameter(16777216), one_factor_parameter(2),
                                            growth_interval_parameter(2000), min_scale_parameter(1)};
};

}  // namespace fp16lab::engine::amp
