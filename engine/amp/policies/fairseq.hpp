// fairseq's DynamicLossScaler: an overflow backs off only where overflows are frequent.
//
// Their rate is counted over the steps since the scale last moved; with tolerance 0 every overflow backs off.
// An overflow behind which the scale is min_loss_scale or below leaves the scale and ends the run (a
// FloatingPointError there), also where the overflow was tolerated: a run that begins there ends at its first
// one. min_scale is the peer's `threshold`, a floor that the rule applies first. FP64. The peer judges
// overflow by the norm of all gradients.
#pragma once

#include <optional>
#include <string>

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

constexpr PolicyParameter min_loss_scale_parameter(double fallback, std::string_view help) {
  return {.name = "min_loss_scale", .fallback = fallback, .help = help, .minimum = 0, .maximum = 0x1p127};
}

struct FairseqScaling {
  static constexpr std::string_view name = "fairseq";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow if tolerance of the steps since the last change overflowed; the run "
      "ends at an overflow after which S would be min_loss_scale or less; S *= growth_factor whenever "
      "growth_interval divides the number of steps since the last overflow";
  static constexpr std::string_view source =
      "facebookresearch/fairseq fairseq/optim/dynamic_loss_scaler.py, DynamicLossScaler";
  static constexpr PolicyParameter end_parameter =
      min_loss_scale_parameter(1e-4, "an overflow that would lower the scale to this or below ends the run");
  static constexpr std::array parameters = {
      initial_scale_parameter(32768), one_factor_parameter(2), growth_interval_parameter(2000),
      tolerance_parameter(0),         end_parameter,           finite_guard_parameter(false)};
  static constexpr bool wants_statistics = false;

  struct Params {
    double initial_scale = 32768;
    double min_scale = 0;
    double min_loss_scale = 1e-4;
    double tolerance = 0;
    OneFactor<double> factors{};
    std::int32_t growth_interval = 2000;
  };
  struct State {
    double scale = 32768;
    std::int32_t good_steps = 0;
    std::int32_t since_rescale = 0;  ///< steps since the scale moved, or was about to
    std::int32_t overflows_since_rescale = 0;
    std::int32_t stopped = 0;
  };
  static_assert(sizeof(State) == 24);

  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.real("initial_scale"),
            .min_scale = values.real("min_scale"),
            .min_loss_scale = values.real("min_loss_scale"),
            .tolerance = values.real("tolerance"),
            .factors = OneFactor<double>::of(values),
            .growth_interval = values.count("growth_interval")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0, 0, 0, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (state.stopped != 0) return;
    ++state.since_rescale;
    if (observation.found_inf) {
      state.good_steps = 0;
      ++state.overflows_since_rescale;
      const double rate = double(state.overflows_since_rescale) / double(state.since_rescale);
      double lower = state.scale;
      if (rate >= params.tolerance) {
        state.since_rescale = 0;
        state.overflows_since_rescale = 0;
        lower = params.factors.backed_off(state.scale);
        if (lower < params.min_scale) lower = params.min_scale;
      }
      if (lower <= params.min_loss_scale)  // asked of every overflow, also of one that is tolerated
        state.stopped = 1;
      else
        state.scale = lower;
      return;
    }
    if (++state.good_steps < params.growth_interval) return;
    state.scale = params.factors.grown(state.scale);
    state.good_steps = 0;
    state.since_rescale = 0;
  }

  static std::optional<std::string> stop(const State& state, const PolicySettings& values) {
    if (state.stopped == 0) return std::nullopt;
    return "the scale would fall to scaler.min_loss_scale = " +
           std::to_string(values.find("min_loss_scale")->second) + " or below";
  }
};

/// What fairseq-train makes of its options, for one process and no accumulation: 2^14 / processes /
/// update_freq steps.
struct FairseqTrainScaling : FairseqScaling {
  static constexpr std::string_view name = "fairseq-train";
  static constexpr std::string_view source =
      "facebookresearch/fairseq fairseq/dataclass/configs.py, fairseq/optim/fp16_optimizer.py";
  static constexpr std::array parameters = {
      initial_scale_parameter(128), one_factor_parameter(2), growth_interval_parameter(16384),
      tolerance_parameter(0),       end_parameter,           finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
