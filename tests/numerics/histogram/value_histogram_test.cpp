// Values between the edges of formats at any scale, counted and summed without rounding, against exact
// rationals.
#include "numerics/histogram/value_histogram.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/histogram/zones.hpp"
#include "tests/numerics/histogram/histogram_cases.hpp"
#include "tests/numerics/histogram/zone_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::all_formats;
using oracle::FormatZones;
using oracle::Integer;
using oracle::power_of_two;
using oracle::Rational;

template <int lowest, std::size_t words>
Rational value_of(const FixedPointSum<lowest, words>& sum) {
  Integer integer = 0;
  for (std::size_t word = words; word-- > 0;) integer = (integer << 64) + sum.words()[word];
  return Rational(integer) * power_of_two(lowest);
}

/// Is d the FP64 number nearest to q >= 0, ties to even?
void expect_nearest(double d, const Rational& q) {
  if (std::isinf(d)) {
    EXPECT_GE(q, power_of_two(1024) - power_of_two(970));
    return;
  }
  const Rational error = abs(oracle::rational(d) - q);
  const double above = std::nextafter(d, std::numeric_limits<double>::infinity());
  const Rational above_error =
      std::isinf(above) ? Rational(power_of_two(1024) - q) : abs(oracle::rational(above) - q);
  EXPECT_LE(error, above_error);
  const bool odd = (bits_of(d) & 1) != 0;
  if (odd) {
    EXPECT_NE(error, above_error);
  }
  if (d > 0) {
    const Rational below_error = abs(oracle::rational(std::nextafter(d, 0.0)) - q);
    EXPECT_LE(error, below_error);
    if (odd) {
      EXPECT_NE(error, below_error);
    }
  }
}

struct Oracle {
  struct Zone {
    std::uint64_t count = 0;
    Rational l1 = 0, l2 = 0;
  };
  Zone zones[4];
  std::uint64_t zero = 0, infinite = 0, nan = 0;

  template <class T>
  Oracle(const std::vector<T>& values, const FormatZones& format, double scale) {
    const Rational s = oracle::rational(scale);
    for (const T value : values) {
      if (std::isnan(value))
        ++nan;
      else if (std::isinf(value))
        ++infinite;
      else if (value == 0)
        ++zero;
      else {
        const Rational x = oracle::rational(std::fabs(value));
        const Rational y = x * s;
        Zone& zone = zones[format.zone_of(y)];
        ++zone.count;
        zone.l1 += x;
        zone.l2 += x * x;
      }
    }
  }
};

std::shared_ptr<const ValueBins> bins_of(std::vector<ScaledFormat> scaled) {
  return std::make_shared<const ValueBins>(scaled);
}

template <class T>
void expect_equal(const ValueHistogram& counted, const std::vector<T>& values, const FormatZones& format,
                  double scale) {
  const Oracle exact(values, format, scale);
  EXPECT_EQ(counted.zero(), exact.zero);
  EXPECT_EQ(counted.infinite(), exact.infinite);
  EXPECT_EQ(counted.nan(), exact.nan);
  const auto zones = counted.zones({format.range, scale});
  Rational l1 = 0, l2 = 0;
  for (std::size_t zone = 0; zone < 4; ++zone) {
    ASSERT_EQ(zones[zone].count, exact.zones[zone].count) << format.name << ' ' << scale << ' ' << zone;
    ASSERT_EQ(value_of(zones[zone].l1), exact.zones[zone].l1) << format.name << ' ' << scale << ' ' << zone;
    ASSERT_EQ(value_of(zones[zone].l2_squared), exact.zones[zone].l2) << zone;
    expect_nearest(zones[zone].l1.nearest(), exact.zones[zone].l1);
    expect_nearest(zones[zone].l2_squared.nearest(), exact.zones[zone].l2);
    l1 += exact.zones[zone].l1;
    l2 += exact.zones[zone].l2;
  }
  EXPECT_EQ(value_of(counted.total().l1), l1);
  EXPECT_EQ(value_of(counted.total().l2_squared), l2);
  const RangeCounts counts = count_ranges(counted, format.range, scale);
  EXPECT_TRUE(counts.lost.exact() && counts.subnormal.exact() && counts.normal.exact() &&
              counts.overflow.exact());
  EXPECT_EQ(counts.lost.lower, exact.zones[0].count);
  EXPECT_EQ(counts.overflow.upper, exact.zones[3].count);
  EXPECT_EQ(counts.total, values.size());
  const ZoneMass mass = zone_mass(counted, format.range, scale);
  EXPECT_EQ(mass.l1.lost.inside.lower, mass.l1.lost.inside.upper);
  expect_nearest(mass.l1.lost.inside.lower, exact.zones[0].l1);
  if (std::isfinite(mass.l1.normal.outside.lower))
    expect_nearest(mass.l1.normal.outside.lower, l1 - exact.zones[2].l1);
}

const double some_scales[] = {1.0, 3.0, 1.0 / 3.0, 0x1p15, 1e-300, 1e300, 0x1.8p-1030, 0x1p-1074};

/// Every format at every scale in one histogram.
std::shared_ptr<const ValueBins> all_bins() {
  std::vector<ScaledFormat> scaled;
  for (const FormatZones& format : all_formats())
    for (const double scale : some_scales) scaled.push_back({format.range, scale});
  return bins_of(scaled);
}

/// A format's edges as values, and the numbers beside them.
std::vector<double> around_the_edges(double scale) {
  std::vector<double> values;
  for (const FormatZones& format : all_formats())
    for (const Rational& edge : {format.tie, format.smallest_normal, format.threshold}) {
      const auto x = static_cast<double>(Rational(edge / oracle::rational(scale)));
      if (!std::isfinite(x)) continue;
      for (const double value : {x, std::nextafter(x, 0.0), std::nextafter(x, INFINITY), -x})
        if (std::isfinite(value)) values.push_back(value);
    }
  return values;
}

TEST(ValueHistogram, FloatsOfEveryExponentInEveryFormatAtManyScalesAtOnce) {
  const std::vector<float> values = random_patterns(400, 11);
  ValueHistogram counted(all_bins());
  counted.add(std::span<const float>(values));
  for (const FormatZones& format : all_formats())
    for (const double scale : some_scales) expect_equal(counted, values, format, scale);
}

TEST(ValueHistogram, DoublesOfEveryExponentAndBesideEveryEdge) {
  std::mt19937_64 engine(12);
  std::vector<double> values{0.0,      -0.0, INFINITY, NAN, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023,
                             0x1p-1022};
  for (int i = 0; i < 200; ++i) values.push_back(double_from_bits(engine()));
  for (const double scale : {1.0, 3.0, 1.0 / 3.0, 0x1p15})
    for (const double value : around_the_edges(scale)) values.push_back(value);
  ValueHistogram counted(all_bins());
  counted.add(std::span<const double>(values));
  for (const FormatZones& format : all_formats())
    for (const double scale : some_scales) expect_equal(counted, values, format, scale);
}

/// What rounding itself makes of FP32 values: numbers that become zero, and Inf or NaN.
template <class F>
void expect_as_rounded(const std::vector<float>& values) {
  std::uint64_t lost = 0, overflow = 0;
  for (const float x : values) {
    if (x == 0 || !std::isfinite(x)) continue;
    const float y = widen(narrow<F>(x));
    lost += y == 0 ? 1 : 0;
    overflow += std::isfinite(y) ? 0 : 1;
  }
  ValueHistogram counted(bins_of({{FormatRange::of<F>(), 1.0}}));
  counted.add(std::span<const float>(values));
  const RangeCounts counts = count_ranges(counted, FormatRange::of<F>(), 1.0);
  EXPECT_EQ(counts.lost, (CountInterval{lost, lost}));
  EXPECT_EQ(counts.overflow, (CountInterval{overflow, overflow}));
  EXPECT_GT(lost, 0u);
  EXPECT_GT(overflow, 0u);
}

TEST(ValueHistogram, CountsWhatTheFormatsOwnRoundingDoes) {
  std::vector<float> values = random_patterns(20000, 21);
  for (const double edge : around_the_edges(1.0))
    for (const float x : {static_cast<float>(edge), std::nextafter(static_cast<float>(edge), 0.0f),
                          std::nextafter(static_cast<float>(edge), 1e38f)})
      values.push_back(x);
  expect_as_rounded<Binary16>(values);
  expect_as_rounded<BrainFloat16>(values);
  expect_as_rounded<Fp8E4M3>(values);
  expect_as_rounded<Fp8E5M2>(values);
}

TEST(ValueHistogram, TheZonesEdges) {
  // What FP16 makes of a value at scale 1, to the last bit on either side of every edge, in FP32 and FP64.
  const auto zone_of = [](auto x, double scale = 1.0) {
    const ScaledFormat format{FormatRange::of<Binary16>(), scale};
    ValueHistogram counted(bins_of({format}));
    const std::vector<decltype(x)> one{x};
    counted.add(std::span<const decltype(x)>(one));
    const auto zones = counted.zones(format);
    return zones[0].count ? 'l' : zones[1].count ? 's' : zones[2].count ? 'n' : 'o';
  };
  EXPECT_EQ(zone_of(0x1p-25f), 'l');  // the tie goes to zero
  EXPECT_EQ(zone_of(std::nextafter(0x1p-25f, 1.0f)), 's');
  EXPECT_EQ(zone_of(std::nextafter(0x1p-25, 1.0)), 's');
  EXPECT_EQ(zone_of(std::nextafter(0x1p-14, 0.0)), 's');
  EXPECT_EQ(zone_of(0x1p-14f), 'n');
  EXPECT_EQ(zone_of(65519.99f), 'n');
  EXPECT_EQ(zone_of(65519.99), 'n');
  EXPECT_EQ(zone_of(std::nextafter(65520.0, 0.0)), 'n');
  EXPECT_EQ(zone_of(65520.0f), 'o');
  EXPECT_EQ(zone_of(65520.0), 'o');
  EXPECT_EQ(zone_of(-65520.0, 0.5), 'n');
  EXPECT_EQ(zone_of(0x1p-24, 0.5), 'l');
  EXPECT_EQ(zone_of(0x1p-24, std::nextafter(0.5, 1.0)), 's');  // products do not round
  EXPECT_EQ(zone_of(std::nextafter(0x1p-24, 1.0), std::nextafter(0.5, 0.0)), 's');
  EXPECT_EQ(zone_of(std::nextafter(0x1p-24, 1.0), 0.5 - 0x1p-52), 'l');  // (1 + 2^-52)(1 - 2^-51) < 1
}

TEST(ValueHistogram, TheDirectionOfAFewNumbers) {
  // 1 is kept as it is, 2^-25 is lost: the cosine is 1 / sqrt(1 + 2^-50).
  const FormatRange f16 = FormatRange::of<Binary16>();
  ValueHistogram counted(bins_of({{f16, 1.0}}));
  counted.add(std::span<const double>(std::vector<double>{1.0, 0x1p-25}));
  const DirectionSums sums = direction_sums(counted, f16, 1.0);
  EXPECT_FALSE(sums.may_overflow);
  EXPECT_GE(sums.cosine().upper, 1 - 0x1p-51);
  EXPECT_LT(sums.cosine().lower, 1.0);
  EXPECT_GT(sums.cosine().lower, std::sqrt(1 - 0x1p-21));  // half an ulp of FP16: a sine of 2^-11 at most
  counted.add(std::span<const double>(std::vector<double>{65520.0}));
  EXPECT_TRUE(direction_sums(counted, f16, 1.0).overflows);
}

TEST(ValueHistogram, AnswersOnlyWhatItsBinsWereMadeFor) {
  const FormatRange f16 = FormatRange::of<Binary16>();
  ValueHistogram counted(bins_of({{f16, 1.0}}));
  EXPECT_NO_THROW((void)counted.zones({f16, 1.0}));
  EXPECT_THROW((void)counted.zones({f16, 2.0}), std::invalid_argument);
  EXPECT_THROW((void)counted.zones({FormatRange::of<BrainFloat16>(), 1.0}), std::invalid_argument);
  EXPECT_THROW((void)counted.zones({f16, 0.0}), std::invalid_argument);
  EXPECT_THROW(bins_of({{f16, -1.0}}), std::invalid_argument);
  EXPECT_THROW(counted += ValueHistogram(bins_of({{f16, 2.0}})), std::invalid_argument);
}

TEST(ValueHistogram, NothingShowsHowTheValuesCame) {
  std::vector<float> values = random_patterns(200000, 13);
  const auto bins = bins_of({{FormatRange::of<Binary16>(), 4.0}});
  ValueHistogram whole(bins), threads(bins), pieces(bins), backwards(bins);
  whole.add(std::span<const float>(values));
  threads.add(std::span<const float>(values), 2);
  EXPECT_EQ(threads, whole);
  ValueHistogram first(bins);
  first.add(std::span<const float>(values).first(70001));
  pieces.add(std::span<const float>(values).subspan(70001));
  pieces += first;
  EXPECT_EQ(pieces, whole);
  std::reverse(values.begin(), values.end());
  backwards.add(std::span<const float>(values), 2);
  EXPECT_EQ(backwards, whole);
  const std::vector<double> wide(values.begin(), values.end());
  ValueHistogram doubles(bins);
  doubles.add(std::span<const double>(wide));
  EXPECT_EQ(doubles, whole);
  ExponentHistogram expected = histogram_of(values), found = whole.exponents();
  EXPECT_EQ(found.bins, expected.bins);
  EXPECT_EQ(found.total(), expected.total());
  double greatest = 0;
  for (const double value : wide)
    if (std::isfinite(value)) greatest = std::max(greatest, std::abs(value));
  for (const ValueHistogram* const counted : {&whole, &threads, &pieces, &backwards, &doubles})
    EXPECT_EQ(counted->greatest(), greatest);
  EXPECT_EQ(ValueHistogram(bins).greatest(), 0);
  EXPECT_THROW(whole.add(std::span<const float>(values), 0), std::invalid_argument);
}

TEST(ValueHistogram, HalvesAreTheNumbersThatTheyAre) {
  std::vector<Float16> halves;
  std::vector<BFloat16> brains;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    halves.push_back(Float16::from_bits(static_cast<std::uint16_t>(code)));
    brains.push_back(BFloat16::from_bits(static_cast<std::uint16_t>(code)));
  }
  const FormatRange f16 = FormatRange::of<Binary16>();
  const auto bins = bins_of({{f16, 1.0}, {f16, 0.25}});
  std::vector<float> wide(halves.size());
  const auto check = [&]<class F>(const std::vector<SmallFloat<F>>& codes) {
    widen(std::span(codes), std::span(wide));
    ValueHistogram counted(bins), expected(bins);
    counted.add(std::span<const SmallFloat<F>>(codes));
    expected.add(std::span<const float>(wide));
    EXPECT_EQ(counted, expected);
  };
  check(halves);
  check(brains);
  // Both signs of all FP16 magnitudes: 2 sum over exponents 2^e (1024 * 1024 + 1023 * 1024 / 2) 2^-10, the
  // subnormals 2 * 2^-24 * 1023 * 1024 / 2.
  ValueHistogram counted(bins);
  counted.add(std::span<const Float16>(halves));
  Rational l1 = power_of_two(-24) * 1023 * 1024;
  for (int e = -14; e <= 15; ++e) l1 += power_of_two(e - 9) * (1024 * 1024 + 1023 * 512);
  EXPECT_EQ(value_of(counted.total().l1), l1);
  // No FP16 number overflows in FP16, or is lost: the counts are 0.
  const RangeCounts counts = count_ranges(counted, f16, 1.0);
  EXPECT_EQ(counts.overflow, (CountInterval{0, 0}));
  EXPECT_EQ(counts.lost, (CountInterval{0, 0}));
}

TEST(FixedPointSum, CarriesThroughWords) {
  FixedPointSum<-64, 4> sum;
  sum.add(~static_cast<unsigned __int128>(0), -64);
  sum.add(1, -64);
  EXPECT_EQ(sum.words(), (std::array<std::uint64_t, 4>{0, 0, 1, 0}));
  sum.add(~static_cast<unsigned __int128>(0), -1);  // shifted by 63: three words
  EXPECT_EQ(value_of(sum), power_of_two(64) + (power_of_two(128) - 1) * power_of_two(-1));
  // Rounding: a tie, and a tie that is not one because of the last bit.
  FixedPointSum<0, 4> tie;
  tie.add((std::uint64_t{1} << 53) + 1, 60);
  EXPECT_EQ(tie.nearest(), 0x1p113);
  tie.add(1, 0);
  EXPECT_EQ(tie.nearest(), 0x1p113 + 0x1p61);
  EXPECT_EQ((FixedPointSum<0, 2>().nearest()), 0.0);
}

// ---- errors of rounding ---------------------------------------------------------------------------------

/// The nearest multiple of a power of two, ties to an even one; x >= 0.
Rational to_multiple(const Rational& x, const Rational& spacing) {
  const Rational quotient = x / spacing;
  Integer whole = numerator(quotient) / denominator(quotient);
  const Rational rest = quotient - Rational(whole), half = Rational(1) / 2;
  if (rest > half || (rest == half && whole % 2 == 1)) ++whole;
  return Rational(whole) * spacing;
}

TEST(RoundingErrors, AreThoseOfValuesRoundedOneByOne) {
  std::mt19937_64 random(3);
  std::vector<double> values{
      1.0, 1.5, 1.25, 0x1p-25, 0x1.000002p-25, 0x1p-26, 0x1.8p-24, 0x1.ffffffffffffp-15, 1e30, 1e-30};
  for (int i = 0; i < 200; ++i)
    values.push_back(
        std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52, static_cast<int>(random() % 60) - 45));
  RoundingErrors errors;
  errors.add(std::span<const double>(values));
  for (const FormatZones& format : all_formats()) {
    if (format.precision > RoundingErrors::most_bits) {
      EXPECT_THROW((void)errors.squares(format.range, 0), std::invalid_argument);
      continue;
    }
    for (const int k : {-30, -3, 0, 7, 40}) {
      Rational error = 0, plain = 0;
      for (const double value : values) {
        const Rational x = oracle::rational(value), scale = power_of_two(k);
        const Rational spacing = power_of_two(std::ilogb(value) + k + 1 - format.precision);
        const Rational least = 2 * format.tie;  // the smallest subnormal number
        const Rational rounded = to_multiple(x * scale, spacing > least ? spacing : least) / scale;
        const Rational unlimited = to_multiple(x * scale, spacing) / scale;
        error += (x - rounded) * (x - rounded);
        plain += (x - unlimited) * (x - unlimited);
      }
      const RoundingErrors::Squares found = errors.squares(format.range, k);
      EXPECT_NEAR(static_cast<double>(Rational(oracle::rational(found.error) / error)), 1, 1e-14)
          << format.name << k;
      EXPECT_NEAR(static_cast<double>(Rational(oracle::rational(found.plain) / plain)), 1, 1e-14)
          << format.name << k;
      EXPECT_LE(found.lost, found.error);
    }
  }
}

TEST(RoundingErrors, AddUpInAnyOrder) {
  std::mt19937_64 random(4);
  std::vector<float> values;
  for (int i = 0; i < 3000; ++i) values.push_back(float_from_bits(static_cast<std::uint32_t>(random())));
  const std::span<const float> all(values);
  RoundingErrors whole, parts, others;
  whole.add(all);
  parts.add(all.first(1234));
  others.add(all.subspan(1234));
  others += parts;
  EXPECT_EQ(whole, others);
  EXPECT_NE(whole, parts);
  EXPECT_THROW(whole.add(std::span<const float>(std::vector<float>(RoundingErrors::most_values + 1))),
               std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
