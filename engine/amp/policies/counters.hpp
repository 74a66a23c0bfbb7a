// What the policies that move by counters share: how a peer multiplies its scale, and the rules of four
// families.
//
//   GoodStepScaling     one overflow backs off; growth_interval good steps in a row grow
//   BadStepScaling      bad_steps overflows back off; a good step clears their count, or does not
//   HysteresisScaling   the first hysteresis - 1 overflows are forgiven (skipped, but the scale stays); when
//                       they are forgiven again differs between peers
// A policy inherits one and adds what is its own: name, rule, source, parameters with the peer's defaults.
// Floors, ceilings and what happens to an infinite scale are guards (engine/amp/guards.hpp), declared as
// parameters.
//
// States are hashed as bytes, so they have no padding. Counts of good steps restart at every growth, which
// gives the traces of peers that keep absolute iteration numbers and divide (iteration - last overflow) by
// the interval.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

// How a peer changes its scale. `Scale` is the type it keeps the scale in, every operation rounds to it.

/// S * growth_factor and S * backoff_factor. `Factor` is the type of the product, which is then rounded to
/// Scale.
template <class ScaleType, class Factor = ScaleType>
struct TwoFactors {
  using Scale = ScaleType;
  Factor growth = 2;
  Factor backoff = Factor(0.5);
  static TwoFactors of(const PolicyValues& values) {
    return {static_cast<Factor>(values.real("growth_factor")),
            static_cast<Factor>(values.real("backoff_factor"))};
  }
  FP16LAB_HD Scale grown(Scale scale) const { return static_cast<Scale>(Factor(scale) * growth); }
  FP16LAB_HD Scale backed_off(Scale scale) const { return static_cast<Scale>(Factor(scale) * backoff); }
};

/// S * growth_factor and S / growth_factor: the peer has one factor for both.
template <class ScaleType>
struct OneFactor {
  using Scale = ScaleType;
  Scale factor = 2;
  static OneFactor of(const PolicyValues& values) {
    return {static_cast<Scale>(values.real("growth_factor"))};
  }
  FP16LAB_HD Scale grown(Scale scale) const { return scale * factor; }
  FP16LAB_HD Scale backed_off(Scale scale) const { return scale / factor; }
};

/// S * growth_factor and S * (1 / growth_factor), the reciprocal rounded first.
template <class ScaleType>
struct FactorAndReciprocal {
  using Scale = ScaleType;
  Scale factor = 2;
  Scale reciprocal = Scale(0.5);
  static FactorAndReciprocal of(const PolicyValues& values) {
    const auto factor = static_cast<Scale>(values.real("growth_factor"));
    return {factor, Scale(1) / factor};
  }
  FP16LAB_HD Scale grown(Scale scale) const { return scale * factor; }
  FP16LAB_HD Scale backed_off(Scale scale) const { return scale * reciprocal; }
};

constexpr PolicyParameter one_factor_parameter(double fallback) {
  PolicyParameter parameter = growth_factor_parameter(fallback);
  parameter.help = "the scale is multiplied by this when it grows and divided by it when it backs off";
  return parameter;
}
constexpr PolicyParameter bad_steps_parameter(double fallback) {
  return count_parameter("bad_steps", fallback, "overflows until the scale backs off");
}
constexpr PolicyParameter hysteresis_parameter(double fallback) {
  return count_parameter("hysteresis", fallback,
                         "overflows until the scale backs off; those before are forgiven");
}
constexpr PolicyParameter extra_good_step_parameter(bool fallback) {
  return switch_parameter("extra_good_step", fallback, "growth comes one good step later");
}
constexpr PolicyParameter tolerance_parameter(double fallback) {
  return {.name = "tolerance",
          .fallback = fallback,
          .help =
              "share of overflows among the steps since the last change of scale, from which an overflow "
              "backs off",
          .minimum = 0,
          .maximum = 1};
}

template <class FactorsType>
struct GoodStepScaling {
  using Factors = FactorsType;
  using Scale = typename Factors::Scale;
  static constexpr bool wants_statistics = false;

  struct Params {
    Scale initial_scale = 65536;
    Factors factors{};
    std::int32_t growth_interval = 2000;
  };
  struct State {
    Scale scale = 65536;
    std::conditional_t<sizeof(Scale) == 8, std::int64_t, std::int32_t> good_steps = 0;
  };
  static_assert(sizeof(State) == 2 * sizeof(Scale));

  static Params params(const PolicyValues& values) {
    return {.initial_scale = static_cast<Scale>(values.real("initial_scale")),
            .factors = Factors::of(values),
            .growth_interval = values.count("growth_interval")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.scale = params.factors.backed_off(state.scale);
      state.good_steps = 0;
      return;
    }
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
  }
};

/// What a good step does to the count of bad ones.
enum class GoodStep { clears_bad_steps, keeps_bad_steps };

template <class FactorsType, GoodStep good_step>
struct BadStepScaling {
  using Factors = FactorsType;
  using Scale = typename Factors::Scale;
  static constexpr bool wants_statistics = false;

  struct Params {
    Scale initial_scale = 65536;
    Factors factors{};
    std::int32_t growth_interval = 2000;
    std::int32_t bad_steps = 1;
  };
  struct State {
    Scale scale = 65536;
    std::int32_t good_steps = 0;
    std::int32_t bad_steps = 0;
  };
  static_assert(sizeof(State) == sizeof(Scale) + 2 * sizeof(std::int32_t));

  static Params params(const PolicyValues& values) {
    return {.initial_scale = static_cast<Scale>(values.real("initial_scale")),
            .factors = Factors::of(values),
            .growth_interval = values.count("growth_interval"),
            .bad_steps = values.count("bad_steps")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.good_steps = 0;
      if (++state.bad_steps < params.bad_steps) return;
      state.scale = params.factors.backed_off(state.scale);
      state.bad_steps = 0;
      return;
    }
    if (good_step == GoodStep::clears_bad_steps) state.bad_steps = 0;
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
    state.bad_steps = 0;
  }
};

/// Uses up one of the overflows that are forgiven. False: none is left, the scale has to back off.
FP16LAB_HD inline bool forgives_overflow(std::int32_t& hysteresis_left) {
  if (hysteresis_left <= 1) return false;
  --hysteresis_left;
  return true;
}

/// When all overflows that are forgiven are given back.
enum class Refill { on_growth, on_good_step };

template <class FactorsType, Refill refill>
struct HysteresisScaling {
  using Factors = FactorsType;
  using Scale = typename Factors::Scale;
  static constexpr bool wants_statistics = false;

  struct Params {
    Scale initial_scale = 65536;
    Factors factors{};
    std::int32_t growth_interval = 2000;
    std::int32_t hysteresis = 2;
  };
  struct State {
    Scale scale = 65536;
    std::int32_t good_steps = 0;
    std::int32_t hysteresis_left = 2;
  };
  static_assert(sizeof(State) == sizeof(Scale) + 2 * sizeof(std::int32_t));

  static Params params(const PolicyValues& values) {
    return {.initial_scale = static_cast<Scale>(values.real("initial_scale")),
            .factors = Factors::of(values),
            .growth_interval = values.count("growth_interval"),
            .hysteresis = values.count("hysteresis")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, params.hysteresis}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.good_steps = 0;
      if (!forgives_overflow(state.hysteresis_left)) state.scale = params.factors.backed_off(state.scale);
      return;
    }
    if (refill == Refill::on_good_step) state.hysteresis_left = params.hysteresis;
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
    state.hysteresis_left = params.hysteresis;
  }
};

}  // namespace fp16lab::engine::amp
