// MindSpore's DynamicLossScaleManager, on the host.
//
// The scale is a Python float, so FP64, and backing off multiplies by 1 / factor. More than 1000 overflows in
// a row end the training with a RuntimeError. (Its two other scalers are mindspore_cell.hpp and
// mindspore_amp.hpp.)
#pragma once

#include <optional>
#include <string>

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct MindSporeScaling {
  static constexpr std::string_view name = "mindspore";
  static constexpr std::string_view rule =
      "S *= 1 / growth_factor on an overflow, not below 1; S *= growth_factor whenever growth_interval "
      "divides "
      "the number of steps since the last overflow; the run ends after more than overflow_limit overflows in "
      "a row";
  static constexpr std::string_view source =
      "mindspore-ai/mindspore python/mindspore/train/loss_scale_manager.py, DynamicLossScaleManager";
  static constexpr std::array parameters = {
      initial_scale_parameter(16777216),
      one_factor_parameter(2),
      growth_interval_parameter(2000),
      count_parameter("overflow_limit", 1000, "more overflows in a row than this end the run"),
      min_scale_parameter(1),
      finite_guard_parameter(false)};
  static constexpr bool wants_statistics = false;

  struct Params {
    double initial_scale = 16777216;
    FactorAndReciprocal<double> factors{};
    std::int32_t growth_interval = 2000;
  };
  struct State {
    double scale = 16777216;
    std::int32_t good_steps = 0;
    std::int32_t overflows_in_a_row = 0;
  };
  static_assert(sizeof(State) == 16);

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.real("initial_scale"),
            .factors = FactorAndReciprocal<double>::of(values),
            .growth_interval = values.count("growth_interval")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.scale = params.factors.backed_off(state.scale);
      state.good_steps = 0;
      ++state.overflows_in_a_row;
      return;
    }
    state.overflows_in_a_row = 0;
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
  }

  static std::optional<std::string> stop(const State& state, const PolicySettings& values) {
    const auto limit = static_cast<std::int32_t>(values.find("overflow_limit")->second);
    if (state.overflows_in_a_row <= limit) return std::nullopt;
    return "overflows in " + std::to_string(state.overflows_in_a_row) +
           " steps in a row, more than scaler.overflow_limit = " + std::to_string(limit);
  }
};

}  // namespace fp16lab::engine::amp
