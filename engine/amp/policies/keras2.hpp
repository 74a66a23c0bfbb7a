// TensorFlow 2's LossScaleOptimizer: FP32, a floor of 1, growth only where finite.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct Keras2Scaling : GoodStepScaling<OneFactor<float>> {
  static constexpr std::string_view name = "keras2";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow, not below 1; S *= growth_factor after growth_interval good steps "
      "in a row";
  static constexpr std::string_view source =
      "keras-team/tf-keras tf_keras/mixed_precision/loss_scale_optimizer.py, LossScaleOptimizer";
  static constexpr std::array parameters = {initial_scale_parameter(32768), one_factor_parameter(2),
                                            growth_interval_parameter(2000), min_scale_parameter(1)};
};

}  // namespace fp16lab::engine::amp
