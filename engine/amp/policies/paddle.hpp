// Paddle's GradScaler in dynamic graphs.
//
// No floor, no ceiling and no check of the product: in this path the scale can fall to 0 and grow to infinity
// (the static-graph kernel, paddle_static.hpp, has both). The scale is an FP32 tensor.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct PaddleScaling : BadStepScaling<TwoFactors<float>, GoodStep::clears_bad_steps> {
  static constexpr std::string_view name = "paddle";
  static constexpr std::string_view rule =
      "S *= backoff_factor after bad_steps overflows in a row; S *= growth_factor after growth_interval good "
      "steps in a row";
  static constexpr std::string_view source =
      "PaddlePaddle/Paddle python/paddle/amp/grad_scaler.py, GradScaler";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(2000),
                                            bad_steps_parameter(1),         finite_guard_parameter(false)};
};

/// Its base class, with other defaults.
struct PaddleAmpScaling : PaddleScaling {
  static constexpr std::string_view name = "paddle-amp-scaler";
  static constexpr std::string_view source =
      "PaddlePaddle/Paddle python/paddle/amp/grad_scaler.py, AmpScaler";
  static constexpr std::array parameters = {initial_scale_parameter(32768), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(1000),
                                            bad_steps_parameter(1),         finite_guard_parameter(false)};
};

/// GradScaler as Paddle 2.2 had it, and as the AMP guide still describes it: 2^15, 1000 steps, two overflows
/// in a row.
struct Paddle22Scaling : PaddleScaling {
  static constexpr std::string_view name = "paddle-2.2";
  static constexpr std::string_view source =
      "PaddlePaddle/Paddle release/2.2 python/paddle/amp/grad_scaler.py, GradScaler";
  static constexpr std::array parameters = {initial_scale_parameter(32768), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(1000),
                                            bad_steps_parameter(2),         finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
