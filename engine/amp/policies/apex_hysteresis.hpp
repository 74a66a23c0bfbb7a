// apex's kernel update_scale_hysteresis, which NeMo runs: torch's rule behind a count of forgiven overflows.
//
// Every good step gives them all back, so isolated overflows never lower the scale. The kernel multiplies the
// FP32 scale in FP64. The caller gives all values; those here are NeMo's.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct ApexHysteresisScaling : HysteresisScaling<TwoFactors<float, double>, Refill::on_good_step> {
  static constexpr std::string_view name = "apex-hysteresis";
  static constexpr std::string_view rule =
      "S *= backoff_factor on an overflow after hysteresis - 1 others in a row; S *= growth_factor after "
      "growth_interval good steps in a row";
  static constexpr std::string_view source =
      "NVIDIA/apex at e13873de: csrc/update_scale_hysteresis.cu; NVIDIA/NeMo native_amp_* options";
  static constexpr std::array parameters = {initial_scale_parameter(4294967296), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5), growth_interval_parameter(1000),
                                            hysteresis_parameter(2)};
};

}  // namespace fp16lab::engine::amp
