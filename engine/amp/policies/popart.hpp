// Graphcore's automatic loss scaling: a histogram of two bins decides, and never needs an overflow.
//
// The edge is at bin_edge_location x the format's largest number: 65504 in FP16. Every update_period steps,
// with the gradients (weights and activations) counted since the last decision: if more than
// threshold_upper_count_proportion of them are above the edge, S is multiplied by backoff_factor, otherwise
// by growth_factor. (The text of the peer's header has it the other way round; its code does this.)
//
//   * Counts are those of whole binades. If the edge cuts one, all of it counts as above the edge: an upper
//     bound of the share, on the safe side. The default edge, 8188, cuts (4096, 8192], so it acts as 4096
//     would.
//   * Zeros are below the edge. Inf and NaN are above it, and a step that was skipped counts as above too.
//   * The peer has no dead band: with steady gradients S goes up and down in turn. With dead_band = b > 0, S
//     grows only if no more than the threshold would be above the edge at 2^b S as well; b of at least
//     log2(growth_factor) lets S rest.
// S is FP32.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/amp/policies/gradient_range.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct PopartScaling {
  static constexpr const PolicyFamily& family = policy_families::statistics;
  static constexpr std::array parameters = {
      initial_scale_parameter("scale of the first step: the peer's own factor times the user's scale"),
      growth_factor_parameter(),
      backoff_factor_parameter(),
      real_parameter("bin_edge_location", 0.125,
                     "edge between the two bins, as a part of the format's largest number", 0x1p-24, 1),
      real_parameter("threshold_upper_count_proportion", 1e-7,
                     "share of gradients that may lie above the edge", 0, 1),
      count_parameter("update_period", 1, "steps from decision to decision"),
      count_parameter("dead_band", 0,
                      "binades below the edge that must be free for S to grow; 0: none, as the peer", 0, 40)};
  static constexpr bool wants_statistics = true;

  struct Params {
    float initial_scale = 1.0f;
    float growth_factor = 2.0f;
    float backoff_factor = 0.5f;
    std::int32_t update_period = 1;
    double threshold = 1e-7;
    double edge = 0.125;  ///< as a part of the largest number
    std::int32_t dead_band = 0;
    std::uint32_t unused = 0;
  };
  struct State {
    float scale = 1.0f;
    std::uint32_t steps = 0;  ///< since the last decision
    std::uint64_t all = 0;    ///< gradients counted since then
    std::uint64_t upper = 0;  ///< those above the edge
    std::uint64_t full = 0;   ///< those above 2^-dead_band times the edge
    std::uint64_t overflows = 0;
  };
  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.f32("initial_scale"),
            .growth_factor = values.f32("growth_factor"),
            .backoff_factor = values.f32("backoff_factor"),
            .update_period = values.count("update_period"),
            .threshold = values.real("threshold_upper_count_proportion"),
            .edge = values.real("bin_edge_location"),
            .dead_band = values.count("dead_band")};
  }
  static State initial(const Params& params) { return {.scale = params.initial_scale}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.statistics != nullptr) {
      // Bin e = (2^e, 2^(e+1)] reaches above the edge if 2^(e+1) does: from the one with 2^e <= edge <
      // 2^(e+1) on.
      const int upper_bin = floor_log2(params.edge * observation.statistics->range.largest());
      add(state, upper_bin, upper_bin - params.dead_band, observation.statistics->weight);
      add(state, upper_bin, upper_bin - params.dead_band, observation.statistics->activation);
    }
    if (observation.found_inf) ++state.overflows;
    if (++state.steps < static_cast<std::uint32_t>(params.update_period)) return;
    if (state.overflows > 0 || exceeds(state.upper, state.all, params.threshold)) {
      state.scale *= params.backoff_factor;
    } else if (state.all > 0 && !exceeds(state.full, state.all, params.threshold)) {
      state.scale *= params.growth_factor;
    }
    state = {.scale = state.scale};
  }

 private:
  /// Counts are above the edge from upper_bin on, and at S times 2^dead_band from full_bin on.
  FP16LAB_HD static void add(State& state, int upper_bin, int full_bin, const ExponentHistogram& histogram) {
    std::uint64_t finite = 0;
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
      const std::uint64_t count = histogram.at(e);
      finite += count;
      if (e >= upper_bin) state.upper += count;
      if (e >= full_bin) state.full += count;
    }
    const std::uint64_t beyond = histogram.infinite + histogram.nan;
    state.upper += beyond;
    state.full += beyond;
    state.all += finite + histogram.zero + beyond;
  }
  /// part / all > threshold. Counts below 2^53 are exact.
  FP16LAB_HD static bool exceeds(std::uint64_t part, std::uint64_t all, double threshold) {
    return static_cast<double>(part) > threshold * static_cast<double>(all);
  }
};
static_assert(std::is_trivially_copyable_v<PopartScaling::State>);
static_assert(sizeof(PopartScaling::State) == 2 * 4 + 4 * 8);  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
