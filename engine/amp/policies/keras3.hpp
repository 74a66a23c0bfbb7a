// Keras 3's LossScaleOptimizer: the rule of Keras 2 without its floor and without its check of the product.
//
// The peer's factor is fixed at 2.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct Keras3Scaling : GoodStepScaling<OneFactor<float>> {
  static constexpr std::string_view name = "keras3";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow; S *= growth_factor after growth_interval good steps in a row";
  static constexpr std::string_view source =
      "keras-team/keras keras/src/optimizers/loss_scale_optimizer.py, LossScaleOptimizer";
  static constexpr std::array parameters = {initial_scale_parameter(32768), one_factor_parameter(2),
                                            growth_interval_parameter(2000), finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
