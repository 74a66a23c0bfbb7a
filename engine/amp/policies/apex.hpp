// apex.amp's LossScaler (O1, O2). The scale is a Python float, so FP64.
//
// The peer multiplies and divides by 2 whatever its argument scale_factor says; here the factors are
// honoured. It has no floor unless min_loss_scale is given, so that its scale can walk to 0; here
// finite_guard stops it before.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct ApexScaling : GoodStepScaling<TwoFactors<double>> {
  static constexpr std::string_view name = "apex";
  static constexpr std::string_view rule =
      "S *= backoff_factor on an overflow; S *= growth_factor after growth_interval good steps in a row, up "
      "to "
      "max_scale";
  static constexpr std::string_view source = "NVIDIA/apex at e13873de: apex/amp/scaler.py, LossScaler";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5), growth_interval_parameter(2000),
                                            max_scale_parameter(16777216)};
};

}  // namespace fp16lab::engine::amp
