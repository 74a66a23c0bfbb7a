// A scale for each group of layers (MindSpore's boost.GroupLossScaleManager).
//
// scaler.groups = ["fc1=2^8", "*=2^4"]: patterns and initial scales; a layer belongs to the first pattern
// that matches, one that matches none has scale 1. Gradients that cross from one group into another are
// multiplied by the ratio of their scales. Each group grows by 2^(1/1000) after a good step and shrinks by
// 2^(-1/2) after its own overflow; the step is skipped for all. What is applied is the power of two at or
// below the scale, so ratios are exact.
#pragma once

#include <array>

#include "engine/amp/policies/layer_rule.hpp"

namespace fp16lab::engine::amp {

struct GroupScaling : ConstantLossScale {
  static constexpr std::string_view name = "groups";
  static constexpr std::string_view rule =
      "every group of layers in scaler.groups has a scale that moves with the group's own overflows; an "
      "overflow "
      "in any skips the step";
  static constexpr std::string_view source =
      "mindspore-ai/mindspore boost/group_loss_scale_manager.py, boost/boost_cell_wrapper.py";
  static constexpr std::array parameters = {layers_loss_scale_parameter(),
                                            growth_factor_parameter(1.0006933874625807),   // 2^(1/1000)
                                            backoff_factor_parameter(0.7071067811865476),  // 2^(-1/2)
                                            growth_interval_parameter(1)};
};

}  // namespace fp16lab::engine::amp
