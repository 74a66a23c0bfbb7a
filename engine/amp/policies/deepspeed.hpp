// DeepSpeed's DynamicLossScaler, and the two older profiles of its optimizers.
//
// hysteresis (its delayed_shift) overflows are needed to back off. Those before are forgiven once until the
// next growth, or again after every good step with consecutive_hysteresis. Growth is counted from the second
// good step after an overflow: it comes after growth_interval + 1 good steps, then after every
// growth_interval more; extra_good_step = false gives growth_interval from the start. With
// raise_error_at_min_scale an overflow at the floor ends the run. FP64.
#pragma once

#include <optional>
#include <string>

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

constexpr PolicyParameter consecutive_hysteresis_parameter(bool fallback) {
  return switch_parameter("consecutive_hysteresis", fallback,
                          "every good step gives back the overflows that are forgiven");
}
constexpr PolicyParameter raise_error_parameter(bool fallback) {
  return switch_parameter("raise_error_at_min_scale", fallback, "an overflow at the floor ends the run");
}

struct DeepSpeedScaling {
  static constexpr std::string_view name = "deepspeed";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow after hysteresis - 1 others (since the last growth, or in a row), "
      "not "
      "below min_scale, where one more ends the run; S *= growth_factor after growth_interval good steps in "
      "a "
      "row, the first after an overflow not counted";
  static constexpr std::string_view source =
      "deepspeedai/DeepSpeed deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler";
  static constexpr std::array parameters = {initial_scale_parameter(65536),
                                            one_factor_parameter(2),
                                            growth_interval_parameter(1000),
                                            hysteresis_parameter(2),
                                            consecutive_hysteresis_parameter(false),
                                            extra_good_step_parameter(true),
                                            raise_error_parameter(true),
                                            min_scale_parameter(1),
                                            finite_guard_parameter(false)};
  static constexpr bool wants_statistics = false;

  struct Params {
    double initial_scale = 65536;
    double min_scale = 1;
    OneFactor<double> factors{};
    std::int32_t growth_interval = 1000;
    std::int32_t hysteresis = 2;
    std::int32_t consecutive_hysteresis = 0;
    std::int32_t extra_good_steps = 1;
    std::int32_t raise_error_at_min_scale = 1;
  };
  struct State {
    double scale = 65536;
    std::int32_t good_steps = -1;  ///< that count: the extra one comes before the first of them
    std::int32_t hysteresis_left = 2;
    std::int64_t stopped = 0;
  };
  static_assert(sizeof(State) == 24);

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.real("initial_scale"),
            .min_scale = values.real("min_scale"),
            .factors = OneFactor<double>::of(values),
            .growth_interval = values.count("growth_interval"),
            .hysteresis = values.count("hysteresis"),
            .consecutive_hysteresis = values.enabled("consecutive_hysteresis") ? 1 : 0,
            .extra_good_steps = values.enabled("extra_good_step") ? 1 : 0,
            .raise_error_at_min_scale = values.enabled("raise_error_at_min_scale") ? 1 : 0};
  }
  static State initial(const Params& params) {
    return {params.initial_scale, -params.extra_good_steps, params.hysteresis, 0};
  }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (state.stopped != 0) return;
    if (observation.found_inf) {
      state.good_steps = -params.extra_good_steps;
      if (forgives_overflow(state.hysteresis_left)) return;
      if (params.raise_error_at_min_scale != 0 && state.scale == params.min_scale) {
        state.stopped = 1;
        return;
      }
      const double lower = params.factors.backed_off(state.scale);
      state.scale = lower > params.min_scale ? lower : params.min_scale;
      return;
    }
    if (params.consecutive_hysteresis != 0) state.hysteresis_left = params.hysteresis;
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
    state.hysteresis_left = params.hysteresis;
  }

  static std::optional<std::string> stop(const State& state, const PolicySettings&) {
    if (state.stopped == 0) return std::nullopt;
    return "an overflow at scaler.min_scale, with scaler.raise_error_at_min_scale = true";
  }
};

/// The rule of fused FP16 optimizers without a configured scaler.
struct DeepSpeedFusedScaling : DeepSpeedScaling {
  static constexpr std::string_view name = "deepspeed-fused";
  static constexpr std::string_view source =
      "deepspeedai/DeepSpeed deepspeed/runtime/fp16/fused_optimizer.py";
  static constexpr std::array parameters = {initial_scale_parameter(4294967296),
                                            one_factor_parameter(2),
                                            growth_interval_parameter(1000),
                                            hysteresis_parameter(1),
                                            consecutive_hysteresis_parameter(false),
                                            extra_good_step_parameter(true),
                                            raise_error_parameter(false),
                                            min_scale_parameter(1),
                                            finite_guard_parameter(false)};
};

/// The rule of unfused ones.
struct DeepSpeedUnfusedScaling : DeepSpeedScaling {
  static constexpr std::string_view name = "deepspeed-unfused";
  static constexpr std::string_view source =
      "deepspeedai/DeepSpeed deepspeed/runtime/fp16/unfused_optimizer.py";
  static constexpr std::array parameters = {initial_scale_parameter(65536),
                                            one_factor_parameter(2),
                                            growth_interval_parameter(1000),
                                            hysteresis_parameter(1),
                                            consecutive_hysteresis_parameter(false),
                                            extra_good_step_parameter(true),
                                            raise_error_parameter(false),
                                            min_scale_parameter(0.25),
                                            finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
