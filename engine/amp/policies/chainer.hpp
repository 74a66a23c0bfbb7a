// Chainer's dynamic loss scaling: doubles every step until the first overflow, then grows smoothly.
//
// After the first overflow S grows by 2^(1 / growth_interval) in every good step, so that it doubles in
// growth_interval of them. Its scales are no powers of two. FP64; within [1, 65504].
#pragma once

#include "engine/amp/policies/counters.hpp"
#include "engine/amp/policies/power_of_two.hpp"

namespace fp16lab::engine::amp {

struct ChainerScaling {
  static constexpr std::string_view name = "chainer";
  static constexpr std::string_view rule =
      "S *= 2 in every good step before the first overflow, S *= 2^(1 / growth_interval) in every one after "
      "it; "
      "S *= backoff_factor on an overflow";
  static constexpr std::string_view source = "chainer/chainer chainer/optimizer.py, Optimizer.loss_scaling";
  static constexpr std::array parameters = {
      initial_scale_parameter(1), backoff_factor_parameter(0.5),
      count_parameter("growth_interval", 1000,
                      "good steps in which the scale doubles after the first overflow"),
      min_scale_parameter(1), max_scale_parameter(65504)};
  static constexpr bool wants_statistics = false;
  static constexpr bool power_of_two_scales = false;

  struct Params {
    double initial_scale = 1;
    double backoff_factor = 0.5;
    double smooth_growth_factor = 2;
  };
  struct State {
    double scale = 1;
    std::int64_t overflowed = 0;  ///< 1 from the first overflow on
  };
  static_assert(sizeof(State) == 16);

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.real("initial_scale"),
            .backoff_factor = values.real("backoff_factor"),
            .smooth_growth_factor = power_of_two(1.0 / values.real("growth_interval"))};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.scale *= params.backoff_factor;
      state.overflowed = 1;
    } else {
      state.scale *= state.overflowed != 0 ? params.smooth_growth_factor : 2.0;
    }
  }
};

}  // namespace fp16lab::engine::amp
