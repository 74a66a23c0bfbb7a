// MXNet's LossScaler: apex's rule, one step late.
//
// What a step's check decides becomes the scale only when the next step is checked, so the step between them
// still runs with the old scale: an overflow is usually followed by a second one, and the scale falls twice.
// FP64.
#pragma once

#include "engine/amp/guards.hpp"
#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct MxnetScaling {
  static constexpr std::string_view name = "mxnet";
  static constexpr std::string_view rule =
      "as apex, but each change of S comes into force one step later than it is decided";
  static constexpr std::string_view source =
      "apache/mxnet python/mxnet/contrib/amp/loss_scaler.py, LossScaler";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5), growth_interval_parameter(2000),
                                            max_scale_parameter(16777216)};
  static constexpr bool wants_statistics = false;

  struct Params {
    double initial_scale = 65536;
    TwoFactors<double> factors{};
    Guards guards{};  ///< for the scale that waits: the guards around the policy see the one in force
    std::int64_t growth_interval = 2000;
  };
  struct State {
    double scale = 65536;
    double next_scale = 65536;
    std::int64_t good_steps = 0;
  };
  static_assert(sizeof(State) == 24);

  static Params params(const PolicyValues& values) {
    Params params{.initial_scale = values.real("initial_scale"),
                  .factors = TwoFactors<double>::of(values),
                  .growth_interval = values.count("growth_interval")};
    params.guards.min_scale = values.real("min_scale");
    if (values.real("max_scale") != 0) params.guards.max_scale = values.real("max_scale");
    params.guards.finite_guard = values.enabled("finite_guard") ? 1u : 0u;
    return params;
  }
  static State initial(const Params& params) { return {params.initial_scale, params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    state.scale = state.next_scale;
    double next = state.scale;
    if (observation.found_inf) {
      next = params.factors.backed_off(state.scale);
      state.good_steps = 0;
    } else if (++state.good_steps >= params.growth_interval) {
      next = params.factors.grown(state.scale);
      state.good_steps = 0;
    }
    state.next_scale = guarded(state.scale, next, params.guards);
  }
};

}  // namespace fp16lab::engine::amp
