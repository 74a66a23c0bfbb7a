// The zones of formats read from an exponent histogram, against counting element by element.
#include "numerics/histogram/zones.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/numerics/histogram/histogram_cases.hpp"
#include "tests/numerics/histogram/zone_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::FormatZones;
using oracle::Rational;

/// Every element on its own: y = x * scale as an exact rational, and the zone by its definition.
std::array<std::uint64_t, 4> brute_force(const FormatZones& format, const std::vector<float>& values,
                                         double scale) {
  std::array<std::uint64_t, 4> zones{};
  const Rational exact_scale = oracle::rational(scale);
  for (const float x : values)
    if (x != 0 && std::isfinite(x))
      ++zones[static_cast<std::size_t>(format.zone_of(oracle::rational(std::fabs(x)) * exact_scale))];
  return zones;
}

void expect_contains(const CountInterval& interval, std::uint64_t count, const char* zone, double scale) {
  EXPECT_LE(interval.lower, count) << zone << " at " << scale;
  EXPECT_GE(interval.upper, count) << zone << " at " << scale;
}

/// Values around every edge of every zone for scales near one, and everything else now and then.
std::vector<float> zone_values() {
  std::vector<float> values = random_patterns(600, 8);
  for (int e = -30; e <= 20; ++e)
    for (const float power : {std::ldexp(1.0f, e), std::ldexp(1.5f, e)})
      for (const float x : {std::nextafter(power, 0.0f), power,
                            std::nextafter(power, std::numeric_limits<float>::infinity())})
        values.push_back(x);
  for (const float x :
       {65504.0f, 65519.996f, 65520.0f, 65535.0f, 0x1p-149f, std::numeric_limits<float>::max()})
    values.push_back(x);
  return values;
}

TEST(RangeCounts, IntervalsContainTheBruteForceCounts) {
  const std::vector<float> values = zone_values();
  std::vector<double> scales = {1.0,
                                3.0,
                                1.0 / 3.0,
                                1.0000001,
                                1.0 - 0x1p-53,
                                65520.0,
                                1e-300,
                                1e300,
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::denorm_min(),
                                0x1.0000020000001p0};
  for (int e = -140; e <= 150; e += 5) scales.push_back(std::ldexp(1.0, e));
  for (int e = -26; e <= 26; e += 2) scales.push_back(std::ldexp(1.37, e));
  const ExponentHistogram histogram = histogram_of(values);
  ExponentHistogram without = histogram;  // as older folders have it: bins alone, all subnormals in one
  for (int bin = 0; bin < ExponentHistogram::subnormal_bins; ++bin) {
    without.bins[ExponentHistogram::subnormal_bins] += without.bins[static_cast<std::size_t>(bin)];
    without.bins[static_cast<std::size_t>(bin)] = 0;
  }
  without.forget_extremes();
  for (const FormatZones& format : oracle::all_formats())
    for (const double scale : scales) {
      const auto exact = brute_force(format, values, scale);
      int exponent = 0;
      const bool power_of_two = std::frexp(scale, &exponent) == 0.5;
      for (const ExponentHistogram* const one : {&histogram, &std::as_const(without)}) {
        const RangeCounts counts = count_ranges(*one, format.range, scale);
        expect_contains(counts.lost, exact[0], format.name, scale);
        expect_contains(counts.subnormal, exact[1], format.name, scale);
        expect_contains(counts.normal, exact[2], format.name, scale);
        expect_contains(counts.overflow, exact[3], format.name, scale);
        EXPECT_EQ(counts.total, values.size());
        EXPECT_EQ(counts.zero + counts.infinite + counts.nan + one->finite_nonzero(), counts.total);
        // Only counted once among what is certain.
        EXPECT_LE(counts.lost.lower + counts.subnormal.lower + counts.normal.lower + counts.overflow.lower,
                  one->finite_nonzero());
        if (power_of_two && (one == &histogram || scale <= std::ldexp(1.0, format.range.tie_to_zero + 126))) {
          EXPECT_EQ(counts.lost, (CountInterval{exact[0], exact[0]})) << format.name << " at " << scale;
        }
        if (one != &histogram) continue;
        EXPECT_TRUE(counts.overflow.lower > 0 || counts.overflow.upper == 0)
            << format.name << " at " << scale;
        EXPECT_TRUE(counts.lost.lower > 0 || counts.lost.upper == 0) << format.name << " at " << scale;
      }
    }
}

/// Few values, so that extremes share bins with others and with each other.
TEST(RangeCounts, ExtremesNarrowTheBinsThatAnEdgeCuts) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> values;
    const auto count = 1 + random() % 4;
    for (unsigned i = 0; i < count; ++i)
      values.push_back(
          std::ldexp(1.0f + static_cast<float>(random() % 16) / 16, static_cast<int>(random() % 3)));
    const ExponentHistogram histogram = histogram_of(values);
    for (const FormatZones& format : oracle::all_formats())
      for (const int edge : {format.range.tie_to_zero, format.range.smallest_normal,
                             format.range.overflow_exponent + format.precision}) {
        const double scale = std::ldexp(round % 2 == 0 ? 1.0 : 1.3, edge - 1);
        const RangeCounts counts = count_ranges(histogram, format.range, scale);
        const auto exact = brute_force(format, values, scale);
        const CountInterval found[] = {counts.lost, counts.subnormal, counts.normal, counts.overflow};
        for (std::size_t zone = 0; zone < 4; ++zone) {
          expect_contains(found[zone], exact[zone], format.name, scale);
          // The smallest and the greatest are known one by one: two values leave nothing open.
          if (count <= 2) {
            EXPECT_TRUE(found[zone].exact()) << format.name << ' ' << zone << " at " << scale;
          }
        }
        EXPECT_TRUE(counts.overflow.lower > 0 || counts.overflow.upper == 0);
      }
  }
}

/// The same against the conversion itself: lost is what narrow turns into zero, overflow what it turns into
/// infinity or, where there is none, NaN.
template <class F>
void expect_agreement_with_narrowing() {
  const std::vector<float> values = zone_values();
  const ExponentHistogram histogram = histogram_of(values);
  for (int e = -24; e <= 24; ++e)
    for (const double significand :
         {1.0, 1.25, 1.0 + 0x1p-20}) {  // at most 21 bits: the products are exact in FP64
      const double scale = std::ldexp(significand, e);
      std::uint64_t lost = 0;
      std::uint64_t overflow = 0;
      for (const float x : values) {
        if (x == 0 || !std::isfinite(x)) continue;
        const auto y = convert<F>(SmallFloat<Binary64>::from_bits(bits_of(static_cast<double>(x) * scale)));
        lost += y.is_zero() ? 1u : 0u;
        overflow += y.is_finite() ? 0u : 1u;
      }
      const RangeCounts counts = count_ranges(histogram, FormatRange::of<F>(), scale);
      expect_contains(counts.lost, lost, "lost", scale);
      expect_contains(counts.overflow, overflow, "overflow", scale);
      EXPECT_EQ(counts.overflow.lower > 0, overflow > 0) << scale;
      if (significand == 1.0) {
        EXPECT_EQ(counts.lost, (CountInterval{lost, lost})) << scale;
      }
    }
}

TEST(RangeCounts, AgreeWithNarrowing) {
  expect_agreement_with_narrowing<Binary16>();
  expect_agreement_with_narrowing<BrainFloat16>();
  expect_agreement_with_narrowing<Fp8E4M3>();
  expect_agreement_with_narrowing<Fp8E5M2>();
}

TEST(RangeCounts, EdgesOneByOne) {
  const auto zones = [](float x, double scale) { return count_ranges(histogram_of({x}), fp16_range, scale); };
  const auto by_bins = [](float x, double scale) {
    ExponentHistogram histogram = histogram_of({x});
    histogram.forget_extremes();
    return count_ranges(histogram, fp16_range, scale);
  };
  constexpr CountInterval none{0, 0};
  constexpr CountInterval certain{1, 1};
  constexpr CountInterval doubtful{0, 1};
  EXPECT_EQ(zones(0x1p-25f, 1.0).lost, certain);  // the tie
  EXPECT_EQ(zones(std::nextafter(0x1p-25f, 1.0f), 1.0).lost, none);
  EXPECT_EQ(zones(std::nextafter(0x1p-25f, 1.0f), 1.0).subnormal, certain);
  EXPECT_EQ(zones(0x1p-24f, 0.5).lost, certain);
  EXPECT_EQ(zones(0x1p-15f, 1.0).subnormal, certain);
  EXPECT_EQ(zones(0x1p-14f, 1.0).normal, certain);
  EXPECT_EQ(zones(0x1p-14f, 1.0).subnormal, none);
  EXPECT_EQ(by_bins(0x1p-14f, 1.0).normal, doubtful);  // shares its bin with subnormals
  EXPECT_EQ(by_bins(0x1p-14f, 1.0).subnormal, doubtful);
  EXPECT_EQ(zones(0x1.8p-14f, 1.0).normal, certain);
  EXPECT_EQ(zones(32768.0f, 1.0).normal, certain);
  EXPECT_EQ(zones(40000.0f, 1.0).overflow, none);
  EXPECT_EQ(by_bins(40000.0f, 1.0).overflow, doubtful);
  EXPECT_EQ(zones(65519.996f, 1.0).overflow, none);
  EXPECT_EQ(zones(65520.0f, 1.0).overflow, certain);
  EXPECT_EQ(zones(65537.0f, 1.0).overflow, certain);
  EXPECT_EQ(zones(0x1p-149f, 1e300).overflow, certain);  // 1e300 is far beyond 2^149 * 65520
  EXPECT_EQ(zones(0x1p-149f, 0x1p110).lost, certain);
  EXPECT_EQ(by_bins(0x1p-149f, 0x1p110).lost, certain);   // alone in its bin
  EXPECT_EQ(by_bins(0x1p-126f, 0x1p110).lost, doubtful);  // in an older folder it might be any subnormal
  EXPECT_EQ(zones(std::numeric_limits<float>::max(), std::numeric_limits<double>::denorm_min()).lost,
            certain);
  const auto in = [](DType format, float x) {
    return count_ranges(histogram_of({x}), range_of(format), 1.0);
  };
  EXPECT_EQ(in(DType::e4m3, 464.0f).normal, certain);  // the tie goes to 448
  EXPECT_EQ(in(DType::e4m3, std::nextafter(464.0f, 500.0f)).overflow, certain);
  EXPECT_EQ(in(DType::e5m2, 61440.0f).overflow, certain);
  EXPECT_EQ(in(DType::e5m2, 0x1p-17f).lost, certain);
  EXPECT_EQ(in(DType::bf16, 0x1p-134f).lost, certain);
  EXPECT_EQ(in(DType::bf16, 0x1.8p-134f).subnormal, certain);
  EXPECT_EQ(in(DType::f32, 0x1p-149f).subnormal, certain);
  EXPECT_THROW(range_of(DType::i32), std::invalid_argument);
}

TEST(RangeCounts, UnderflowRate) {
  const auto rate = [](const std::vector<float>& values, double scale) {
    return underflow_rate(histogram_of(values), fp16_range, scale);
  };
  EXPECT_EQ(rate({}, 1.0), 0.0);
  EXPECT_EQ(rate({0.0f, 0.0f}, 1.0), 0.0);  // zeros are not underflow
  EXPECT_EQ(rate({0.0f, 0x1p-25f, 1.0f, 0x1p-30f, -0x1p-26f}, 1.0), 0.75);
  EXPECT_EQ(rate({0x1p-25f, 1.0f, 0x1p-30f, -0x1p-26f}, 2.0), 0.5);
  EXPECT_EQ(rate({0x1.8p-25f}, 1.0), 0.0);
  EXPECT_EQ(rate({0x1.8p-25f}, 0.75), 0.0);  // alone, it is known to be above the tie
  // 0.75 cuts the bin of three: its smallest value is lost, its greatest is not, the middle of the third is
  // one half.
  EXPECT_EQ(rate({0x1.1p-25f, 0x1.4p-25f, 0x1.8p-25f}, 0.75), 0.5);
}

TEST(RangeCounts, BadScalesAreNamed) {
  for (const double scale :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(count_ranges(ExponentHistogram{}, fp16_range, scale), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
