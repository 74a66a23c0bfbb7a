// flax's DynamicScale.
//
// It compares its count of good steps with the interval before it counts the step, so that growth comes after
// growth_interval + 1 good steps, every time. extra_good_step = false gives exactly growth_interval. FP32;
// the floor is the smallest normal FP32 number, growth stops at the largest.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct FlaxScaling {
  static constexpr std::string_view name = "flax";
  static constexpr std::string_view rule =
      "S *= backoff_factor on an overflow; S *= growth_factor after growth_interval good steps in a row and, "
      "with extra_good_step, one more";
  static constexpr std::string_view source = "google/flax flax/training/dynamic_scale.py, DynamicScale";
  static constexpr std::array parameters = {initial_scale_parameter(65536),  growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),   growth_interval_parameter(2000),
                                            extra_good_step_parameter(true), min_scale_parameter(0x1p-126)};
  static constexpr bool wants_statistics = false;

  struct Params {
    float initial_scale = 65536;
    TwoFactors<float> factors{};
    std::int32_t steps_to_growth = 2001;
  };
  using State = GoodStepScaling<TwoFactors<float>>::State;

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.f32("initial_scale"),
            .factors = TwoFactors<float>::of(values),
            .steps_to_growth = values.count("growth_interval") + (values.enabled("extra_good_step") ? 1 : 0)};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.scale = params.factors.backed_off(state.scale);
      state.good_steps = 0;
      return;
    }
    if (++state.good_steps < params.steps_to_growth) return;
    constexpr float largest = 0x1.fffffep127f;
    const float grown = params.factors.grown(state.scale);
    state.scale = grown < largest ? grown : largest;
    state.good_steps = 0;
  }
};

}  // namespace fp16lab::engine::amp
