// Paddle's static graphs: the counters of its dynamic ones, with a floor of 1, and growth only where the
// product is finite.
//
// The peer's kernel sets the gradients of an overflowed step to zero instead of skipping it; only Adam and
// AdamW skip. Here every optimizer skips.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct PaddleStaticScaling : BadStepScaling<TwoFactors<float>, GoodStep::clears_bad_steps> {
  static constexpr std::string_view name = "paddle-static";
  static constexpr std::string_view rule = "as paddle, but S stays at 1 or above and finite";
  static constexpr std::string_view source =
      "PaddlePaddle/Paddle python/paddle/static/amp/decorator.py, paddle/phi/kernels/impl/amp_kernel_impl.h";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(2000),
                                            bad_steps_parameter(1),         min_scale_parameter(1)};
};

/// The older form of `decorate`, with other defaults.
struct PaddleStaticLegacyScaling : PaddleStaticScaling {
  static constexpr std::string_view name = "paddle-static-legacy";
  static constexpr std::string_view rule =
      "as paddle-static; by default two overflows in a row back off, by 0.8, which is no power of two";
  static constexpr std::string_view source =
      "PaddlePaddle/Paddle python/paddle/static/amp/decorator.py, decorate without master_weight";
  static constexpr std::array parameters = {initial_scale_parameter(32768), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.8),  growth_interval_parameter(1000),
                                            bad_steps_parameter(2),         min_scale_parameter(1)};
};

}  // namespace fp16lab::engine::amp
