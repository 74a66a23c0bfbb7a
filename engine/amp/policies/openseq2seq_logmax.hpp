// OpenSeq2Seq's LogMax ("LogNormal" in its documentation): the largest gradient of a step is taken as
// log-normal, and the scale is put where it overflows with a chosen probability.
//
// Every step, with x = log2(largest magnitude of the unscaled weight gradients), or log_max where one is not
// finite:
//   mu      average of x with beta1, debiased
//   sigma   sqrt(max(average of x^2 - (average of x)^2, 0)), averages with beta2, debiased
//   S       2^(log_max - (mu + overflow_std_dev sigma)); 3.09 is the 0.999 quantile of the normal
//           distribution
//
// Two defects of the peer are avoided:
//   * If all gradients are zero, its x is log2(0) = -infinity, which stays in the averages forever. Such a
//     step says nothing about the size of gradients: here it leaves the averages, and S, as they are.
//   * Its exponent has the number 16, whatever log_max is. Here both are log_max.
// log_max belongs to FP16, which ends at 2^16; in another format it moves with the end (by 112 in BF16). Two
// more things differ, because more is known here:
//   * The counts give x to a binade. Its upper edge is taken, so S is up to a factor 2 lower than the peer's.
//   * The averages are FP64 (the peer's are FP32): sigma is a difference of squares of numbers that may be
//     near -20.
// S is FP32, and not rounded to a power of two: neither scaling nor unscaling is exact.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/amp/policies/gradient_range.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "numerics/elementary/elementary_detail.hpp"
#include "numerics/elementary/exponential.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct LogMaxScaling {
  static constexpr const PolicyFamily& family = policy_families::statistics;
  static constexpr std::array parameters = {
      initial_scale_parameter(),
      real_parameter("beta1", 0.99, "weight of the past in the average of log2 of the largest gradient", 0, 1,
                     maximum_excluded),
      real_parameter("beta2", 0.999, "weight of the past in the averages that sigma is made of", 0, 1,
                     maximum_excluded),
      real_parameter("overflow_std_dev", 3.09, "how many sigmas above the average must not overflow", 0,
                     1000),
      real_parameter("log_max", 16,
                     "log2 of what counts as an overflow in FP16; it moves with the end of another format",
                     -100, 100)};
  static constexpr bool wants_statistics = true;
  static constexpr bool power_of_two_scales = false;

  struct Params {
    double beta1 = 0.99;
    double beta2 = 0.999;
    double overflow_std_dev = 3.09;
    double log_max = 16;
    float initial_scale = 1.0f;
    std::uint32_t unused = 0;
  };
  struct State {
    float scale = 1.0f;
    std::uint32_t steps = 0;  ///< that the averages are of; it stays at its largest value
    double mean = 0;          ///< mean of x with beta1; like all here, not debiased
    double slow_mean = 0;     ///< mean of x with beta2
    double slow_square = 0;   ///< mean of x^2 with beta2
    double beta1_power = 1;   ///< beta1^steps
    double beta2_power = 1;
  };
  static Params params(const PolicyValues& values) {
    return {.beta1 = values.real("beta1"),
            .beta2 = values.real("beta2"),
            .overflow_std_dev = values.real("overflow_std_dev"),
            .log_max = values.real("log_max"),
            .initial_scale = values.f32("initial_scale")};
  }
  static State initial(const Params& params) { return {.scale = params.initial_scale}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    constexpr int end_of_fp16 = end_exponent(FormatRange::of<Binary16>());
    const double log_max = params.log_max + (end_exponent(range_of(observation)) - end_of_fp16);
    double x = log_max;
    if (!observation.found_inf) {
      if (observation.statistics == nullptr) return;
      const int largest = upper_exponent(observation.statistics->weight);
      if (largest == no_magnitude) return;
      x = static_cast<double>(largest) - log2_of(observation.scale);
    }
    if (state.steps != 0xffffffffu) ++state.steps;
    state.mean = average(state.mean, x, params.beta1);
    state.slow_mean = average(state.slow_mean, x, params.beta2);
    state.slow_square = average(state.slow_square, x * x, params.beta2);
    state.beta1_power *= params.beta1;
    state.beta2_power *= params.beta2;
    const double mu = state.mean / (1.0 - state.beta1_power);
    const double slow = state.slow_mean / (1.0 - state.beta2_power);
    const double variance = state.slow_square / (1.0 - state.beta2_power) - slow * slow;
    const double sigma = variance > 0.0 ? functions::square_root_f64(variance) : 0.0;
    state.scale = static_cast<float>(power_of_two_of(log_max - (mu + params.overflow_std_dev * sigma)));
  }

  /// log2 of a normal number above zero, within 2^-50 (1 + its magnitude); exact for powers of two.
  FP16LAB_HD static double log2_of(double x) {
    const elementary_detail::BalancedBinade binade = elementary_detail::balanced_binade(x);
    return binade.n +
           elementary_detail::logarithm(0.0, binade.fraction - 1.0) * elementary_detail::reciprocal_ln2;
  }
  /// 2^y within a relative 2^-50, y cut to the exponents of usable scales; exact for integers.
  FP16LAB_HD static double power_of_two_of(double y) {
    constexpr double lowest = -126.0, highest = 127.0;
    if (!(y > lowest)) return 0x1p-126;
    if (y > highest) return 0x1p127;
    const double whole = (y + elementary_detail::integer_rounder) - elementary_detail::integer_rounder;
    const elementary_detail::Exponential rest = elementary_detail::exponential(
        (y - whole) * (elementary_detail::ln2_high + elementary_detail::ln2_low));
    return exact_power_of_two(static_cast<int>(whole)) * ((1.0 + rest.fraction_less_one) * rest.power);
  }

 private:
  FP16LAB_HD static double average(double past, double x, double beta) {
    return beta * past + (1.0 - beta) * x;
  }
};
static_assert(std::is_trivially_copyable_v<LogMaxScaling::State>);
static_assert(sizeof(LogMaxScaling::State) == 2 * 4 + 5 * 8);  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
