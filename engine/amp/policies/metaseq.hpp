// metaseq's DynamicLossScaler (OPT): fairseq's, with a growth interval that moves with the scale.
//
// Growth multiplies the interval too and backing off divides it, so that high scales are probed rarely. A
// scale that would fall below min_loss_scale stays, and the run goes on; the interval shrinks all the same.
// min_scale is the peer's `threshold`. The peer's interval is a Python float after the first growth, hence
// FP64 here; backing off truncates it.
#pragma once

#include "engine/amp/policies/fairseq.hpp"

namespace fp16lab::engine::amp {

struct MetaseqScaling {
  static constexpr std::string_view name = "metaseq";
  static constexpr std::string_view rule =
      "as fairseq, but growth_interval is multiplied and divided with S, and S stays where it would fall "
      "below "
      "min_loss_scale";
  static constexpr std::string_view source =
      "facebookresearch/metaseq metaseq/optim/dynamic_loss_scaler.py, DynamicLossScaler";
  static constexpr std::array parameters = {
      initial_scale_parameter(4),
      one_factor_parameter(2),
      growth_interval_parameter(256),
      tolerance_parameter(0),
      min_loss_scale_parameter(0x1p-5, "the scale stays where it would fall below this"),
      finite_guard_parameter(false)};
  static constexpr bool wants_statistics = false;

  struct Params {
    double initial_scale = 4;
    double min_scale = 0;
    double min_loss_scale = 0x1p-5;
    double tolerance = 0;
    OneFactor<double> factors{};
    std::int32_t growth_interval = 256;
  };
  struct State {
    double scale = 4;
    double growth_interval = 256;
    std::int64_t good_steps = 0;  ///< since the last overflow; growth does not restart it
    std::int32_t since_rescale = 0;
    std::int32_t overflows_since_rescale = 0;
  };
  static_assert(sizeof(State) == 32);

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.real("initial_scale"),
            .min_scale = values.real("min_scale"),
            .min_loss_scale = values.real("min_loss_scale"),
            .tolerance = values.real("tolerance"),
            .factors = OneFactor<double>::of(values),
            .growth_interval = values.count("growth_interval")};
  }
  static State initial(const Params& params) {
    return {params.initial_scale, double(params.growth_interval), 0, 0, 0};
  }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    ++state.since_rescale;
    if (observation.found_inf) {
      state.good_steps = 0;
      ++state.overflows_since_rescale;
      const double rate = double(state.overflows_since_rescale) / double(state.since_rescale);
      if (!(rate >= params.tolerance)) return;
      state.since_rescale = 0;
      state.overflows_since_rescale = 0;
      const auto whole = static_cast<std::int64_t>(state.growth_interval / params.factors.factor);
      state.growth_interval = whole < 1 ? 1.0 : double(whole);
      double lower = params.factors.backed_off(state.scale);
      if (lower < params.min_scale) lower = params.min_scale;
      if (!(lower < params.min_loss_scale)) state.scale = lower;
      return;
    }
    ++state.good_steps;
    if (!divides(state.growth_interval, double(state.good_steps))) return;
    state.scale = params.factors.grown(state.scale);
    state.since_rescale = 0;
    // Beyond 2^53 no number of steps is reached any more, and truncating it could overflow.
    const double wider = params.factors.grown(state.growth_interval);
    state.growth_interval = wider < 0x1p53 ? wider : 0x1p53;
  }

 private:
  /// Is n a multiple of divisor (at least 1, not always an integer)? Long division: every difference is
  /// exact.
  FP16LAB_HD static bool divides(double divisor, double n) {
    double multiple = divisor, rest = n;
    while (multiple <= n) multiple *= 2;
    while (multiple >= divisor && rest > 0) {
      if (rest >= multiple) rest -= multiple;
      multiple *= 0.5;
    }
    return rest == 0;
  }
};

}  // namespace fp16lab::engine::amp
