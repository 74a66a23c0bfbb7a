// The suggested scale, against values that are rounded one by one.
#include "analysis/suggested_scale.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <sstream>

#include "analysis/range_output.hpp"
#include "tests/analysis/values.hpp"

namespace fp16lab::analysis::suggested_scale_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

SuggestedScale of_counts(const std::vector<float>& values, DType format = DType::f16) {
  RangeReport report;
  report.add("w", histogram_of(values), 1.0);
  return suggest_scale(report, format);
}

SuggestedScale of_values(const std::vector<float>& values, DType format = DType::f16, double recorded = 1.0) {
  RangeReport report;
  add_values(
      report, "w", values, recorded,
      value_bins(std::vector<FormatRange>{range_of(format)}, std::vector<double>{recorded}, std::nullopt));
  return suggest_scale(report, format);
}

// ---- against values rounded one by one ----------------------------------------------------------------

struct Costs {
  bool overflows = false;
  double ratio = 0;  ///< ratio of the rounding errors, as in fit_limit
};

/// What a format does to the values at 2^k, by quotients with the spacing of its numbers, which FP64 holds.
Costs costs_of(const std::vector<float>& values, const FormatRange& range, int k) {
  double error = 0, plain = 0, expected = 0;
  Costs costs;
  for (const float value : values) {
    if (value == 0) continue;
    const double x = std::ldexp(static_cast<double>(value), k);
    const double spacing = std::ldexp(1.0, std::ilogb(x) + 1 - range.precision);
    const double coarse = std::max(spacing, std::ldexp(1.0, range.smallest_normal + 1 - range.precision));
    const double unlimited = std::nearbyint(x / spacing) * spacing,
                 rounded = std::nearbyint(x / coarse) * coarse;
    costs.overflows = costs.overflows || std::abs(rounded) > range.largest();
    error += (x - rounded) * (x - rounded);
    plain += (x - unlimited) * (x - unlimited);
    expected += spacing * spacing / 12;
  }
  costs.ratio = std::sqrt(error / std::max(plain, expected));
  return costs;
}

/// least and greatest, one scale after the other.
std::pair<std::optional<int>, std::optional<int>> range_of_costs(const std::vector<float>& values,
                                                                 DType format) {
  std::optional<int> least, greatest;
  for (int k = greatest_log2_scale; k >= least_log2_scale; --k) {
    const Costs costs = costs_of(values, range_of(format), k);
    if (costs.ratio <= fit_limit) least = k;
    if (!costs.overflows && !greatest) greatest = k;
  }
  return {least, greatest};
}

std::vector<float> normal(std::size_t count, double deviation, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution(0, deviation);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(distribution(random)));
  return values;
}

std::vector<float> log_uniform(std::size_t count, double low, double high, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(low, high);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(std::exp2(exponent(random))));
  return values;
}

TEST(SuggestedScaleTest, IsWhatEveryScaleInTurnGives) {
  const std::vector<std::vector<float>> all{normal(2000, 1),
                                            normal(2000, 3e-14),
                                            normal(2000, 1e30),
                                            log_uniform(500, -40, 3),
                                            log_uniform(500, -24.9, -23.2),
                                            log_uniform(9, -100, 100),
                                            {65504.0f},
                                            {65519.99f, 1},
                                            {65520.0f},
                                            {0x1p-149f},
                                            {448.0f, 464.0f},
                                            {0x1.8p-10f, 0x1.8p-40f}};
  for (const DType format : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2})
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(std::string(name_of(format)) + " of list " + std::to_string(i));
      const auto [least, greatest] = range_of_costs(all[i], format);
      const SuggestedScale exact = of_values(all[i], format), bounds = of_counts(all[i], format);
      EXPECT_EQ(exact.least, least);
      EXPECT_EQ(exact.greatest, greatest);
      // What fits by counts fits by the values.
      if (bounds.least) {
        EXPECT_GE(*bounds.least, *least);
      }
      if (bounds.greatest) {
        EXPECT_LE(*bounds.greatest, *greatest);
      }
      if (exact.fits() && exact.suggested) {
        EXPECT_LE(*exact.least, *exact.suggested);
        EXPECT_GE(*exact.greatest, *exact.suggested);
      }
    }
}

/// Values that carry a scale are judged as what they are without it.
TEST(SuggestedScaleTest, IsOfTheUnscaledGradients) {
  const std::vector<float> values = log_uniform(300, -30, -5);
  const SuggestedScale plain = of_values(values);
  const SuggestedScale scaled = of_values(times_power_of_two(values, 12), DType::f16, 4096);
  EXPECT_EQ(scaled.least, plain.least);
  EXPECT_EQ(scaled.greatest, plain.greatest);
  EXPECT_EQ(scaled.reasoning, plain.reasoning);
}

// ---- reports of users --------------------------------------------------------------------------------

/// TransformerEngine#786: gradients far below what a search up to 2^24 can save.
TEST(SuggestedScaleTest, FindsScalesFarBeyond24) {
  const std::vector<float> values = normal(20000, 3e-14);
  for (const DType format : {DType::e5m2, DType::e4m3, DType::f16}) {
    const SuggestedScale found = of_values(values, format);
    ASSERT_TRUE(found.fits()) << found.reasoning;
    EXPECT_GT(*found.suggested, 36);
    EXPECT_LT(*found.suggested, 59);
  }
  EXPECT_EQ(of_values(values, DType::bf16).needs_none, true);
}

TEST(SuggestedScaleTest, SaysWhereNoneIsNeeded) {
  const std::vector<float> values(100, 0.01f);
  const SuggestedScale bf16 = of_values(values, DType::bf16);
  EXPECT_TRUE(bf16.needs_none);
  EXPECT_EQ(bf16.suggested, 0);
  EXPECT_THAT(bf16.reasoning, StartsWith("BF16 needs no loss scale: the values fit from 2^-121 on"));
  const SuggestedScale f16 = of_counts(values);
  EXPECT_THAT(f16.reasoning, HasSubstr("Without a loss scale they fit too. Suggested: 2^"));
}

/// Log-uniform between 2^-24.9 and 2^-23.2: L1 of what becomes zero is nothing, but FP16's subnormals distort
/// the rest by a quarter.
TEST(SuggestedScaleTest, DistortionBySubnormalsDoesNotFit) {
  const SuggestedScale found = of_values(log_uniform(10000, -24.9, -23.2));
  EXPECT_GE(*found.least, 8) << "they are normal numbers only there";
  EXPECT_TRUE(found.fits());
}

// ---- sentences ----------------------------------------------------------------------------------------

TEST(SuggestedScaleTest, SaysWhichScalesFitAndHowMuchRoomIsLeft) {
  // 999 values of 1.5 * 2^-10, subnormal below 2^-4, and one that is nothing beside them. 1.5 * 2^15 is below
  // 65520.
  std::vector<float> values(999, 0x1.8p-10f);
  values.push_back(0x1.8p-40f);
  const SuggestedScale found = of_counts(values);
  EXPECT_EQ(found.least, -4);
  EXPECT_EQ(found.greatest, 25);
  EXPECT_EQ(found.suggested, 17) << "2^8 of room";
  EXPECT_EQ(found.reasoning,
            "In FP16 the values fit from 2^-4 to 2^25: nothing overflows, and rounding costs at most 1.1 "
            "times what FP16's precision costs by itself. Without a loss scale they fit too. Suggested: "
            "2^17: gradients may become 256 times as large before one overflows, and 2^21 times as small "
            "before rounding costs more.");
}

TEST(SuggestedScaleTest, NamesTheTensorsThatDecide) {
  const auto of = [](std::vector<std::pair<const char*, float>> tensors) {
    RangeReport report;
    for (const auto& [name, value] : tensors)
      report.add(name, histogram_of(std::vector<float>(100, value)), 1.0);
    return suggest_scale(report, DType::f16);
  };
  const SuggestedScale both = of({{"large", 0x1.8p-10f}, {"zero", 0.0f}, {"small", 0x1.8p-21f}});
  EXPECT_TRUE(both.fits());
  EXPECT_EQ(both.asks_most, "small");
  EXPECT_EQ(both.overflows_first, "large");
  EXPECT_THAT(both.reasoning,
              StartsWith("1 of 3 tensors holds zeros alone, such as zero, and cannot be judged: if casts "
                         "before theirs made them, they need a larger scale than these values show. In FP16 "
                         "every other tensor fits from 2^7 (small) to 2^25 (large): "));
  EXPECT_THAT(of({{"large", 0x1.8p-10f}, {"small", 0x1.8p-21f}}).reasoning,
              StartsWith("In FP16 every tensor fits from 2^7 (small) to 2^25 (large): "));
  const SuggestedScale apart = of({{"small", 0x1.8p-41f}, {"middle", 0x1.8p-20f}, {"large", 1.5f}});
  EXPECT_FALSE(apart.fits());
  EXPECT_EQ(apart.suggested, 13);
  EXPECT_THAT(
      apart.reasoning,
      StartsWith(
          "No loss scale suits every tensor in FP16: small fits only from 2^27 on, large overflows beyond "
          "2^15. Suggested: 2^13, which leaves 2 bits before the first overflow; 1 of 3 tensors do"));
  const SuggestedScale one = of_counts({0x1.8p-45f, 0x1.8p8f, 0x1.8p8f});
  EXPECT_THAT(one.reasoning, Not(HasSubstr("tensor")));
}

TEST(SuggestedScaleTest, SaysSoWhereThereIsNone) {
  RangeReport wide;
  wide.add("w", histogram_of({std::numeric_limits<float>::max()}), 0x1p-120);
  EXPECT_EQ(suggest_scale(wide, DType::f16).greatest, std::nullopt);
  EXPECT_EQ(suggest_scale(wide, DType::f16).suggested, std::nullopt);
  EXPECT_EQ(suggest_scale(wide, DType::f16).reasoning,
            "No loss scale suits FP16: a value overflows even at 2^-126.");
  RangeReport tiny;
  tiny.add("w", histogram_of({0x1p-140f}), 0x1p100);
  EXPECT_EQ(suggest_scale(tiny, DType::f16).least, std::nullopt);
  EXPECT_THAT(suggest_scale(tiny, DType::f16).reasoning,
              StartsWith("No loss scale suits FP16: the values do not fit even"));
  EXPECT_EQ(suggest_scale(RangeReport{}, DType::f16).reasoning,
            "No gradient is finite and non-zero, so no scale can be judged.");
}

TEST(SuggestedScaleTest, WhatWasInfiniteIsNoGroundForIt) {
  RangeReport report;
  report.add("fine", histogram_of({0.0f, 0.5f}), 1.0);
  report.add("burst", histogram_of({INFINITY, NAN, -INFINITY}), 1.0);
  const SuggestedScale partly = suggest_scale(report, DType::f16);
  EXPECT_THAT(partly.reasoning,
              StartsWith("This covers 2 of 5 values; the others are Inf or NaN. No loss scale can be "
                         "suggested: 1 of 2 tensors hold no finite values but zeros, such as burst."));
  EXPECT_EQ(partly.suggested, std::nullopt);
  EXPECT_EQ(partly.unknown, "burst");
  std::ostringstream table;
  print_table(table, report, {DType::f16, 1.0}, partly);
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\nburst +3 +0 +- +- +- +-  \\(2 Inf, 1 NaN\\)\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\nburst +- +- +- +- +unknown  unknown\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\nall tensors .* unknown  \n"));
  RangeReport burst;
  burst.add("burst", histogram_of({INFINITY}), 1.0);
  EXPECT_EQ(suggest_scale(burst, DType::f16).reasoning,
            "This covers 0 of 1 values; the others are Inf or NaN. No gradient is finite and non-zero, so no "
            "scale can be judged.");
}

TEST(SuggestedScaleTest, NamesTheStepThatItIsOf) {
  HistogramRow row;
  row.step = 40;
  row.tensor = "w";
  row.dtype = DType::f16;
  row.loss_scale = 1024;
  row.before = row.after = histogram_of({0x1p-10f});
  RangeReport report;
  report.add(row);
  const SuggestedScale suggestion = suggest_scale(report, DType::f16);
  EXPECT_THAT(suggestion.reasoning, StartsWith("This covers step 40 alone. "));
  EXPECT_EQ(suggestion.greatest, 35) << "unscaled it is 2^-20, and 2^15 is the largest power of two in FP16";
  EXPECT_THAT(suggestion.reasoning, HasSubstr("Suggested for step 40 alone: 2^"));
  std::ostringstream formats, table, casts;
  const std::vector<RangeView> views{{DType::f16, 4.0}};
  print_formats(formats, report, views, std::vector<SuggestedScale>{suggestion});
  EXPECT_THAT(formats.str(), HasSubstr("suggested scale (step 40 alone)\n"));
  print_table(table, report, views[0], suggestion);
  EXPECT_THAT(table.str(), HasSubstr("scales that fit (step 40 alone)\n"));
  print_casts(casts, report);
  EXPECT_THAT(casts.str(),
              HasSubstr("The casts of step 40 as they were recorded, at loss scale 2^10: of the"));
  row.step = 41;
  report.add(row);
  EXPECT_THAT(suggest_scale(report, DType::f16).reasoning, Not(HasSubstr("alone")));
}

}  // namespace
}  // namespace fp16lab::analysis::suggested_scale_test
