// TensorFlow 1's ExponentialUpdateLossScaleManager.
//
// Good steps do not clear the count of bad ones, so two overflows back off however far apart they are, unless
// a growth came between them. The peer has no default for initial scale and growth interval; those here are
// of Paddle's legacy form, which copied the rest.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct Tf1ExponentialScaling : BadStepScaling<TwoFactors<float>, GoodStep::keeps_bad_steps> {
  static constexpr std::string_view name = "tf1-exponential";
  static constexpr std::string_view rule =
      "S *= backoff_factor after bad_steps overflows since the last change of S; S *= growth_factor after "
      "growth_interval good steps in a row";
  static constexpr std::string_view source =
      "tensorflow/tensorflow r1.15 tensorflow/contrib/mixed_precision/python/loss_scale_manager.py";
  static constexpr std::array parameters = {initial_scale_parameter(32768), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.8),  growth_interval_parameter(1000),
                                            bad_steps_parameter(2),         min_scale_parameter(1)};
};

}  // namespace fp16lab::engine::amp
