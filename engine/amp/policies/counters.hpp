// Rules that move the scale by counting overflows and good steps. Host and device.
//
// A rule here is what a row of engine/amp/policy_list.hpp names; the rows are the peers, with their defaults.
//   GoodSteps    one overflow backs off; growth_interval good steps in a row grow
//   BadSteps     bad_steps overflows back off; a good step clears their count, or does not
//   Hysteresis   the first hysteresis - 1 overflows are forgiven (skipped, but the scale stays); when they
//                are forgiven again differs between peers
// and rules of one or two peers each. Floors, ceilings and what happens to an infinite scale are guards
// (engine/amp/guards.hpp), declared as parameters.
//
// States are hashed and stored as bytes, so they have no padding. Counts of good steps restart at every
// growth, which gives the traces of peers that keep absolute iteration numbers and divide (iteration - last
// overflow) by the interval.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/amp/guards.hpp"
#include "engine/amp/observation.hpp"
#include "engine/amp/policies/power_of_two.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

constexpr PolicyParameter extra_good_step_parameter() {
  return switch_parameter("extra_good_step", true, "growth comes one good step later");
}

// ---- How a peer changes its scale. `Scale` is the type it keeps the scale in; every operation rounds to it.

/// S * growth_factor and S * backoff_factor. `Factor` is the type of the product, which is then rounded to
/// Scale.
template <class ScaleType, class Factor = ScaleType>
struct TwoFactors {
  using Scale = ScaleType;
  static constexpr std::array parameters = {growth_factor_parameter(), backoff_factor_parameter()};
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
  static constexpr std::array parameters = {one_factor_parameter()};
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
  static constexpr std::array parameters = {one_factor_parameter()};
  Scale factor = 2;
  Scale reciprocal = Scale(0.5);
  static FactorAndReciprocal of(const PolicyValues& values) {
    const auto factor = static_cast<Scale>(values.real("growth_factor"));
    return {factor, Scale(1) / factor};
  }
  FP16LAB_HD Scale grown(Scale scale) const { return scale * factor; }
  FP16LAB_HD Scale backed_off(Scale scale) const { return scale * reciprocal; }
};

/// What every rule by counts begins with: initial_scale, the factors, growth_interval.
template <class FactorsType>
struct CountingRule {
  using Factors = FactorsType;
  using Scale = typename Factors::Scale;
  static constexpr auto parameters =
      joined(joined(std::array{initial_scale_parameter()}, Factors::parameters),
             std::array{growth_interval_parameter()});

  struct Params {
    Scale initial_scale = 65536;
    Factors factors{};
    std::int32_t growth_interval = 2000;
    std::int32_t patience = 1;  ///< overflows until the scale backs off, where the rule counts them
  };
  static Params params(const PolicyValues& values) {
    return {.initial_scale = static_cast<Scale>(values.real("initial_scale")),
            .factors = Factors::of(values),
            .growth_interval = values.count("growth_interval")};
  }
  /// Counts a good step. True: it was the last of the interval, and the scale has grown.
  template <class State>
  FP16LAB_HD static bool grows(State& state, const Params& params) {
    if (++state.good_steps < params.growth_interval) return false;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
    return true;
  }
};

// ---- One overflow backs off.

template <class FactorsType>
struct GoodSteps : CountingRule<FactorsType> {
  static constexpr const PolicyFamily& family = policy_families::good_steps;
  using Base = CountingRule<FactorsType>;
  using typename Base::Params;
  using typename Base::Scale;
  struct State {
    Scale scale;
    std::conditional_t<sizeof(Scale) == 8, std::int64_t, std::int32_t> good_steps;
  };
  static_assert(sizeof(State) == 2 * sizeof(Scale));
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf)
      state = {params.factors.backed_off(state.scale), 0};
    else
      Base::grows(state, params);
  }
};

/// torch.amp.GradScaler (aten/src/ATen/native/cuda/AmpKernels.cu).
///
/// S is FP32; the factors are FP64, and every product is formed in FP64 and rounded to FP32 (the kernel's
/// parameters are doubles). Growth that is not finite is not taken, and the count restarts all the same.
/// There is no floor: S may fall below 1, as it does in torch. An infinite S, which growth never gives but a
/// foreign checkpoint may hold, would stay infinite forever (flax#2547): an overflow brings it back to the
/// finite numbers first.
struct TorchScaling : CountingRule<TwoFactors<float, double>> {
  static constexpr const PolicyFamily& family = policy_families::good_steps;
  struct State {
    float scale = 65536.0f;
    std::int32_t growth_tracker = 0;  ///< good steps since the last growth or overflow
  };
  static_assert(sizeof(State) == 8);
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      if (!is_finite(state.scale)) state.scale = 0x1p127f;
      state.scale = params.factors.backed_off(state.scale);
      state.growth_tracker = 0;
      return;
    }
    if (++state.growth_tracker != params.growth_interval) return;  // a checkpoint's may be beyond it forever
    const float grown = params.factors.grown(state.scale);
    if (is_finite(grown)) state.scale = grown;
    state.growth_tracker = 0;
  }

 private:
  FP16LAB_HD static bool is_finite(float value) {
    return (bits_of(value) & Binary32::magnitude_mask) < Binary32::infinity;
  }
};

/// flax compares its count of good steps with the interval before it counts the step, so that growth comes
/// after growth_interval + 1 good steps, every time; extra_good_step = false gives exactly growth_interval.
/// FP32; growth stops at the largest number.
struct FactorsToTheLargest : TwoFactors<float> {
  static FactorsToTheLargest of(const PolicyValues& values) { return {TwoFactors<float>::of(values)}; }
  FP16LAB_HD float grown(float scale) const {
    constexpr float largest = 0x1.fffffep127f;
    const float grown = TwoFactors<float>::grown(scale);
    return grown < largest ? grown : largest;
  }
};
struct FlaxScaling : GoodSteps<FactorsToTheLargest> {
  static constexpr auto parameters =
      joined(GoodSteps<FactorsToTheLargest>::parameters, std::array{extra_good_step_parameter()});
  static Params params(const PolicyValues& values) {
    Params params = GoodSteps<FactorsToTheLargest>::params(values);
    if (values.enabled("extra_good_step")) ++params.growth_interval;
    return params;
  }
};

/// MindSpore's DynamicLossScaleManager, on the host: the scale is a Python float, so FP64, and backing off
/// multiplies by 1 / factor. More than 1000 overflows in a row end the training with a RuntimeError.
struct MindSporeScaling : CountingRule<FactorAndReciprocal<double>> {
  static constexpr const PolicyFamily& family = policy_families::good_steps;
  static constexpr auto parameters = joined(
      CountingRule::parameters,
      std::array{count_parameter("overflow_limit", 1000, "more overflows in a row than this end the run")});
  struct State {
    double scale;
    std::int32_t good_steps;
    std::int32_t overflows_in_a_row;
  };
  static_assert(sizeof(State) == 16);
  static State initial(const Params& params) { return {params.initial_scale, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state = {params.factors.backed_off(state.scale), 0, state.overflows_in_a_row + 1};
      return;
    }
    state.overflows_in_a_row = 0;
    grows(state, params);
  }

  static std::optional<std::string> stop(const State& state, const PolicyValues& values) {
    const auto limit = values.count("overflow_limit");
    if (state.overflows_in_a_row <= limit) return std::nullopt;
    return "overflows in " + std::to_string(state.overflows_in_a_row) +
           " steps in a row, more than scaler.overflow_limit = " + std::to_string(limit);
  }
};

/// MXNet's LossScaler: what a step's check decides becomes the scale only when the next step is checked, so
/// the step between them still runs with the old scale: an overflow is usually followed by a second one,
/// and the scale falls twice. FP64.
struct MxnetScaling : CountingRule<TwoFactors<double>> {
  static constexpr const PolicyFamily& family = policy_families::good_steps;
  struct Params : CountingRule<TwoFactors<double>>::Params {
    Guards guards{};  ///< for the waiting scale: the guards around the policy see the one in force
  };
  struct State {
    double scale;
    double next_scale;
    std::int64_t good_steps;
  };
  static_assert(sizeof(State) == 24);

  static Params params(const PolicyValues& values) {
    return {CountingRule::params(values), guards_of(values)};
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

/// Chainer's dynamic loss scaling: S doubles every step until the first overflow. Then it grows by 2^(1 /
/// growth_interval) in every good step, so that it doubles in growth_interval of them: its scales are no
/// powers of two. FP64.
struct ChainerScaling {
  static constexpr const PolicyFamily& family = policy_families::every_good_step;
  static constexpr std::array parameters = {
      initial_scale_parameter(), backoff_factor_parameter(),
      count_parameter("growth_interval", row_says,
                      "good steps in which the scale doubles after the first overflow")};
  static constexpr bool power_of_two_scales = false;

  struct Params {
    double initial_scale;
    double backoff_factor;
    double smooth_growth_factor;
  };
  struct State {
    double scale;
    std::int64_t overflowed;  ///< 1 from the first overflow on
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

// ---- Several overflows back off.

/// What a good step does to the count of bad ones.
enum class GoodStep { clears_bad_steps, keeps_bad_steps };

template <class FactorsType, GoodStep good_step>
struct BadSteps : CountingRule<FactorsType> {
  using Base = CountingRule<FactorsType>;
  using typename Base::Params;
  using typename Base::Scale;
  static constexpr const PolicyFamily& family = policy_families::bad_steps;
  static constexpr auto parameters =
      joined(Base::parameters,
             std::array{count_parameter("bad_steps", row_says, "overflows until the scale backs off")});

  struct State {
    Scale scale;
    std::int32_t good_steps;
    std::int32_t bad_steps;
  };
  static_assert(sizeof(State) == sizeof(Scale) + 2 * sizeof(std::int32_t));

  static Params params(const PolicyValues& values) {
    Params params = Base::params(values);
    params.patience = values.count("bad_steps");
    return params;
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.good_steps = 0;
      if (++state.bad_steps < params.patience) return;
      state.scale = params.factors.backed_off(state.scale);
      state.bad_steps = 0;
      return;
    }
    if (good_step == GoodStep::clears_bad_steps) state.bad_steps = 0;
    if (Base::grows(state, params)) state.bad_steps = 0;
  }
};

constexpr PolicyParameter hysteresis_parameter() {
  return count_parameter("hysteresis", row_says,
                         "overflows until the scale backs off; those before are forgiven");
}
/// Uses up one of the overflows that are forgiven. False: none is left, the scale has to back off.
FP16LAB_HD inline bool forgives_overflow(std::int32_t& hysteresis_left) {
  if (hysteresis_left <= 1) return false;
  --hysteresis_left;
  return true;
}

/// When all overflows that are forgiven are given back.
enum class Refill { on_growth, on_good_step };

template <class FactorsType, Refill refill>
struct Hysteresis : CountingRule<FactorsType> {
  using Base = CountingRule<FactorsType>;
  using typename Base::Params;
  using typename Base::Scale;
  static constexpr const PolicyFamily& family = policy_families::hysteresis;
  static constexpr auto parameters = joined(Base::parameters, std::array{hysteresis_parameter()});

  struct State {
    Scale scale;
    std::int32_t good_steps;
    std::int32_t hysteresis_left;
  };
  static_assert(sizeof(State) == sizeof(Scale) + 2 * sizeof(std::int32_t));

  static Params params(const PolicyValues& values) {
    Params params = Base::params(values);
    params.patience = values.count("hysteresis");
    return params;
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, params.patience}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      state.good_steps = 0;
      if (!forgives_overflow(state.hysteresis_left)) state.scale = params.factors.backed_off(state.scale);
      return;
    }
    if (Base::grows(state, params) || refill == Refill::on_good_step) state.hysteresis_left = params.patience;
  }
};

/// DeepSpeed's DynamicLossScaler: hysteresis (its delayed_shift) overflows are needed to back off. Those
/// before are forgiven once until the next growth, or again after every good step with
/// consecutive_hysteresis. Growth is counted from the second good step after an overflow: it comes after
/// growth_interval + 1 good steps, then after every growth_interval more; extra_good_step = false gives
/// growth_interval from the start. With raise_error_at_min_scale an overflow at the floor ends the run.
/// FP64.
struct DeepSpeedScaling : CountingRule<OneFactor<double>> {
  static constexpr const PolicyFamily& family = policy_families::hysteresis;
  static constexpr auto parameters = joined(
      CountingRule::parameters,
      std::array{
          hysteresis_parameter(),
          switch_parameter("consecutive_hysteresis", false,
                           "every good step gives back the overflows that are forgiven"),
          extra_good_step_parameter(),
          switch_parameter("raise_error_at_min_scale", true, "an overflow at the floor ends the run")});
  struct Params : CountingRule<OneFactor<double>>::Params {
    double min_scale;
    std::int32_t consecutive_hysteresis;
    std::int32_t extra_good_steps;
    std::int32_t raise_error_at_min_scale;
  };
  struct State {
    double scale;
    std::int32_t good_steps;  ///< that count: the extra one comes before the first of them
    std::int32_t hysteresis_left;
    std::int64_t stopped;
  };
  static_assert(sizeof(State) == 24);

  static Params params(const PolicyValues& values) {
    Params params{CountingRule::params(values), values.real("min_scale"),
                  values.enabled("consecutive_hysteresis") ? 1 : 0, values.enabled("extra_good_step") ? 1 : 0,
                  values.enabled("raise_error_at_min_scale") ? 1 : 0};
    params.patience = values.count("hysteresis");
    return params;
  }
  static State initial(const Params& params) {
    return {params.initial_scale, -params.extra_good_steps, params.patience, 0};
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
    if (grows(state, params) || params.consecutive_hysteresis != 0) state.hysteresis_left = params.patience;
  }

  static std::optional<std::string> stop(const State& state, const PolicyValues&) {
    if (state.stopped == 0) return std::nullopt;
    return "an overflow at scaler.min_scale, with scaler.raise_error_at_min_scale = true";
  }
};

// ---- An overflow backs off only where overflows are frequent.

/// fairseq and metaseq: the rate of overflows is counted over the steps since the scale last moved; with
/// tolerance 0 every overflow backs off. min_scale is the peers' `threshold`, a floor that the rule applies
/// first. FP64. The peers judge overflow by the norm of all gradients.
struct OverflowRate : CountingRule<OneFactor<double>> {
  static constexpr const PolicyFamily& family = policy_families::overflow_rate;
  static constexpr auto parameters_with(std::string_view help_of_min_loss_scale) {
    return joined(CountingRule::parameters,
                  std::array{real_parameter("tolerance", 0,
                                            "share of overflows among the steps since the last change of "
                                            "scale, from which an overflow backs off",
                                            0, 1),
                             real_parameter("min_loss_scale", row_says, help_of_min_loss_scale, 0, 0x1p127)});
  }
  struct Params : CountingRule<OneFactor<double>>::Params {
    double min_scale;
    double min_loss_scale;
    double tolerance;
  };
  static Params params(const PolicyValues& values) {
    return {CountingRule::params(values), values.real("min_scale"), values.real("min_loss_scale"),
            values.real("tolerance")};
  }
  FP16LAB_HD static bool tolerates(std::int32_t overflows, std::int32_t steps, const Params& params) {
    return !(double(overflows) / double(steps) >= params.tolerance);
  }
  FP16LAB_HD static double lowered(double scale, const Params& params) {
    const double lower = params.factors.backed_off(scale);
    return lower < params.min_scale ? params.min_scale : lower;
  }
};

/// fairseq's DynamicLossScaler. An overflow after which the scale is min_loss_scale or below leaves the
/// scale and ends the run (a FloatingPointError there), also where the overflow was tolerated: a run that
/// begins there ends at its first one.
struct FairseqScaling : OverflowRate {
  static constexpr auto parameters =
      parameters_with("an overflow that would lower the scale to this or below ends the run");
  struct State {
    double scale;
    std::int32_t good_steps;
    std::int32_t since_rescale;  ///< steps since the scale moved, or was about to
    std::int32_t overflows_since_rescale;
    std::int32_t stopped;
  };
  static_assert(sizeof(State) == 24);
  static State initial(const Params& params) { return {params.initial_scale, 0, 0, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (state.stopped != 0) return;
    ++state.since_rescale;
    if (observation.found_inf) {
      state.good_steps = 0;
      ++state.overflows_since_rescale;
      double lower = state.scale;
      if (!tolerates(state.overflows_since_rescale, state.since_rescale, params)) {
        state.since_rescale = 0;
        state.overflows_since_rescale = 0;
        lower = lowered(state.scale, params);
      }
      if (lower <= params.min_loss_scale)  // asked of every overflow, also of one that is tolerated
        state.stopped = 1;
      else
        state.scale = lower;
      return;
    }
    if (grows(state, params)) state.since_rescale = 0;
  }

  static std::optional<std::string> stop(const State& state, const PolicyValues& values) {
    if (state.stopped == 0) return std::nullopt;
    return "the scale would fall to scaler.min_loss_scale = " +
           std::to_string(values.real("min_loss_scale")) + " or below";
  }
};

/// metaseq's DynamicLossScaler (OPT): growth multiplies the interval too and backing off divides it, so
/// that high scales are probed rarely. A scale that would fall below min_loss_scale stays, and the run goes
/// on; the interval shrinks all the same. The peer's interval is a Python float after the first growth,
/// hence FP64 here; backing off truncates it.
struct MetaseqScaling : OverflowRate {
  static constexpr auto parameters = parameters_with("the scale stays where it would fall below this");
  struct State {
    double scale;
    double growth_interval;
    std::int64_t good_steps;  ///< since the last overflow; growth does not restart it
    std::int32_t since_rescale;
    std::int32_t overflows_since_rescale;
  };
  static_assert(sizeof(State) == 32);
  static State initial(const Params& params) {
    return {params.initial_scale, double(params.growth_interval), 0, 0, 0};
  }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    ++state.since_rescale;
    if (observation.found_inf) {
      state.good_steps = 0;
      ++state.overflows_since_rescale;
      if (tolerates(state.overflows_since_rescale, state.since_rescale, params)) return;
      state.since_rescale = 0;
      state.overflows_since_rescale = 0;
      const auto whole = static_cast<std::int64_t>(state.growth_interval / params.factors.factor);
      state.growth_interval = whole < 1 ? 1.0 : double(whole);
      const double lower = lowered(state.scale, params);
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
