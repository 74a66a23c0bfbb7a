// One row of the list (e3m4_row.hpp) takes a format that no source names through inspect, conversions,
// exponent counts and what-if zones; e3m4_dot_test.cpp has the tensor core's dot product. The oracle lists a
// format's values from two numbers of bits, in rationals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "analysis/inspection.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/value_histogram.hpp"
#include "tests/numerics/histogram/zone_oracle.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab {
namespace {

using oracle::power_of_two, oracle::Rational;
using Row = DTypeRow<DType::e3m4>;
using Code = Row::Element;
using E3M4 = Row::Format;

/// Every code below infinity and its value; infinity's code is 0x70.
const oracle::ValueTable& table() {
  static const std::string name = title_of(DType::e3m4);  // says both sizes
  static const oracle::ValueTable values(name[1] - '0', name[3] - '0' + 1);
  return values;
}
constexpr std::uint8_t infinity = 0x70, nan = 0x7f, sign = 0x80;

/// All numbers of the format, the midpoints between them, the neighbours of both, and numbers far outside.
std::vector<float> telling_floats() {
  std::vector<float> floats{0.0f, 0x1p-149f, 0x1p-126f, 0x1p-40f, 0x1p20f, 0x1.fffffep127f};
  for (std::uint64_t code = 0; code < infinity; ++code)
    for (const Rational& x :
         {table().value(code), Rational((table().value(code) + table().value(code + 1)) / 2)}) {
      const auto middle = static_cast<float>(x);
      for (const float near : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)})
        floats.push_back(near);
    }
  const std::size_t positive = floats.size();
  for (std::size_t i = 0; i < positive; ++i) floats.push_back(-floats[i]);
  return floats;
}

std::uint8_t rounded(float x, Rounding rounding) {
  const bool negative = std::signbit(x);
  const auto magnitude = table().round(oracle::rational(std::abs(x)), negative, rounding).magnitude;
  return static_cast<std::uint8_t>(magnitude | (negative ? sign : 0));
}

TEST(E3M4, IsOneRowOfTheList) {
  EXPECT_EQ(dtype_called<is_fp8>("e3m4"), DType::e3m4);
  EXPECT_EQ(title_of(DType::e3m4), "E3M4");
  EXPECT_EQ(size_of(DType::e3m4), 1u);
  EXPECT_TRUE(is_low_precision(DType::e3m4) && is_file_low_precision(DType::e3m4) &&
              !is_tensor_float(DType::e3m4));
}

TEST(E3M4, InspectRoundsAndTakesApart) {
  const analysis::NamedFormat format = analysis::parse_format("E3M4");
  const std::vector<Rounding> roundings(std::begin(all_roundings), std::end(all_roundings));
  for (const float x : telling_floats()) {
    const auto bits = fmt::format("f32:0x{:x}", bits_of(x));
    const analysis::FormatReport report = analysis::report_on(analysis::parse_value(bits), format, roundings);
    ASSERT_EQ(report.rounded.size(), roundings.size());
    for (const analysis::RoundedValue& value : report.rounded)
      EXPECT_EQ(value.code.bits, rounded(x, value.rounding)) << bits << " " << name_of(value.rounding);
  }
  for (std::uint64_t code = 0; code < infinity; ++code) {
    const auto value = analysis::parse_value(fmt::format("e3m4:0x{:02x}", code));
    EXPECT_EQ(value.number.value.to_double(), static_cast<double>(table().value(code))) << code;
  }
  EXPECT_EQ(analysis::parse_value("e3m4:0xf0").exact(), "-inf");
  EXPECT_EQ(analysis::parse_value("e3m4:0x71").exact(), "nan");
}

TEST(E3M4, ConversionsRoundAsRationalsDo) {
  const std::vector<float> floats = telling_floats();
  const std::vector<double> doubles(floats.begin(), floats.end());
  std::vector<Code> codes(floats.size()), of_doubles(floats.size());
  for (const Rounding rounding : all_roundings) {
    narrow(std::span(floats), std::span(codes), rounding);
    narrow(std::span(doubles), std::span(of_doubles), rounding);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const std::uint8_t expected = rounded(floats[i], rounding);
      ASSERT_EQ(narrow<E3M4>(floats[i], rounding).bits(), expected) << floats[i] << " " << name_of(rounding);
      ASSERT_EQ(codes[i].bits(), expected) << floats[i] << " " << name_of(rounding);
      ASSERT_EQ(of_doubles[i].bits(), expected) << floats[i] << " " << name_of(rounding);
    }
  }
  std::vector<Code> all(256);
  for (unsigned bits = 0; bits < 256; ++bits) all[bits] = Code::from_bits(static_cast<std::uint8_t>(bits));
  std::vector<float> wide(256);
  widen(all, std::span(wide));
  for (unsigned bits = 0; bits < 256; ++bits) {
    const unsigned magnitude = bits % sign;
    float expected = std::numeric_limits<float>::quiet_NaN();
    if (magnitude < infinity) expected = static_cast<float>(table().value(magnitude));
    if (magnitude == infinity) expected = std::numeric_limits<float>::infinity();
    EXPECT_EQ(bits_of(wide[bits]), bits_of(widen(all[bits])));
    if (magnitude > infinity)
      EXPECT_EQ(bits_of(wide[bits]), 0x7fffffffu);
    else
      EXPECT_EQ(bits_of(wide[bits]), bits_of(bits < sign ? expected : -expected)) << bits;
  }
  EXPECT_EQ(narrow<E3M4>(std::numeric_limits<float>::quiet_NaN()).bits(), nan);
}

TEST(E3M4, CountsAndWhatIfZones) {
  // Largest finite number: (2 - 2^-4) 2^3 = 15.5. Its significand is odd, so half a place above overflows.
  const oracle::FormatZones zones{
      "e3m4", range_of(DType::e3m4), power_of_two(-7), power_of_two(-2), Rational(63, 4), true, 5};
  std::mt19937 random(31);
  std::vector<float> values = telling_floats();
  for (int i = 0; i < 2000; ++i)
    values.push_back(
        std::ldexp(static_cast<float>(random() % 4096) - 2048, static_cast<int>(random() % 24) - 24));

  ExponentHistogram before, counted, after;
  std::vector<Code> codes(values.size());
  count_exponents(values, counted);
  narrow_and_count(values, std::span(codes), before);
  EXPECT_EQ(before, counted);
  std::vector<float> stored(codes.size());
  widen(codes, std::span(stored));
  count_exponents(stored, after);

  for (const double scale : {1.0, 0x1p-3, 0x1p9, 3.0}) {
    const ScaledFormat scaled{zones.range, scale};
    ValueHistogram exact(std::make_shared<ValueBins>(std::span(&scaled, 1)));
    exact.add(std::span<const float>(values));
    std::array<std::uint64_t, 4> expected{};
    for (const float value : values)
      if (value != 0)
        ++expected[static_cast<std::size_t>(
            zones.zone_of(oracle::rational(std::abs(value)) * Rational(scale)))];
    const RangeCounts bounds = count_ranges(before, zones.range, scale),
                      sure = count_ranges(exact, zones.range, scale);
    const auto expect_zone = [&](std::size_t zone, const CountInterval& interval,
                                 const CountInterval& known) {
      EXPECT_LE(interval.lower, expected[zone]) << zone << " at " << scale;
      EXPECT_GE(interval.upper, expected[zone]) << zone << " at " << scale;
      EXPECT_EQ(known, (CountInterval{expected[zone], expected[zone]})) << zone << " at " << scale;
    };
    expect_zone(0, bounds.lost, sure.lost);
    expect_zone(1, bounds.subnormal, sure.subnormal);
    expect_zone(2, bounds.normal, sure.normal);
    expect_zone(3, bounds.overflow, sure.overflow);
    EXPECT_TRUE(bounds.lost.exact() || scale == 3.0);
    if (scale != 1.0) continue;
    const CastCounts cast = cast_counts(before, after);
    EXPECT_EQ(cast.underflow, expected[0]);
    EXPECT_EQ(cast.overflow, expected[3]);
  }
}

}  // namespace
}  // namespace fp16lab
