// apex's older DynamicLossScaler, of FP16_Optimizer: from 2^32 down, with a floor of 1 and no check of the
// product.
//
// It counts by the iteration of the last overflow. FP64.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct ApexFp16UtilsScaling : GoodStepScaling<OneFactor<double>> {
  static constexpr std::string_view name = "apex-fp16-utils";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow, not below 1; S *= growth_factor whenever growth_interval divides "
      "the number of steps since the last overflow";
  static constexpr std::string_view source =
      "NVIDIA/apex at e13873de: apex/fp16_utils/loss_scaler.py, DynamicLossScaler";
  static constexpr std::array parameters = {initial_scale_parameter(4294967296), one_factor_parameter(2),
                                            growth_interval_parameter(1000), min_scale_parameter(1),
                                            finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
