// MindSpore's DynamicLossScaleUpdateCell: the update on the device, which a training cell uses.
//
// The scale is FP32, and backing off multiplies by the rounded reciprocal of the factor. The peer has no
// defaults; those here are of the DynamicLossScaleManager that makes the cell.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct MindSporeCellScaling : GoodStepScaling<FactorAndReciprocal<float>> {
  static constexpr std::string_view name = "mindspore-cell";
  static constexpr std::string_view rule =
      "S *= 1 / growth_factor on an overflow, not below 1; S *= growth_factor after growth_interval good "
      "steps in a row";
  static constexpr std::string_view source =
      "mindspore-ai/mindspore python/mindspore/nn/wrap/loss_scale.py, DynamicLossScaleUpdateCell";
  static constexpr std::array parameters = {initial_scale_parameter(16777216), one_factor_parameter(2),
                                            growth_interval_parameter(2000), min_scale_parameter(1),
                                            finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
