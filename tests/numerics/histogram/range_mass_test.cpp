// Lost mass read from an exponent histogram against exact rationals: against what the bins say, and against
// the values themselves.
#include "numerics/histogram/range_mass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "numerics/histogram/zones.hpp"
#include "tests/numerics/histogram/histogram_cases.hpp"
#include "tests/numerics/histogram/zone_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::FormatZones;
using oracle::power_of_two;
using oracle::Rational;

/// Ends are moved outward by 2^-40 and rounded on the way: never inside the exact ones, and not further out
/// than twice that.
void expect_hugs(const MassInterval& interval, const Rational& lower, const Rational& upper,
                 const char* what) {
  ASSERT_TRUE(std::isfinite(interval.lower) && std::isfinite(interval.upper)) << what;
  const Rational slack = power_of_two(-39);
  EXPECT_LE(oracle::rational(interval.lower), lower) << what;
  EXPECT_GE(oracle::rational(interval.lower), lower * (1 - slack)) << what;
  EXPECT_GE(oracle::rational(interval.upper), upper) << what;
  EXPECT_LE(oracle::rational(interval.upper), upper * (1 + slack)) << what;
}
void expect_contains(const MassInterval& interval, const Rational& value, const char* what, double scale) {
  EXPECT_LE(oracle::rational(interval.lower), value) << what << " at " << scale;
  EXPECT_GE(oracle::rational(interval.upper), value) << what << " at " << scale;
}

/// The cosine of one histogram.
MassInterval cosine_bound(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  return direction_sums(histogram, range, scale).cosine();
}

/// From the definition: the bins of the header's comment, and lost: |y| <= the format's tie.
struct BinOracle {
  Rational total_l1[2], lost_l1[2], total_l2[2], lost_l2[2];

  BinOracle(const FormatZones& format, const ExponentHistogram& histogram, double scale) {
    const Rational s = oracle::rational(scale), threshold = format.tie / s;
    const Rational largest_finite = power_of_two(128) - power_of_two(104);
    for (int e = -150; e <= 127; ++e) {
      const Rational n = histogram.at(e);
      // Without extremes, the bin of -127 may hold all that is smaller.
      const bool all_below = e == -127 && !histogram.extremes_known();
      const Rational low = all_below ? Rational(0) : power_of_two(e), high = power_of_two(e + 1);
      // The FP32 numbers at its ends say whether the bin is lost.
      const Rational first =
          all_below || e == -150 ? power_of_two(-149) : Rational(low + power_of_two(std::max(e - 23, -149)));
      const Rational last = e == 127 ? largest_finite : high;
      const bool some = first <= threshold, all = last <= threshold;
      const Rational top = all ? high : std::min(high, threshold);
      add(total_l1, n, low, high);
      add(total_l2, n, low * low, high * high);
      if (some) {
        add(lost_l1, n, all ? low : Rational(0), top);
        add(lost_l2, n, all ? low * low : Rational(0), top * top);
      }
    }
  }
  static void add(Rational (&sum)[2], const Rational& n, const Rational& low, const Rational& high) {
    sum[0] += n * low;
    sum[1] += n * high;
  }
};

/// Every element on its own.
struct ValueOracle {
  Rational l1[4] = {0, 0, 0, 0}, l2[4] = {0, 0, 0, 0};  ///< lost, subnormal, normal, overflow
  ValueOracle(const FormatZones& format, const std::vector<float>& values, double scale) {
    const Rational s = oracle::rational(scale);
    for (const float value : values) {
      if (value == 0 || !std::isfinite(value)) continue;
      const Rational x = oracle::rational(std::fabs(value));
      const int zone = format.zone_of(x * s);
      l1[zone] += x;
      l2[zone] += x * x;
    }
  }
  static Rational sum(const Rational (&zones)[4]) { return zones[0] + zones[1] + zones[2] + zones[3]; }
};

std::vector<double> scales_to_try() {
  std::vector<double> scales{1.0,          3.0,     1.0 / 3.0, 1.0 - 0x1p-53, 1.0 + 0x1p-52,
                             0x1.000002p0, 1e-300,  1e300,     65520.0,       0x1p-153,
                             0x1p101,      0x1p102, 0x1p124,   0x1p125,       0x1p-152};
  for (int e = -160; e <= 150; e += 7) {
    scales.push_back(std::ldexp(1.0, e));
    scales.push_back(std::ldexp(1.37, e));
    scales.push_back(std::nextafter(std::ldexp(1.0, e), 0.0));  // cuts a bin by less than an FP32 spacing
    scales.push_back(std::ldexp(1.0 - 0x1p-24, e));
    scales.push_back(std::ldexp(1.0 - 0x1p-23, e));
    scales.push_back(std::ldexp(1.0 + 0x1p-24, e));
    scales.push_back(std::nextafter(std::ldexp(1.0 + 0x1p-24, e), 0.0));
  }
  return scales;
}

TEST(RangeMass, KnownHistogram) {
  // 3 values in (2^-26, 2^-25], all lost at 1; 5 in (2^-10, 2^-9].
  ExponentHistogram histogram;
  histogram.bins[static_cast<std::size_t>(-26 + 150)] = 3;
  histogram.bins[static_cast<std::size_t>(-10 + 150)] = 5;
  const RangeMass at_one = range_mass(histogram, fp16_range, 1.0);
  expect_hugs(at_one.lost_l1, 3 * power_of_two(-26), 3 * power_of_two(-25), "lost");
  expect_hugs(at_one.lost_l2_squared, 3 * power_of_two(-52), 3 * power_of_two(-50), "lost squares");
  expect_hugs(at_one.total_l1, 3 * power_of_two(-26) + 5 * power_of_two(-10),
              3 * power_of_two(-25) + 5 * power_of_two(-9), "total");
  EXPECT_NEAR(lost_l2_share(at_one).upper, std::sqrt(3.0 / 5.0) * 0x1p-15, 0x1p-24);
  const RangeMass at_two = range_mass(histogram, fp16_range, 2.0);
  EXPECT_EQ(at_two.lost_l1, MassInterval{});
  EXPECT_EQ(lost_l1_share(at_two), MassInterval{});
  // Everything lost, nothing there.
  EXPECT_EQ(lost_l1_share(range_mass(histogram, fp16_range, 0x1p-16)), (MassInterval{1, 1}));
  EXPECT_EQ(lost_l2_share(range_mass(histogram, fp16_range, 0x1p-16)), (MassInterval{1, 1}));
  EXPECT_EQ(lost_l1_share(range_mass(ExponentHistogram{}, fp16_range, 1.0)), MassInterval{});
  static_assert(range_mass(ExponentHistogram{}, fp16_range, 1.0).total_l1.upper == 0.0,
                "a constant expression");
}

TEST(RangeMass, RandomHistogramsAgainstRationals) {
  std::mt19937_64 engine(7);
  for (int round = 0; round < 10; ++round) {
    ExponentHistogram histogram;
    for (auto& bin : histogram.bins)
      if (engine() % 3 != 0) bin = engine() >> (20 + engine() % 44);
    if (round == 0) histogram.bins.fill(~std::uint64_t{0} >> 8);
    if (round % 2 == 1) {  // extremes say that the bins of the subnormals are their own
      histogram.smallest = 1;
      histogram.greatest = 0x7f7fffff;
      histogram.bins.front() = histogram.bins.back() = 1;
    }
    const FormatZones& format = oracle::all_formats()[static_cast<std::size_t>(round) % 5];
    for (const double scale : scales_to_try()) {
      const RangeMass mass = range_mass(histogram, format.range, scale);
      const BinOracle exact(format, histogram, scale);
      expect_hugs(mass.total_l1, exact.total_l1[0], exact.total_l1[1], "L1");
      expect_hugs(mass.total_l2_squared, exact.total_l2[0], exact.total_l2[1], "squares");
      expect_hugs(mass.lost_l1, exact.lost_l1[0], exact.lost_l1[1], "lost L1");
      expect_hugs(mass.lost_l2_squared, exact.lost_l2[0], exact.lost_l2[1], "lost squares");
      ASSERT_FALSE(::testing::Test::HasFailure())
          << format.name << ", scale " << scale << ", round " << round;
    }
  }
}

/// Random patterns reach 2^127, beside which nothing else has any mass: gradients, and the edges of their
/// bins.
std::vector<float> gradients(std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values{0.0f, -0.0f, INFINITY, NAN};
  for (int e = -40; e <= 3; ++e)
    for (const float power : {std::ldexp(1.0f, e), std::ldexp(-1.5f, e)})
      for (const float x : {std::nextafter(power, 0.0f), power, std::nextafter(power, INFINITY)})
        values.insert(values.end(), 1 + engine() % 3, x);
  return values;
}

void expect_contained(const FormatZones& format, const std::vector<float>& values) {
  const ExponentHistogram histogram = histogram_of(values);
  ExponentHistogram bins_alone = histogram;
  bins_alone.forget_extremes();
  for (const double scale : scales_to_try()) {
    const ValueOracle exact(format, values, scale);
    const Rational l1 = ValueOracle::sum(exact.l1), l2 = ValueOracle::sum(exact.l2);
    for (const ExponentHistogram* const one : {&histogram, &std::as_const(bins_alone)}) {
      const RangeMass mass = range_mass(*one, format.range, scale);
      expect_contains(mass.total_l1, l1, "L1", scale);
      expect_contains(mass.lost_l1, exact.l1[0], "lost", scale);
      expect_contains(mass.kept_l1, l1 - exact.l1[0], "kept", scale);
      expect_contains(mass.total_l2_squared, l2, "squares", scale);
      expect_contains(mass.lost_l2_squared, exact.l2[0], "lost squares", scale);
      expect_contains(mass.kept_l2_squared, l2 - exact.l2[0], "kept squares", scale);
      expect_contains(lost_l1_share(mass), exact.l1[0] / l1, "lost share", scale);
      expect_contains(lost_l2_squared_share(mass), exact.l2[0] / l2, "lost share of squares", scale);
      const MassInterval share = lost_l2_share(mass);
      EXPECT_LE(oracle::rational(share.lower * share.lower) * (1 - power_of_two(-50)), exact.l2[0] / l2);
      EXPECT_GE(oracle::rational(share.upper * share.upper) * (1 + power_of_two(-50)), exact.l2[0] / l2);
    }
    // By bins alone, counts and masses agree on what is certainly there and what certainly is not, and the
    // host's zones and the device's function say the same.
    const RangeMass mass = range_mass(bins_alone, format.range, scale);
    const CountInterval lost = count_ranges(bins_alone, format.range, scale).lost;
    EXPECT_EQ(mass.lost_l1.upper == 0, lost.upper == 0) << scale;
    EXPECT_EQ(mass.kept_l1.upper == 0, lost.lower == bins_alone.finite_nonzero()) << scale;
    const ZoneMass zones = zone_mass(bins_alone, format.range, scale);
    EXPECT_EQ(zones.l1.total, mass.total_l1);
    EXPECT_EQ(zones.l1.lost.inside, mass.lost_l1) << scale;
    EXPECT_EQ(zones.l1.lost.outside, mass.kept_l1) << scale;
    EXPECT_EQ(zones.l2_squared.lost.inside, mass.lost_l2_squared) << scale;
  }
}

TEST(RangeMass, IntervalsAndSharesContainTheValues) {
  const std::vector<float> patterns = random_patterns(250, 3);
  for (const FormatZones& format : oracle::all_formats()) {
    if (format.precision == 11) expect_contained(format, gradients(1));
    expect_contained(format, patterns);
  }
}

TEST(RangeMass, AShareIsNarrowerThanTheQuotientOfItsIntervals) {
  ExponentHistogram histogram;  // half of the values lost: L1 of one binade above the other
  histogram.bins[100] = histogram.bins[101] = 1000;
  const RangeMass mass =
      range_mass(histogram, fp16_range, std::ldexp(1.0, -25 - (101 - 150)));  // bin 100 is lost
  const MassInterval share = lost_l1_share(mass);
  // lost in (1, 2], kept in (2, 4], in units of the binade: share in (1/5, 2/4].
  EXPECT_NEAR(share.lower, 0.2, 1e-11);
  EXPECT_NEAR(share.upper, 0.5, 1e-11);
  EXPECT_GT(share.lower, mass.lost_l1.lower / mass.total_l1.upper);
  EXPECT_LT(share.upper, mass.lost_l1.upper / mass.total_l1.lower);
}

TEST(RangeMass, BadScales) {
  for (const double scale : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    EXPECT_TRUE(std::isnan(range_mass(ExponentHistogram{}, fp16_range, scale).lost_l1.lower));
    EXPECT_TRUE(std::isnan(range_mass(ExponentHistogram{}, fp16_range, scale).total_l2_squared.upper));
    EXPECT_THROW(zone_mass(ExponentHistogram{}, fp16_range, scale), std::invalid_argument);
    EXPECT_THROW(cosine_bound(ExponentHistogram{}, fp16_range, scale), std::invalid_argument);
  }
}

TEST(ZoneMass, ZonesContainTheValues) {
  const std::vector<float> gradient = gradients(5), patterns = random_patterns(250, 4);
  for (const FormatZones& format : oracle::all_formats()) {
    const std::vector<float>& values = format.precision == 11 ? gradient : patterns;
    const ExponentHistogram histogram = histogram_of(values);
    for (const double scale : scales_to_try()) {
      const ZoneMass mass = zone_mass(histogram, format.range, scale);
      const RangeCounts counts = count_ranges(histogram, format.range, scale);
      const ValueOracle exact(format, values, scale);
      const auto check = [&](const ZoneSums& sums, const Rational(&zones)[4]) {
        const ZoneSum* const found[] = {&sums.lost, &sums.subnormal, &sums.normal, &sums.overflow};
        const CountInterval counted[] = {counts.lost, counts.subnormal, counts.normal, counts.overflow};
        const Rational total = ValueOracle::sum(zones);
        for (int zone = 0; zone < 4; ++zone) {
          expect_contains(found[zone]->inside, zones[zone], "inside", scale);
          expect_contains(found[zone]->outside, total - zones[zone], "outside", scale);
          expect_contains(found[zone]->share(), zones[zone] / total, "share", scale);
          EXPECT_EQ(found[zone]->inside.upper == 0, counted[zone].upper == 0) << scale << ' ' << zone;
        }
      };
      check(mass.l1, exact.l1);
      check(mass.l2_squared, exact.l2);
    }
  }
}

TEST(ZoneMass, EdgesCutOneBinEach) {
  // 2^-14 and 40000 are alone in their bins: by the counts of the bins, each may be in either zone.
  ExponentHistogram histogram = histogram_of({0x1p-14f, 40000.0f, 0x1p-25f, 1.0f});
  // 40000 is the greatest of all, which fixes its place.
  EXPECT_EQ(zone_mass(histogram, fp16_range, 1.0).l1.overflow.inside, MassInterval{});
  histogram.forget_extremes();
  const ZoneMass mass = zone_mass(histogram, fp16_range, 1.0);
  EXPECT_EQ(mass.l1.subnormal.inside.lower, 0);
  expect_hugs(mass.l1.subnormal.inside, 0, power_of_two(-14), "subnormal");
  expect_hugs(mass.l1.overflow.inside, 0, power_of_two(16), "overflow");
  // 1.0 is certainly normal; what may be normal in the bin at the top ends at 65520.
  expect_hugs(mass.l1.normal.inside, Rational(1, 2), 1 + power_of_two(-14) + 65520, "normal");
  expect_hugs(mass.l1.lost.inside, power_of_two(-26), power_of_two(-25), "lost");
}

TEST(ZoneMass, UnitsAndSums) {
  const ExponentHistogram a = histogram_of(gradients(8)), b = histogram_of(gradients(9));
  const ExponentHistogram shifted = times_power_of_two(b, 7);
  ExponentHistogram both = a;
  both += b;
  ZoneMass sum = zone_mass(a, fp16_range, 4.0);
  sum += zone_mass(shifted, fp16_range, 4.0 / 128).divided_by(128);
  const ZoneMass expected = zone_mass(both, fp16_range, 4.0);
  for (const auto& [x, y] : {std::pair(sum.l1.lost.inside, expected.l1.lost.inside),
                             std::pair(sum.l1.normal.outside, expected.l1.normal.outside),
                             std::pair(sum.l2_squared.subnormal.inside, expected.l2_squared.subnormal.inside),
                             std::pair(sum.l2_squared.total, expected.l2_squared.total)}) {
    EXPECT_NEAR(x.lower, y.lower, y.lower * 0x1p-44);  // sums of fewer than 2^8 terms, each rounded once
    EXPECT_NEAR(x.upper, y.upper, y.upper * 0x1p-44);
  }
}

/// y rounded to the format, by its spacing. Rounding to nearest even is nearbyint's; the quotient and the
/// product by a power of two are exact.
double rounded(const FormatZones& format, double y) {
  if (y == 0) return 0;
  if (format.zone_of(oracle::rational(std::fabs(y))) == 3) return std::copysign(INFINITY, y);
  const int smallest_normal = std::ilogb(static_cast<double>(format.smallest_normal));
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(y), smallest_normal) - (format.precision - 1));
  return std::nearbyint(y / spacing) * spacing;
}

void expect_cosines_contained(const FormatZones& format) {
  std::mt19937 engine(4);
  for (int round = 0; round < 12; ++round) {
    std::vector<float> values;
    const int center = format.range.tie_to_zero - 5 + static_cast<int>(engine() % 20),
              width = 1 + static_cast<int>(engine() % 16);
    for (int i = 0; i < 100; ++i) {
      const float significand = 1.0f + static_cast<float>(engine() >> 9) * 0x1p-23f;
      values.push_back(std::ldexp(engine() % 2 ? significand : -significand,
                                  center + static_cast<int>(engine() % static_cast<unsigned>(width))));
    }
    const ExponentHistogram histogram = histogram_of(values);
    for (int k = -8; k <= 30; k += 2) {
      const double scale = std::ldexp(1.0, k);
      const MassInterval bound = cosine_bound(histogram, format.range, scale);
      long double dot = 0, kept = 0, norm = 0;
      bool overflow = false;
      for (const float x : values) {
        const double left = rounded(format, static_cast<double>(x) * scale) / scale;
        overflow = overflow || std::isinf(left);
        dot += static_cast<long double>(x) * static_cast<long double>(left);
        kept += static_cast<long double>(left) * static_cast<long double>(left);
        norm += static_cast<long double>(x) * static_cast<long double>(x);
      }
      ASSERT_LE(bound.lower, bound.upper);
      if (overflow) {
        EXPECT_EQ(bound.lower, 0) << scale;
        continue;
      }
      // 100 terms rounded to 64 bits each: the quotient is within 2^-50.
      const long double cosine = kept == 0 ? 0 : dot / std::sqrt(kept * norm);
      EXPECT_LE(bound.lower, static_cast<double>(cosine) + 0x1p-50) << scale;
      EXPECT_GE(bound.upper, static_cast<double>(cosine) - 0x1p-50) << scale;
    }
  }
}

TEST(CosineBound, ContainsTheCosineOfWhatTheFormatKeeps) {
  for (const FormatZones& format : oracle::all_formats())
    if (format.precision < 24) expect_cosines_contained(format);
}

TEST(CosineBound, KnownCases) {
  EXPECT_EQ(cosine_bound(ExponentHistogram{}, fp16_range, 1.0), (MassInterval{1, 1}));
  EXPECT_EQ(cosine_bound(histogram_of({0.0f}), fp16_range, 1.0), (MassInterval{1, 1}));
  EXPECT_EQ(cosine_bound(histogram_of({0x1p-30f}), fp16_range, 1.0),
            (MassInterval{0, 0}));  // nothing is left
  EXPECT_EQ(cosine_bound(histogram_of({1.0f, 0x1p17f}), fp16_range, 1.0),
            (MassInterval{0, 0}));  // its step is skipped
  EXPECT_EQ(cosine_bound(histogram_of({1.0f, INFINITY}), fp16_range, 1.0), (MassInterval{0, 0}));
  EXPECT_GT(cosine_bound(histogram_of({40000.0f}), fp16_range, 1.0).lower, 0.999);  // the greatest is known
  ExponentHistogram bins_alone = histogram_of({40000.0f});
  bins_alone.forget_extremes();
  EXPECT_EQ(cosine_bound(bins_alone, fp16_range, 1.0).lower, 0);  // 65520 cuts its bin
  EXPECT_GT(cosine_bound(bins_alone, fp16_range, 1.0).upper, 0.999);
  // Normal numbers only: sin <= 2^-11 times 2, the width of a bin, so cos >= sqrt(1 - 2^-20).
  const MassInterval normal = cosine_bound(histogram_of({1.0f, 1.5f, 0.25f}), fp16_range, 1.0);
  EXPECT_GE(normal.lower, std::sqrt(1 - 0x1p-20) - 0x1p-45);
  EXPECT_EQ(normal.upper, 1);
  // Equal counts in neighbouring bins, the lower one lost: ||lost||^2 / ||x||^2 in [1/(1+16), 4/(4+4)].
  const MassInterval half = cosine_bound(histogram_of({0x1.8p-26f, 0x1.8p-25f}), fp16_range, 1.0);
  EXPECT_NEAR(half.upper, std::sqrt(16.0 / 17), 1e-11);
  EXPECT_LT(half.lower, std::sqrt(0.5));
  // Sums over histograms in one unit bound the cosine of all of them.
  DirectionSums sums = direction_sums(histogram_of({0x1.8p-26f}), fp16_range, 1.0);
  sums += direction_sums(histogram_of({0x1.8p-20f}), fp16_range, 1.0 / 32).divided_by(32);
  EXPECT_NEAR(sums.cosine().lower, half.lower, 1e-11);
  EXPECT_NEAR(sums.cosine().upper, half.upper, 1e-11);
}

}  // namespace
}  // namespace fp16lab
