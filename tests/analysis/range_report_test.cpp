// analysis/: range reports against brute force over the values themselves, suggested scales, final
// values, output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "analysis/paired_verdict.hpp"
#include "analysis/range_output.hpp"
#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/analysis/values.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Zones by comparing each scaled value with the edges in double, where all of these products are exact.
struct BruteForce {
  std::uint64_t zero = 0, infinite = 0, nan = 0, lost = 0, subnormal = 0, normal = 0, overflow = 0;
};
BruteForce count_values(const std::vector<float>& values, double factor) {
  BruteForce counts;
  for (const float value : values) {
    const double y = std::abs(static_cast<double>(value)) * factor;
    if (std::isnan(y))
      ++counts.nan;
    else if (std::isinf(value))
      ++counts.infinite;
    else if (y == 0)
      ++counts.zero;
    else if (y <= std::ldexp(1.0, -25))
      ++counts.lost;
    else if (y < std::ldexp(1.0, -14))
      ++counts.subnormal;
    else if (y < 65520)
      ++counts.normal;
    else
      ++counts.overflow;
  }
  return counts;
}

/// Values around every power of two from 2^-60 to 2^40, at the edges of FP16 and in between, and special
/// ones.
std::vector<float> edge_values(std::uint64_t seed) {
  std::vector<float> values{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65504.0f, 65519.996f, 65520.0f, -65536.0f};
  for (int e = -60; e <= 40; ++e) {
    const float p = std::ldexp(1.0f, e);
    for (const float v : {p, -p, std::nextafter(p, 0.0f), std::nextafter(p, INFINITY), 1.5f * p})
      values.push_back(v);
  }
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i)
    values.push_back(
        float_from_bits((static_cast<std::uint32_t>(random()) & 0x3fffffffu) % 0x60000000u + 0x20000000u));
  return values;
}

void expect_inside(std::uint64_t value, const CountInterval& interval, const char* zone, int k) {
  EXPECT_LE(interval.lower, value) << zone << " at 2^" << k;
  EXPECT_GE(interval.upper, value) << zone << " at 2^" << k;
}

/// The values of a tensor with one element take some hundred bytes, not the 2 kB of a histogram of counters.
TEST(RangeReportTest, MemoryOfSmallTensorsFollowsTheirValues) {
  constexpr std::size_t tensors = 20'000;
  const std::vector<FormatRange> ranges{f16};
  const std::vector<double> scales{8};
  ValueHistogram values(value_bins(ranges, scales, std::nullopt));
  const std::vector<float> one{0.25f};
  values.add(std::span<const float>(one));
  RangeReport report;
  const std::size_t before = mallinfo2().uordblks;
  for (std::size_t i = 0; i < tensors; ++i) report.add("tensor." + std::to_string(i), values, 8);
  EXPECT_LT(mallinfo2().uordblks - before, tensors * 1000);
  EXPECT_EQ(report.merged().at_scale(f16, 8).normal.lower, tensors);
}

TEST(RangeReportTest, AgreesWithBruteForceAtEveryScaleWhateverTheRecordedScale) {
  for (const int recorded : {0, 7, 16, -3}) {
    const std::vector<float> unscaled = edge_values(1);
    const std::vector<float> scaled = times_power_of_two(unscaled, recorded);
    RangeReport report;
    report.add("t", histogram_of(scaled), std::ldexp(1.0, recorded));
    for (const WhatIf& point : what_if(report.tensor("t"), f16)) {
      const BruteForce exact = count_values(unscaled, std::ldexp(1.0, point.log2_scale));
      const RangeCounts& counts = point.counts;
      EXPECT_EQ(counts.total, unscaled.size());
      EXPECT_EQ(counts.zero, exact.zero);
      EXPECT_EQ(counts.infinite, exact.infinite);
      EXPECT_EQ(counts.nan, exact.nan);
      ASSERT_TRUE(counts.lost.exact());
      EXPECT_EQ(counts.lost.lower, exact.lost) << "at 2^" << point.log2_scale;
      expect_inside(exact.subnormal, counts.subnormal, "subnormal", point.log2_scale);
      expect_inside(exact.normal, counts.normal, "normal", point.log2_scale);
      expect_inside(exact.overflow, counts.overflow, "overflow", point.log2_scale);
    }
  }
}

TEST(RangeReportTest, MergeIsAdditionAlsoAcrossRecordedScales) {
  const std::vector<float> a = edge_values(2), b = edge_values(3);
  const std::vector<float> b_scaled = times_power_of_two(b, 10);
  RangeReport report;
  report.add("x", histogram_of(a), 1.0);
  report.add("y", histogram_of(b_scaled), 1024.0);
  report.add("x", histogram_of(a), 1.0);
  EXPECT_THAT(report.tensors(), ElementsAre("x", "y"));
  std::vector<float> all = a;
  all.insert(all.end(), a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  for (const double scale : {0.5, 1.0, 4096.0}) {
    const RangeCounts counts = report.merged().at_scale(f16, scale);
    const BruteForce exact = count_values(all, scale);
    EXPECT_EQ(counts.lost.lower, exact.lost);
    EXPECT_EQ(counts.lost.upper, exact.lost);
    EXPECT_EQ(counts.total, all.size());
    expect_inside(exact.overflow, counts.overflow, "overflow", 0);
    RangeCounts sum = report.tensor("x").at_scale(f16, scale);
    sum += report.tensor("y").at_scale(f16, scale);
    EXPECT_EQ(sum.normal, counts.normal);
    EXPECT_EQ(sum.subnormal, counts.subnormal);
  }
  EXPECT_THROW(report.tensor("z"), std::invalid_argument);
  EXPECT_THROW(report.add("x", ExponentHistogram{}, 0.0), std::invalid_argument);
  EXPECT_THROW(report.add("x", ExponentHistogram{}, INFINITY), std::invalid_argument);
}

TEST(RangeReportTest, RatesDivideZonesByFiniteNonZeroValues) {
  // 4 zeros, 1 NaN, 1 lost, 2 subnormal (not at the edge), 1 normal.
  const RangeCounts counts =
      count_ranges(histogram_of({0, 0, 0, 0, NAN, 0x1p-30f, 0x1.8p-20f, 0x1.8p-20f, 1.5f}), f16, 1.0);
  const ZoneRates rates = rates_of(counts);
  EXPECT_EQ(rates.zero, 4.0 / 9);
  EXPECT_EQ(rates.nan, 1.0 / 9);
  EXPECT_EQ(rates.lost.lower, 0.25);
  EXPECT_EQ(rates.lost.upper, 0.25);
  EXPECT_EQ(rates.subnormal.middle(), 0.5);
  EXPECT_EQ(rates.normal.middle(), 0.25);
  EXPECT_EQ(rates.overflow.upper, 0.0);
  EXPECT_EQ(rates_of(RangeCounts{}).lost.upper, 0.0);
}

TEST(RangeReportTest, ExtentBoundsTheUnscaledMagnitudes) {
  ScaledHistograms gradients;
  EXPECT_TRUE(gradients.empty());
  gradients.add(histogram_of({0.0f, INFINITY}), 1.0);
  EXPECT_TRUE(gradients.empty());
  gradients.add(histogram_of({0x1.8p-20f, 0x1p-7f}), 8.0);  // unscaled 1.5 * 2^-23 and 2^-10
  EXPECT_FALSE(gradients.empty());
  EXPECT_EQ(gradients.extent().smallest, -23);
  EXPECT_EQ(gradients.extent().largest, -10);
  ScaledHistograms odd;
  odd.add(histogram_of({3.0f}), 3.0);  // 1 exactly; a scale between powers of two widens the bounds
  EXPECT_LE(odd.extent().smallest, -1);
  EXPECT_GE(odd.extent().largest, 0);
}

// ---- quality ------------------------------------------------------------------------------------

TEST(Quality, LeavesOutWhatIsNotFiniteAndCountsIt) {
  const Quality quality = quality_of(std::vector<double>{2.0, NAN, 4.0});
  EXPECT_EQ(quality.seeds, 3);
  EXPECT_EQ(quality.non_finite, 1);
  EXPECT_EQ(quality.mean, 3.0);
  EXPECT_TRUE(std::isnan(quality_of(std::vector<double>{NAN}).mean));
}

// ---- output -------------------------------------------------------------------------------------

TEST(RangeOutputTest, TableAndJson) {
  RangeReport report;
  report.add("fc1.weight", histogram_of({0.0f, 0x1p-30f, 0x1.8p-20f, 1.5f, 1.5f}), 1.0);
  const SuggestedScale suggestion = suggest_scale(report, DType::f16);
  std::ostringstream table, json;
  print_table(table, report, {DType::f16, 8.0}, suggestion);
  EXPECT_THAT(table.str(), HasSubstr("at loss scale 2^3"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("fc1.weight +5 +20\\.0 +25\\.0 +25\\.0 +50\\.0 +0\n"));
  EXPECT_THAT(table.str(), HasSubstr("\nall tensors"));
  EXPECT_THAT(table.str(), HasSubstr(suggestion.reasoning));
  write_json(json, report, {DType::f16, 8.0}, suggestion);
  EXPECT_THAT(json.str(), HasSubstr("\"tensor\": \"fc1.weight\""));
  EXPECT_THAT(json.str(), HasSubstr("\"greatest\": " + std::to_string(*suggestion.greatest)));
}

TEST(RangeOutputTest, WithoutAScaleEveryTensorIsShownAtItsOwn) {
  RangeReport report;
  const std::vector<float> values{0x1p-20f, 1.5f};  // as they were carried: one subnormal, one normal
  report.add("a", histogram_of(values), 0x1p2);
  report.add("b", histogram_of(values), 0x1p10);
  const CountInterval none{0, 0}, one{1, 1}, both{2, 2};
  for (const char* const name : {"a", "b"}) {
    const RangeCounts counts = report.tensor(name).at_scale(f16, std::nullopt);
    EXPECT_EQ(counts.lost, none) << name;
    EXPECT_EQ(counts.subnormal, one) << name;
    EXPECT_EQ(counts.normal, one) << name;
  }
  EXPECT_EQ(report.merged().at_scale(f16, std::nullopt).subnormal, both);
  EXPECT_EQ(report.tensor("b").at_scale(f16, 0x1p2).lost, one);  // 2^-28: what one scale for both would say
  EXPECT_EQ(report.tensor("b").mass_at(f16, std::nullopt).l1.lost.share(), (MassInterval{0, 0}));
  EXPECT_GT(report.tensor("b").mass_at(f16, 0x1p2).l1.lost.share().lower, 0);
  // In units of the unscaled gradients: a's 1.5 / 4 and b's 1.5 / 1024, give or take their bin.
  EXPECT_LE(report.merged().mass_at(f16, std::nullopt).l1.total.lower, 1.5 / 4 + 1.5 / 1024);
  EXPECT_GE(report.merged().mass_at(f16, std::nullopt).l1.total.upper, 1.5 / 4 + 1.5 / 1024);
  EXPECT_LT(report.merged().mass_at(f16, std::nullopt).l1.total.upper, 1);
  EXPECT_THAT(report.merged().recorded_scales(), ::testing::ElementsAre(0x1p2, 0x1p10));

  std::ostringstream table, json;
  print_table(table, report, {DType::f16}, suggest_scale(report, DType::f16));
  EXPECT_THAT(table.str(), HasSubstr("at each tensor's own loss scale"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("b +2 +0 +0 +50\\.0 +50\\.0 +0  2\\^10\n"));
  EXPECT_THAT(table.str(),
              ::testing::ContainsRegex("all tensors +4 +0 +0 +50\\.0 +50\\.0 +0  2\\^2 \\.\\. 2\\^10\n"));
  write_json(json, report, {DType::f16}, suggest_scale(report, DType::f16));
  EXPECT_THAT(json.str(), HasSubstr("\"scale\": null"));
}

}  // namespace
}  // namespace fp16lab::analysis
