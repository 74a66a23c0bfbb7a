// The zones of FP16 read from an exponent histogram, against counting element by element.
#include "numerics/range_counts.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"
#include "tests/numerics/histogram_cases.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab {
namespace {

using oracle::power_of_two;
using oracle::Rational;

struct BruteForce {
  std::uint64_t lost = 0, subnormal = 0, normal = 0, overflow = 0;
};

/// Every element on its own: y = x * scale as an exact rational, and the zone by its definition.
BruteForce brute_force(const std::vector<float>& values, double scale) {
  BruteForce counts;
  const Rational exact_scale = oracle::rational(scale);
  for (const float x : values) {
    if (x == 0 || !std::isfinite(x)) continue;
    const Rational y = oracle::rational(std::fabs(x)) * exact_scale;
    if (y <= power_of_two(-25))
      ++counts.lost;
    else if (y < power_of_two(-14))
      ++counts.subnormal;
    else if (y < 65520)
      ++counts.normal;
    else
      ++counts.overflow;
  }
  return counts;
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
  const ExponentHistogram histogram = histogram_of(values);
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
  for (int e = -26; e <= 26; ++e) scales.push_back(std::ldexp(1.37, e));
  for (const double scale : scales) {
    const RangeCounts counts = count_ranges(histogram, scale);
    const BruteForce exact = brute_force(values, scale);
    expect_contains(counts.lost, exact.lost, "lost", scale);
    expect_contains(counts.subnormal, exact.subnormal, "subnormal", scale);
    expect_contains(counts.normal, exact.normal, "normal", scale);
    expect_contains(counts.overflow, exact.overflow, "overflow", scale);
    EXPECT_EQ(counts.total, values.size());
    EXPECT_EQ(counts.zero + counts.infinite + counts.nan + histogram.finite_nonzero(), counts.total);
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5 && scale <= 0x1p101) {
      EXPECT_TRUE(counts.lost.exact()) << scale;
      EXPECT_EQ(counts.lost.lower, exact.lost) << scale;
    }
    // Only counted once among what is certain.
    EXPECT_LE(counts.lost.lower + counts.subnormal.lower + counts.normal.lower + counts.overflow.lower,
              histogram.finite_nonzero());
  }
}

/// The same against the conversion itself: lost is what narrow turns into zero, overflow what it turns into
/// infinity.
TEST(RangeCounts, AgreeWithNarrowing) {
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
        const Float16 y =
            convert<Binary16>(SmallFloat<Binary64>::from_bits(bits_of(static_cast<double>(x) * scale)));
        lost += y.is_zero() ? 1u : 0u;
        overflow += y.is_infinite() ? 1u : 0u;
      }
      const RangeCounts counts = count_ranges(histogram, scale);
      expect_contains(counts.lost, lost, "lost", scale);
      expect_contains(counts.overflow, overflow, "overflow", scale);
      if (significand == 1.0) {
        EXPECT_EQ(counts.lost, (CountInterval{lost, lost})) << scale;
      }
    }
}

TEST(RangeCounts, EdgesOneByOne) {
  const auto zones = [](float x, double scale) { return count_ranges(histogram_of({x}), scale); };
  constexpr CountInterval none{0, 0};
  constexpr CountInterval certain{1, 1};
  constexpr CountInterval doubtful{0, 1};
  EXPECT_EQ(zones(0x1p-25f, 1.0).lost, certain);  // the tie
  EXPECT_EQ(zones(std::nextafter(0x1p-25f, 1.0f), 1.0).lost, none);
  EXPECT_EQ(zones(std::nextafter(0x1p-25f, 1.0f), 1.0).subnormal, certain);
  EXPECT_EQ(zones(0x1p-24f, 0.5).lost, certain);
  EXPECT_EQ(zones(0x1p-15f, 1.0).subnormal, certain);
  EXPECT_EQ(zones(0x1p-14f, 1.0).normal, doubtful);  // shares its bin with subnormals
  EXPECT_EQ(zones(0x1p-14f, 1.0).subnormal, doubtful);
  EXPECT_EQ(zones(0x1.8p-14f, 1.0).normal, certain);
  EXPECT_EQ(zones(32768.0f, 1.0).normal, certain);
  EXPECT_EQ(zones(40000.0f, 1.0).overflow, doubtful);
  EXPECT_EQ(zones(65537.0f, 1.0).overflow, certain);
  EXPECT_EQ(zones(0x1p-149f, 1e300).overflow, certain);  // 1e300 is far beyond 2^149 * 65520
  EXPECT_EQ(zones(0x1p-149f, 0x1p110).lost, doubtful);   // the lowest bin spans (0, 2^-126]
  EXPECT_EQ(zones(std::numeric_limits<float>::max(), std::numeric_limits<double>::denorm_min()).lost,
            certain);
}

TEST(RangeCounts, UnderflowRate) {
  EXPECT_EQ(underflow_rate(ExponentHistogram{}, 1.0), 0.0);
  EXPECT_EQ(underflow_rate(histogram_of({0.0f, 0.0f}), 1.0), 0.0);  // zeros are not underflow
  EXPECT_EQ(underflow_rate(histogram_of({0.0f, 0x1p-25f, 1.0f, 0x1p-30f, -0x1p-26f}), 1.0), 0.75);
  EXPECT_EQ(underflow_rate(histogram_of({0x1p-25f, 1.0f, 0x1p-30f, -0x1p-26f}), 2.0), 0.5);
  EXPECT_EQ(underflow_rate(histogram_of({0x1.8p-25f}), 1.0), 0.0);
  EXPECT_EQ(underflow_rate(histogram_of({0x1.8p-25f}), 0.75), 0.5);  // cut bin: the midpoint
}

TEST(RangeCounts, BadScalesAreNamed) {
  for (const double scale :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(count_ranges(ExponentHistogram{}, scale), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
