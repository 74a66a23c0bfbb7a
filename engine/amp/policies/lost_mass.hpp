// lost-mass, our own rule: S goes up because gradients are measured to be lost, and down before they
// overflow.
//
// What it optimises. A loss scale can do two kinds of harm. Too low, and gradients become zero: what that
// costs is their mass, the part of the L1 norm that vanishes, not their number (Micikevicius et al. 2018 lose
// half of the non-zero values of a detector at S = 8, and nothing else). Too high, and one value overflows:
// then the whole step is lost, all of its mass. So a step's mass is put first and its smallest values second:
// S is as high as the headroom allows, and no overflow is needed to find out how high that is, because the
// counts of every step show it. Rules that count good steps (torch and its family) learn the upper end by
// overflowing into it, once in growth_interval steps, forever.
//
// In binades: S = 2^k, all magnitudes of the step, times S, are at most 2^top (upper edge of the highest bin,
// so up to one binade too much: the safe side).
//   peak      the largest top - k of late: it follows a larger one at once, and comes down by one binade
//             after every `window` good steps that stayed below it. So a spike is remembered longer the
//             higher it was.
//   room      16 - (peak + k): binades from the peak to 2^16, where FP16 ends (65504 = 2^16 - 2^5); 128 in
//             BF16
//
//   overflow  k goes down by the known excess: what takes the largest finite value seen before the rounding
//             to 2^15, the last binade that is finite as a whole; by 1 at least. Values after the first
//             overflow are infinite before they are rounded, and show nothing, so this may need a second
//             step. With scaler.rescue it costs none.
//   down      room < headroom_bits - dead_band: k is set for room = headroom_bits. Nothing has overflowed
//             yet.
//   up        room > headroom_bits, and more than target_lost_mass of the L1 norm of the weight gradients, or
//             of the others, was lost in this step: k is set for room = headroom_bits at once. Each binade
//             loses less, and a binade costs nothing but headroom, so there is no reason to go there slowly.
//   else      S rests. All zero, or nothing counted: nothing is known, and S rests too.
// Up and down cannot follow each other on the same peak: after each the room is headroom_bits.
//
// Why these numbers.
//   initial_scale 2^16     as torch, so that the first steps of both are the same.
//   headroom_bits 2        the largest gradient may grow to 4 times the peak from one step to the next. On
//                          recorded runs of a classifier, an autoencoder, an LSTM and a transformer (O1, each
//                          step counted) 2 and 3 overflow never, 1 does not either but is a single factor of
//                          2 away; 2 loses half of 3.
//   dead_band 1            S comes down when the peak reaches the last binade.
//   window 64              16 to 128 differ little there; a scale that has come down is back after that many
//                          steps, not after 2000.
//   target_lost_mass 0     whatever can be saved without using headroom is saved. 2^-24, below which a loss
//                          does not show in an FP32 sum, makes S move less.
//   min_scale 2^-24        there a gradient of 1 is the smallest subnormal. What overflows at that scale is
//                          no matter of scaling, and the diagnosis of the run says so.
//   max_scale 2^39         the smallest FP16 number divided by it is 2^-63, whose square, Adam's second
//                          moment, is the smallest normal FP32 number. Vanishing gradients lead no further.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/amp/policies/gradient_range.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/histogram/range_mass.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct LostMassScaling {
  static constexpr const PolicyFamily& family = policy_families::statistics;
  static constexpr std::array parameters = {
      initial_scale_parameter("scale of the first step; the power of two at or below is taken"),
      real_parameter("target_lost_mass", 0,
                     "share of the L1 norm that may be lost without the scale going up", 0, 1,
                     maximum_excluded),
      count_parameter("headroom_bits", 2, "binades kept free above the largest gradient of late", 1, 30),
      count_parameter("dead_band", 1,
                      "binades of the head-room that may be used up before the scale comes down", 0, 40),
      count_parameter("window", 64, "good steps below the peak until it is taken one binade lower")};
  static constexpr bool wants_statistics = true;

  struct Params {
    double target_lost_mass = 0;
    float initial_scale = 65536.0f;
    std::int32_t headroom_bits = 2;
    std::int32_t dead_band = 1;
    std::int32_t window = 64;
  };
  struct State {
    double scale = 65536;
    std::int32_t peak =
        no_magnitude;        ///< log2 of the largest unscaled gradient of late; no_magnitude: none yet
    std::int32_t below = 0;  ///< good steps in a row that stayed below it
  };
  static Params params(const PolicyValues& values) {
    return {.target_lost_mass = values.real("target_lost_mass"),
            .initial_scale = values.f32("initial_scale"),
            .headroom_bits = values.count("headroom_bits"),
            .dead_band = values.count("dead_band"),
            .window = values.count("window")};
  }
  static State initial(const Params& params) {
    return {.scale = exact_power_of_two(floor_log2(static_cast<double>(params.initial_scale)))};
  }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    // A guard may have cut the scale to no power of two: then top - k is too large by less than a binade.
    const int k = floor_log2(observation.statistics == nullptr ? state.scale : observation.scale);
    const int top =
        observation.statistics == nullptr ? no_magnitude : upper_exponent(*observation.statistics);
    const int end = end_exponent(range_of(observation));
    if (observation.found_inf) {
      const int excess = top == no_magnitude ? 1 : top - (end - 1);
      // Something was above 2^end, seen or not.
      raise_peak(state, (top > end ? top : end) - k);
      state.scale = scale_of(k - (excess > 1 ? excess : 1));
      return;
    }
    if (top == no_magnitude) return;
    if (!raise_peak(state, top - k) && ++state.below >= params.window) {
      --state.peak;
      state.below = 0;
    }
    const int room = end - (state.peak + k);
    const bool near = room < params.headroom_bits - params.dead_band;
    if (near || (room > params.headroom_bits && loses(*observation.statistics, params.target_lost_mass)))
      state.scale = scale_of(end - params.headroom_bits - state.peak);
  }

 private:
  FP16LAB_HD static bool raise_peak(State& state, int magnitude) {
    if (magnitude < state.peak) return false;
    state.peak = magnitude;
    state.below = 0;
    return true;
  }
  FP16LAB_HD static double scale_of(int k) { return exact_power_of_two(k < -126 ? -126 : k > 127 ? 127 : k); }
  /// By the upper end of what the counts allow. Each of the two has units of its own, so their masses are not
  /// added; if neither loses more than a share, their sum does not.
  FP16LAB_HD static bool loses(const GradientStatistics& statistics, double share) {
    return lost_l1_share(range_mass(statistics.weight, statistics.range, 1.0)).upper > share ||
           lost_l1_share(range_mass(statistics.activation, statistics.range, 1.0)).upper > share;
  }
};
static_assert(std::is_trivially_copyable_v<LostMassScaling::State>);
static_assert(sizeof(LostMassScaling::State) == 16);  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
