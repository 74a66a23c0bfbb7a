// Policies that decide by the counts of gradients: openseq2seq-logmax, popart and lost-mass, on counts by
// hand.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/policies/gradient_range.hpp"
#include "engine/amp/policies/openseq2seq_logmax.hpp"
#include "engine/amp/policy.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradientStatistics;
using amp::ScalePolicy;
using amp::ScalerOptions;

/// `count` values in (2^e, 2^(e+1)] for each pair.
ExponentHistogram counts(const std::map<int, std::uint64_t>& bins) {
  ExponentHistogram histogram;
  for (const auto& [e, count] : bins)
    histogram.bins[static_cast<std::size_t>(e - ExponentHistogram::min_exponent)] = count;
  return histogram;
}

/// A policy fed by hand.
struct Fed {
  explicit Fed(const ScalerOptions& options)
      : policy(amp::make_scale_policy(options)), step(policy.initial) {}
  /// Weight gradients as given, of the scaled values; returns log2 of the next scale.
  double see(const GradientStatistics& statistics) {
    amp::advance(policy, step, {.found_inf = false, .statistics = &statistics});
    return std::log2(step.scale);
  }
  double good(const std::map<int, std::uint64_t>& bins) {
    return see({.weight = counts(bins), .activation = {}});
  }
  double overflow(const std::map<int, std::uint64_t>& bins) {
    const GradientStatistics statistics{.weight = counts(bins), .activation = {}};
    amp::advance(policy, step, {.found_inf = true, .statistics = &statistics});
    return std::log2(step.scale);
  }
  double uncounted(bool found_inf) {
    amp::advance(policy, step, {.found_inf = found_inf, .statistics = nullptr});
    return std::log2(step.scale);
  }
  double log2() const { return std::log2(step.scale); }

  ScalePolicy policy;
  StepState step;
};

TEST(GradientRange, TheUpperEdgeOfTheHighestBin) {
  EXPECT_EQ(amp::upper_exponent(ExponentHistogram{}), amp::no_magnitude);
  ExponentHistogram zeros;
  zeros.zero = 7;
  zeros.nan = zeros.infinite = 1;
  EXPECT_EQ(amp::upper_exponent(zeros), amp::no_magnitude);
  for (const int e : {-127, -126, -25, 0, 15, 127})
    EXPECT_EQ(amp::upper_exponent(counts({{-127, 3}, {e, 1}})), e + 1);
  EXPECT_EQ(
      amp::upper_exponent(GradientStatistics{.weight = counts({{3, 1}}), .activation = counts({{5, 1}})}), 6);
  EXPECT_EQ(amp::upper_exponent(GradientStatistics{.weight = counts({{3, 1}}), .activation = {}}), 4);
  for (const double scale : {0x1p-126, 0x1p127, 1.0, 1.5, 65535.0, 65536.0})
    EXPECT_EQ(amp::floor_log2(scale), static_cast<int>(std::floor(std::log2(scale))));
}

// ---- openseq2seq-logmax ----

TEST(LogMaxPolicy, LogAndPowerAreAccurateAndExactForPowersOfTwo) {
  for (int e = -126; e <= 127; ++e) {
    EXPECT_EQ(amp::LogMaxScaling::log2_of(std::ldexp(1.0, e)), e);
    EXPECT_EQ(amp::LogMaxScaling::power_of_two_of(e), std::ldexp(1.0, e));
  }
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponents(-126, 127);
  for (int i = 0; i < 10000; ++i) {
    const double y = exponents(random);
    // The header promises 2^-50; glibc is within an ulp, 2^-52.
    EXPECT_NEAR(amp::LogMaxScaling::power_of_two_of(y) / std::exp2(y), 1.0, 0x1p-49);
    EXPECT_NEAR(amp::LogMaxScaling::log2_of(std::exp2(y)), y, (1 + std::abs(y)) * 0x1p-49);
  }
  EXPECT_EQ(amp::LogMaxScaling::power_of_two_of(1e9), 0x1p127);
  EXPECT_EQ(amp::LogMaxScaling::power_of_two_of(-1e9), 0x1p-126);
}

/// The rule as the peer has it, in the words of its paper: averages by sums over all past steps.
double logmax_by_hand(const std::vector<double>& xs, double beta1, double beta2, double deviations,
                      double log_max) {
  double mean = 0, slow = 0, square = 0, weight1 = 0, weight2 = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double age = static_cast<double>(xs.size() - 1 - i);
    mean += std::pow(beta1, age) * xs[i];
    weight1 += std::pow(beta1, age);
    slow += std::pow(beta2, age) * xs[i];
    square += std::pow(beta2, age) * xs[i] * xs[i];
    weight2 += std::pow(beta2, age);
  }
  const double variance = square / weight2 - slow / weight2 * (slow / weight2);
  return log_max - (mean / weight1 + deviations * std::sqrt(std::max(variance, 0.0)));
}

TEST(LogMaxPolicy, FollowsItsRule) {
  for (const double log_max : {16.0, 12.5}) {
    Fed fed({.policy = "openseq2seq-logmax",
             .parameters = {{"log_max", log_max},
                            {"max_scale", 0x1p100},
                            {"min_scale", 0},
                            {"beta1", 0.9},
                            {"beta2", 0.95},
                            {"overflow_std_dev", 2}}});
    EXPECT_EQ(fed.step.scale, 1.0);
    std::vector<double> xs;
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
      if (i % 23 == 11) {
        xs.push_back(log_max);
        fed.overflow({{3, 5}});
      } else {
        const int e = -10 + static_cast<int>(random() % 7);
        xs.push_back(static_cast<double>(e + 1) - fed.log2());  // what is counted carries S
        fed.good({{e, 5}, {e - 4, 100}});
      }
      // xs are differences of logarithms by glibc; S is rounded to FP32, 2^-24 of it, 1.5 2^-24 of its
      // logarithm. The variance is a difference of squares below 2^10 in FP64: sigma is off by at most
      // sqrt(2^10 2^-50).
      EXPECT_NEAR(fed.log2(), logmax_by_hand(xs, 0.9, 0.95, 2, log_max), 0x1p-18) << i;
    }
  }
}

TEST(LogMaxPolicy, TheFirstStepPutsItsLargestGradientAtLogMax) {
  Fed fed({.policy = "openseq2seq-logmax"});
  EXPECT_EQ(fed.good({{5, 1}}), 10);  // at most 2^6, 16 - 6; sigma is 0
  Fed other({.policy = "openseq2seq-logmax", .parameters = {{"log_max", 14}}});
  EXPECT_EQ(other.good({{5, 1}}), 8) << "the peer has 16 in the exponent, whatever log_max is";
  EXPECT_EQ(Fed({.policy = "openseq2seq-logmax"}).good({{-30, 1}}), 14) << "its ceiling";
  EXPECT_EQ(Fed({.policy = "openseq2seq-logmax"}).good({{50, 1}}), 0) << "its floor";
}

TEST(LogMaxPolicy, StepsOfZerosDoNotPoisonTheAverages) {
  Fed fed({.policy = "openseq2seq-logmax"}), other({.policy = "openseq2seq-logmax"});
  GradientStatistics zeros;
  zeros.weight.zero = 1000;
  fed.see(zeros);
  EXPECT_EQ(fed.step.scale, 1.0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(fed.good({{-3 - i, 9}}), other.good({{-3 - i, 9}}));
    const double before = fed.step.scale;
    fed.see(zeros);
    fed.uncounted(false);
    EXPECT_EQ(fed.step.scale, before);
    EXPECT_EQ(fed.step.policy, other.step.policy);
  }
}

TEST(LogMaxPolicy, ReadsTheScaleThatTheStepUsed) {
  // With round_down the gradients carry 2^floor(log2 S), not S.
  Fed fed({.policy = "openseq2seq-logmax",
           .parameters = {{"max_scale", 0x1p60}},
           .power_of_two = amp::PowerOfTwo::round_down});
  fed.good({{2, 1}});
  fed.good({{9, 1}});
  const double used = fed.log2();
  EXPECT_EQ(used, std::floor(used));
  float state = 0;
  std::memcpy(&state, fed.step.policy.data(), sizeof(state));
  ASSERT_NE(static_cast<double>(state), fed.step.scale);
  Fed exact({.policy = "openseq2seq-logmax", .parameters = {{"max_scale", 0x1p60}}});
  exact.step = fed.step;
  fed.good({{4, 1}});
  exact.good({{4, 1}});
  EXPECT_EQ(fed.step.policy, exact.step.policy);
}

TEST(LogMaxPolicy, UnscalingIsInexact) {
  EXPECT_TRUE(amp::inexact_unscaling({.policy = "openseq2seq-logmax"}).has_value());
  EXPECT_FALSE(
      amp::inexact_unscaling({.policy = "openseq2seq-logmax", .power_of_two = amp::PowerOfTwo::round_down})
          .has_value());
  EXPECT_FALSE(amp::inexact_unscaling({.policy = "lost-mass"}).has_value());
  EXPECT_FALSE(amp::inexact_unscaling({.policy = "popart"}).has_value());
}

// ---- popart ----

TEST(PopartPolicy, AFullUpperBinReducesAnEmptyOneRaises) {
  Fed fed({.policy = "popart", .initial_scale = 1024});
  EXPECT_EQ(fed.good({{-5, 1000}, {11, 1}}), 11) << "(2048, 4096] is below the edge";
  // The edge is 8188: whole bins count, so (4096, 8192] is above it.
  EXPECT_EQ(fed.good({{-5, 1000}, {12, 1}}), 10);
  EXPECT_EQ(fed.good({{-5, 1000}, {30, 1}}), 9);
  EXPECT_EQ(fed.good({{-5, 1000}}), 10);
  // 1 of 10^7 is the threshold itself, which is no excess.
  EXPECT_EQ(fed.good({{-5, 9999999}, {12, 1}}), 11);
  EXPECT_EQ(fed.good({{-5, 9999998}, {12, 1}}), 10);
}

TEST(PopartPolicy, CountsZerosBelowAndWhatIsNotFiniteAbove) {
  Fed fed({.policy = "popart", .initial_scale = 1024});
  GradientStatistics statistics{.weight = counts({{12, 1}}), .activation = {}};
  statistics.activation.zero = 9999999;
  EXPECT_EQ(fed.see(statistics), 11);
  statistics.activation.infinite = 1;
  EXPECT_EQ(fed.see(statistics), 10);
  EXPECT_EQ(fed.uncounted(true), 9);
  EXPECT_EQ(fed.uncounted(false), 9) << "nothing is known";
  EXPECT_EQ(fed.overflow({{-5, 1000000000}}), 8);
}

TEST(PopartPolicy, SteadyGradientsOscillateButForTheDeadBand) {
  // At S = 2^k the largest gradient lies in (2^(k+1), 2^(k+2)]: below the edge up to k = 10.
  const auto trace = [](const ScalerOptions& options) {
    Fed fed(options);
    std::vector<double> all;
    for (int i = 0; i < 8; ++i) {
      const int k = static_cast<int>(fed.log2());
      all.push_back(fed.good({{k - 20, 1000}, {k + 1, 3}}));
    }
    return all;
  };
  EXPECT_THAT(trace({.policy = "popart", .initial_scale = 512}),
              testing::ElementsAre(10, 11, 10, 11, 10, 11, 10, 11));
  EXPECT_THAT(trace({.policy = "popart", .initial_scale = 512, .parameters = {{"dead_band", 1}}}),
              testing::Each(10));
}

TEST(PopartPolicy, DecidesOnceAPeriodByWhatWasCountedInIt) {
  Fed fed({.policy = "popart", .initial_scale = 1024, .parameters = {{"update_period", 3}}});
  EXPECT_EQ(fed.good({{0, 10}}), 10);
  EXPECT_EQ(fed.good({{13, 10}}), 10);
  EXPECT_EQ(fed.good({{0, 10}}), 9);
  EXPECT_EQ(fed.good({{0, 10}}), 9);
  EXPECT_EQ(fed.good({{0, 10}}), 9);
  EXPECT_EQ(fed.good({{0, 10}}), 10);
}

// ---- lost-mass ----

constexpr int lost = -30;  ///< a bin whose values become zero

TEST(LostMassPolicy, GoesUpForMeasuredLossToItsHeadroomAtOnce) {
  // At most 2^10 of 2^16: 6 binades of room, 2 are to stay.
  EXPECT_EQ(Fed({.policy = "lost-mass"}).good({{9, 10}, {lost, 1}}), 20);
  EXPECT_EQ(Fed({.policy = "lost-mass", .parameters = {{"headroom_bits", 5}}}).good({{9, 10}, {lost, 1}}),
            17);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).good({{9, 10}}), 16) << "nothing is lost";
  EXPECT_EQ(Fed({.policy = "lost-mass"}).good({{13, 10}, {lost, 1000000}}), 16)
      << "no room: 14, and 2 are to stay";
  // (2^-26, 2^-25] is lost as a whole, (2^-25, 2^-24] is not: the tie goes to zero.
  EXPECT_EQ(Fed({.policy = "lost-mass"}).good({{9, 10}, {-26, 1}}), 20);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).good({{9, 10}, {-25, 1}}), 16);
  // Activations count too.
  EXPECT_EQ(Fed({.policy = "lost-mass"})
                .see({.weight = counts({{4, 1}}), .activation = counts({{9, 10}, {lost, 1}})}),
            20);
}

TEST(LostMassPolicy, ToleratesATargetByMassNotByNumber) {
  const ScalerOptions tolerant{.policy = "lost-mass", .parameters = {{"target_lost_mass", 0x1p-24}}};
  // 10^6 values of at most 2^-29 beside one above 2^9: at most 2^20 2^-29 / 2^9 = 2^-18 > 2^-24.
  EXPECT_EQ(Fed(tolerant).good({{9, 1}, {lost, 1000000}}), 20);
  EXPECT_EQ(Fed(tolerant).good({{9, 1}, {lost, 10000}}), 16) << "at most 2^14 2^-29 2^-9 = 2^-24";
}

TEST(LostMassPolicy, ComesDownBeforeAnOverflow) {
  Fed fed({.policy = "lost-mass"});
  EXPECT_EQ(fed.good({{14, 1}}), 16) << "at most 2^15: 1 of 2 binades left, the dead band";
  EXPECT_EQ(fed.good({{15, 1}}), 14) << "up to 2^16: back to 2 binades";
  EXPECT_EQ(fed.good({{13, 1}, {lost, 5}}), 14)
      << "the same gradients, 2 binades lower: it rests, loss or not";
  Fed strict({.policy = "lost-mass", .parameters = {{"dead_band", 0}}});
  EXPECT_EQ(strict.good({{14, 1}}), 15);
}

TEST(LostMassPolicy, BacksOffByTheKnownExcess) {
  // (2^19, 2^20] before the rounding: 5 binades take it to 2^15, the last that is finite as a whole.
  EXPECT_EQ(Fed({.policy = "lost-mass"}).overflow({{19, 1}}), 11);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).overflow({{15, 1}}), 15);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).overflow({{3, 1}}), 15) << "what overflowed was not seen";
  EXPECT_EQ(Fed({.policy = "lost-mass"}).overflow({}), 15);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).uncounted(true), 15);
  EXPECT_EQ(Fed({.policy = "lost-mass"}).uncounted(false), 16);
  // And does not go up again while it remembers: 1 binade of room is left after it.
  Fed fed({.policy = "lost-mass", .parameters = {{"window", 4}}});
  EXPECT_EQ(fed.overflow({{19, 1}}), 11);
  std::vector<double> after;
  for (int i = 0; i < 12; ++i) {
    const int k = static_cast<int>(fed.log2());
    after.push_back(fed.good({{k - 10, 10}, {k - 50, 1}}));  // at most 2^(k-9): a peak of -9
  }
  // The peak is 2^4 at first and loses a binade every 4 steps. At 2^11 it leaves 1, 2, then 3 binades of
  // room: after the 8th step S goes up by the one too many, after the 12th again.
  EXPECT_THAT(after, testing::ElementsAre(11, 11, 11, 11, 11, 11, 11, 12, 12, 12, 12, 13));
}

TEST(LostMassPolicy, ForgetsAPeakByABinadeAWindow) {
  Fed fed({.policy = "lost-mass", .parameters = {{"window", 3}}});
  // A peak of 2^-2 at S = 2^16, then gradients of at most 2^-10 with losses.
  EXPECT_EQ(fed.good({{13, 1}}), 16);
  std::vector<double> scales;
  for (int i = 0; i < 9; ++i) {
    const int k = static_cast<int>(fed.log2());
    scales.push_back(fed.good({{k - 11, 5}, {-40, 1}}));
  }
  EXPECT_THAT(scales, testing::ElementsAre(16, 16, 17, 17, 17, 18, 18, 18, 19));
  // A larger one is followed at once.
  EXPECT_EQ(fed.good({{17, 1}}), 14 - (18 - 19));
}

TEST(LostMassPolicy, RestsOnSteadyGradientsAndOnZeros) {
  Fed fed({.policy = "lost-mass"});
  for (int i = 0; i < 1000; ++i) {
    const int k = static_cast<int>(fed.log2());
    EXPECT_EQ(fed.good({{k - 9, 3}, {k - 60, 4}}), 22) << i;  // at most 2^-8, so 2^14 at 2^22
  }
  GradientStatistics zeros;
  zeros.weight.zero = zeros.activation.zero = 10;
  const auto before = fed.step.policy;
  EXPECT_EQ(fed.see(zeros), 22);
  EXPECT_EQ(fed.uncounted(false), 22);
  EXPECT_EQ(fed.step.policy, before);
}

TEST(LostMassPolicy, HasAFloorACeilingAndOnlyPowersOfTwo) {
  Fed fed({.policy = "lost-mass"});
  for (int i = 0; i < 200; ++i) fed.uncounted(true);
  EXPECT_EQ(fed.log2(), -24);
  Fed small({.policy = "lost-mass"});
  EXPECT_EQ(small.good({{-120, 2}, {-126, 2}}), 39);
  EXPECT_EQ(small.overflow({{127, 1}}), -24);
  EXPECT_EQ(Fed({.policy = "lost-mass", .initial_scale = 1000}).log2(), 9);
  std::mt19937 random(5);
  Fed wild({.policy = "lost-mass", .parameters = {{"min_scale", 0}, {"max_scale", 0}, {"window", 2}}});
  for (int i = 0; i < 5000; ++i) {
    const auto bin = [&] { return static_cast<int>(random() % 255) - 127; };
    const double next =
        random() % 3 == 0 ? wild.overflow({{bin(), 1}}) : wild.good({{bin(), 1}, {bin(), 2}, {bin(), 3}});
    ASSERT_EQ(next, std::floor(next));
    ASSERT_TRUE(amp::is_usable_scale(wild.step.scale));
  }
}

TEST(StatisticsPolicies, ParametersAreChecked) {
  const auto message = [](const ScalerOptions& options) -> std::string {
    try {
      amp::make_scale_policy(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.policy = "lost-mass", .parameters = {{"headroom_bits", 0}}}),
              testing::HasSubstr("headroom_bits"));
  EXPECT_THAT(message({.policy = "lost-mass", .parameters = {{"target_lost_mass", 1}}}),
              testing::HasSubstr("target_lost_mass"));
  EXPECT_THAT(message({.policy = "popart", .parameters = {{"bin_edge_location", 2}}}),
              testing::HasSubstr("bin_edge_location"));
  EXPECT_THAT(message({.policy = "openseq2seq-logmax", .parameters = {{"beta1", 1}}}),
              testing::HasSubstr("beta1"));
  for (const char* const name : {"lost-mass", "popart", "openseq2seq-logmax"})
    EXPECT_EQ(message({.policy = name}), "accepted");
}

// ---- other formats ----

TEST(StatisticsPolicies, TakeTheRangeOfTheFormatInUse) {
  const FormatRange bf16 = range_of(DType::bf16);
  const auto in_bf16 = [&](const std::map<int, std::uint64_t>& bins) {
    return GradientStatistics{.weight = counts(bins), .activation = {}, .range = bf16};
  };
  // Up to 2^20 at S = 2^30, and some that FP16 would lose: 108 binades of room.
  const std::map<int, std::uint64_t> bins{{19, 5}, {-30, 5}};
  Fed lost_mass({.policy = "lost-mass", .initial_scale = 0x1p30});
  EXPECT_EQ(lost_mass.see(in_bf16(bins)), 30);
  EXPECT_EQ(Fed({.policy = "lost-mass", .initial_scale = 0x1p30}).good(bins),
            24);  // 2^14 is 2 binades below 2^16
  // Beyond: the largest within 2^128 comes down to where 2 binades are free, an overflow by the known excess.
  EXPECT_EQ(Fed({.policy = "lost-mass", .initial_scale = 0x1p30}).see(in_bf16({{127, 1}})), 28);
  Fed overflowed({.policy = "lost-mass", .initial_scale = 0x1p30});
  const GradientStatistics top = in_bf16({{127, 1}});
  amp::advance(overflowed.policy, overflowed.step, {.found_inf = true, .statistics = &top});
  EXPECT_EQ(overflowed.log2(), 29);
  // BF16 loses values at or below 2^-134: then S goes up to 2 binades below the end.
  EXPECT_EQ(Fed({.policy = "lost-mass", .initial_scale = 0x1p-10}).see(in_bf16({{-135, 1}, {-100, 1}})), 39)
      << "its ceiling";
  EXPECT_EQ(Fed({.policy = "lost-mass", .initial_scale = 0x1p-10}).see(in_bf16({{-134, 1}, {-100, 1}})), -10);

  Fed popart({.policy = "popart", .initial_scale = 0x1p30});
  EXPECT_EQ(popart.see(in_bf16(bins)), 31);
  EXPECT_EQ(popart.see(in_bf16({{124, 1}})), 30);  // its bin ends at 2^125, beyond 2^125 - 2^117
  EXPECT_EQ(popart.see(in_bf16({{123, 1}})), 31);
  EXPECT_EQ(Fed({.policy = "popart", .initial_scale = 0x1p30}).good(bins), 29);

  const ScalerOptions logmax{.policy = "openseq2seq-logmax", .parameters = {{"max_scale", 0x1p127}}};
  EXPECT_EQ(Fed(logmax).see(in_bf16({{5, 1}})), 122);  // at most 2^6, 128 - 6
  EXPECT_EQ(Fed(logmax).good({{5, 1}}), 10);
}

}  // namespace
}  // namespace fp16lab::engine::test
