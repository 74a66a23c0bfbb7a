// Sums that never round, against exact rationals.
#include "numerics/exact_mass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/convert.hpp"
#include "numerics/range_counts.hpp"
#include "tests/numerics/histogram_cases.hpp"
#include "tests/numerics/zone_oracle.hpp"

namespace fp16lab {
namespace {

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
  Oracle(const oracle::FormatZones& format, const std::vector<T>& values, double scale) {
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
        Zone& zone = zones[format.zone_of(x * s)];
        ++zone.count;
        zone.l1 += x;
        zone.l2 += x * x;
      }
    }
  }
};

template <class T>
void expect_equal(const ExactZoneMass& mass, const std::vector<T>& values) {
  const auto& formats = oracle::all_formats();
  const auto format = std::find_if(formats.begin(), formats.end(),
                                   [&](const auto& one) { return one.range == mass.range(); });
  ASSERT_NE(format, formats.end());
  const Oracle exact(*format, values, mass.scale());
  EXPECT_EQ(mass.zero(), exact.zero);
  EXPECT_EQ(mass.infinite(), exact.infinite);
  EXPECT_EQ(mass.nan(), exact.nan);
  const ExactMass* const zones[] = {&mass.lost(), &mass.subnormal(), &mass.normal(), &mass.overflow()};
  Rational l1 = 0, l2 = 0;
  for (int zone = 0; zone < 4; ++zone) {
    EXPECT_EQ(zones[zone]->count, exact.zones[zone].count) << zone;
    EXPECT_EQ(value_of(zones[zone]->l1), exact.zones[zone].l1) << zone;
    EXPECT_EQ(value_of(zones[zone]->l2_squared), exact.zones[zone].l2) << zone;
    expect_nearest(zones[zone]->l1.nearest(), exact.zones[zone].l1);
    expect_nearest(zones[zone]->l2_squared.nearest(), exact.zones[zone].l2);
    l1 += exact.zones[zone].l1;
    l2 += exact.zones[zone].l2;
  }
  EXPECT_EQ(value_of(mass.total().l1), l1);
  EXPECT_EQ(value_of(mass.total().l2_squared), l2);
}

const double some_scales[] = {1.0, 3.0, 1.0 / 3.0, 0x1p15, 1e-300, 1e300, 0x1.8p-1030, 0x1p-1074};

TEST(ExactMass, FloatsOfEveryExponent) {
  for (const double scale : some_scales) {
    const std::vector<float> values = random_patterns(500, 11);
    for (const oracle::FormatZones& format : oracle::all_formats()) {
      ExactZoneMass mass(format.range, scale);
      mass.add(std::span<const float>(values));
      expect_equal(mass, values);
    }
  }
}

TEST(ExactMass, DoublesOfEveryExponent) {
  std::mt19937_64 engine(12);
  std::vector<double> values{0.0,      -0.0, INFINITY, NAN, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023,
                             0x1p-1022};
  for (int i = 0; i < 1000; ++i) values.push_back(double_from_bits(engine()));
  for (const double scale : some_scales) {
    ExactZoneMass mass(fp16_range, scale);
    mass.add(std::span<const double>(values));
    expect_equal(mass, values);
  }
}

TEST(ExactMass, TheZonesEdges) {
  // What FP16 makes of a value at scale 1, to the last bit on either side of every edge, in FP32 and FP64.
  const auto zone_of = [](auto x, double scale = 1.0) {
    ExactZoneMass mass(fp16_range, scale);
    const std::vector<decltype(x)> one{x};
    mass.add(std::span<const decltype(x)>(one));
    return mass.lost().count ? 'l' : mass.subnormal().count ? 's' : mass.normal().count ? 'n' : 'o';
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

TEST(ExactMass, NothingShowsHowTheValuesCame) {
  std::vector<float> values = random_patterns(200000, 13);
  ExactZoneMass whole(fp16_range, 4.0), threads(fp16_range, 4.0), pieces(fp16_range, 4.0),
      backwards(fp16_range, 4.0);
  whole.add(std::span<const float>(values));
  threads.add(std::span<const float>(values), 2);
  EXPECT_EQ(threads, whole);
  ExactZoneMass first(fp16_range, 4.0);
  first.add(std::span<const float>(values).first(70001));
  pieces.add(std::span<const float>(values).subspan(70001));
  pieces += first;
  EXPECT_EQ(pieces, whole);
  std::reverse(values.begin(), values.end());
  backwards.add(std::span<const float>(values), 2);
  EXPECT_EQ(backwards, whole);
  const std::vector<double> wide(values.begin(), values.end());
  ExactZoneMass doubles(fp16_range, 4.0);
  doubles.add(std::span<const double>(wide));
  EXPECT_EQ(doubles, whole);
  EXPECT_THROW(whole += ExactZoneMass(fp16_range, 5.0), std::invalid_argument);
  EXPECT_THROW(whole += ExactZoneMass(range_of(DType::bf16), 4.0), std::invalid_argument);
  EXPECT_THROW(whole.add(std::span<const float>(values), 0), std::invalid_argument);
  EXPECT_THROW(ExactZoneMass(fp16_range, 0.0), std::invalid_argument);
}

TEST(ExactMass, HalvesAreTheNumbersThatTheyAre) {
  std::vector<Float16> halves;
  std::vector<BFloat16> brains;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    halves.push_back(Float16::from_bits(static_cast<std::uint16_t>(code)));
    brains.push_back(BFloat16::from_bits(static_cast<std::uint16_t>(code)));
  }
  std::vector<float> wide(halves.size());
  const auto check = [&](const auto& codes) {
    widen(std::span(codes), std::span(wide));
    ExactZoneMass mass(fp16_range, 0.25), expected(fp16_range, 0.25);
    mass.add(std::span(codes));
    expected.add(std::span<const float>(wide));
    EXPECT_EQ(mass, expected);
  };
  check(std::as_const(halves));
  check(std::as_const(brains));
  // Both signs of all FP16 magnitudes: 2 sum over exponents 2^e (1024 * 1024 + 1023 * 1024 / 2) 2^-10, the subnormals
  // 2 * 2^-24 * 1023 * 1024 / 2.
  ExactZoneMass mass(fp16_range, 1.0);
  mass.add(std::span<const Float16>(halves));
  Rational l1 = power_of_two(-24) * 1023 * 1024;
  for (int e = -14; e <= 15; ++e) l1 += power_of_two(e - 9) * (1024 * 1024 + 1023 * 512);
  EXPECT_EQ(value_of(mass.total().l1), l1);
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

}  // namespace
}  // namespace fp16lab
