// Values of dumps, counted: every FP64 binade against frexp, the other types against their own FP32 numbers.
#include "numerics/files/arrays/array_values.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "numerics/histogram/zones.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/array_files.hpp"

namespace fp16lab {
namespace {

using namespace testing_support;

const auto bins = std::make_shared<const ValueBins>(std::array{
    ScaledFormat{FormatRange::of<Binary16>(), 1.0}, ScaledFormat{FormatRange::of<Binary16>(), 0x1p-111}});

class ArrayValuesOfFiles : public Files {
 protected:
  ValueHistogram count(const std::string& name, const std::string& bytes) const {
    write_raw(name, bytes);
    const ArrayFile file(folder / name);
    return count_array(file, file.arrays()[0], bins);
  }
};

/// The bin (2^e, 2^(e+1)] of a finite non-zero number, clamped into the histogram's range. frexp: |x| = m
/// 2^k, m in [0.5, 1).
int bin_by_frexp(double x) {
  int k = 0;
  const double m = std::frexp(std::abs(x), &k);
  const int e = m == 0.5 ? k - 2 : k - 1;
  return std::clamp(e, ExponentHistogram::min_exponent, ExponentHistogram::max_exponent);
}

ValueHistogram counts_of(double x) {
  ValueHistogram values(bins);
  values.add(std::span<const double>(&x, 1));
  return values;
}

TEST(ArrayValuesOfDoubles, EveryBinadeAtBothOfItsEnds) {
  // All 2098 powers of two of FP64, the numbers beside them and the middle, both signs.
  for (int e = -1074; e <= 1023; ++e)
    for (const double x :
         {std::ldexp(1.0, e), std::nextafter(std::ldexp(1.0, e), 0.0),
          std::nextafter(std::ldexp(1.0, e), std::numeric_limits<double>::max()), std::ldexp(1.5, e)}) {
      if (x == 0) continue;
      for (const double value : {x, -x}) {
        const ValueHistogram counts = counts_of(value);
        ASSERT_EQ(counts.exponents().at(bin_by_frexp(value)), 1u) << value;
        ASSERT_EQ(counts.exponents().total(), 1u) << value;
        ASSERT_EQ(counts.below_fp32(), std::abs(value) < std::numeric_limits<float>::denorm_min() ? 1u : 0u)
            << value;
        ASSERT_EQ(counts.above_fp32(), std::abs(value) > std::numeric_limits<float>::max() ? 1u : 0u)
            << value;
      }
    }
}

TEST(ArrayValuesOfDoubles, NoneIsRoundedToFp32First) {
  // FP16's tie: 2^-25 rounds to zero, the next FP64 number does not; as FP32 they are the same number.
  const double tie = 0x1p-25, above = std::nextafter(tie, 1.0);
  ASSERT_EQ(static_cast<float>(tie), static_cast<float>(above));
  EXPECT_EQ(count_ranges(counts_of(tie), FormatRange::of<Binary16>(), 1.0).lost, (CountInterval{1, 1}));
  EXPECT_EQ(count_ranges(counts_of(above), FormatRange::of<Binary16>(), 1.0).lost, (CountInterval{0, 0}));
  // Far below FP32: a number that is lost, not a zero. Far above: a finite one that overflows, not an
  // infinity.
  const RangeCounts tiny = count_ranges(counts_of(0x1p-1000), FormatRange::of<Binary16>(), 1.0);
  EXPECT_EQ(tiny.zero, 0u);
  EXPECT_EQ(tiny.lost, (CountInterval{1, 1}));
  const RangeCounts huge = count_ranges(counts_of(0x1p1000), FormatRange::of<Binary16>(), 1.0);
  EXPECT_EQ(huge.infinite, 0u);
  EXPECT_EQ(huge.overflow, (CountInterval{1, 1}));
  EXPECT_EQ(count_ranges(counts_of(0x1p1000), FormatRange::of<Binary16>(), 0x1p-111).overflow,
            (CountInterval{1, 1}))
      << "numbers beyond FP32 keep their magnitude";
}

TEST(ArrayValuesOfDoubles, SpecialsHaveCountersOfTheirOwn) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{0.0,
                                   -0.0,
                                   infinity,
                                   -infinity,
                                   infinity,
                                   std::numeric_limits<double>::quiet_NaN(),
                                   std::bit_cast<double>(std::uint64_t{0xfff0000000000001})};
  ValueHistogram counts(bins);
  counts.add(std::span<const double>(values));
  EXPECT_EQ(counts.zero(), 2u);
  EXPECT_EQ(counts.infinite(), 3u);
  EXPECT_EQ(counts.nan(), 2u);
  EXPECT_EQ(counts.finite_nonzero(), 0u);
  EXPECT_EQ(counts.below_fp32() + counts.above_fp32(), 0u);
}

TEST(ArrayValuesOfDoubles, ManyRandomOnesAddUp) {
  std::mt19937_64 random(1);
  std::vector<double> values(10'003);
  ValueHistogram expected(bins);
  for (double& value : values) {
    value = std::bit_cast<double>(random());
    expected += counts_of(value);
  }
  ValueHistogram counts(bins);
  counts.add(std::span<const double>(values));
  EXPECT_EQ(counts, expected);
  EXPECT_EQ(counts.exponents().total(), values.size());
  EXPECT_GT(counts.below_fp32(), 4'000u);
  EXPECT_GT(counts.above_fp32(), 4'000u);
}

TEST_F(ArrayValuesOfFiles, Fp32ValuesCountAsTheirDoubles) {
  // All exponents of FP32, random fractions: as f4 and, exactly the same numbers, as f8.
  std::mt19937 random(2);
  std::string narrow, wide;
  constexpr int values = 40'000;
  for (int i = 0; i < values; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(random());
    narrow += little_endian(bits, 4);
    wide += little_endian(std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(bits))), 8);
  }
  const std::string shape = "(" + std::to_string(values) + ",)";
  EXPECT_EQ(count("n.npy", npy("<f4", shape, narrow)), count("w.npy", npy("<f8", shape, wide)));
}

TEST_F(ArrayValuesOfFiles, EveryCodeOfTheSmallFormats) {
  // OFP8 1.0, tables 1 and 2: E4M3 has 2 NaNs and no infinity, E5M2 6 NaNs and 2 infinities; both 2 zeros.
  std::string codes;
  for (int code = 0; code < 256; ++code) codes += static_cast<char>(code);
  const auto of = [&](const std::string& dtype) {
    return count("x.safetensors",
                 safetensors(R"({"x":{"dtype":")" + dtype + R"(","shape":[256],"data_offsets":[0,256]}})",
                             codes))
        .exponents();
  };
  const ExponentHistogram e4m3 = of("F8_E4M3"), e5m2 = of("F8_E5M2");
  EXPECT_EQ(e4m3.zero, 2u);
  EXPECT_EQ(e4m3.nan, 2u);
  EXPECT_EQ(e4m3.infinite, 0u);
  EXPECT_EQ(e4m3.at(8), 2u * 6) << "288, 320, ... 448 in (2^8, 2^9]";
  EXPECT_EQ(e4m3.at(-10), 2u) << "2^-9, the smallest subnormal, is the top of (2^-10, 2^-9]";
  EXPECT_EQ(e5m2.zero, 2u);
  EXPECT_EQ(e5m2.nan, 6u);
  EXPECT_EQ(e5m2.infinite, 2u);
  EXPECT_EQ(e5m2.at(15), 2u * 3) << "40960, 49152, 57344 in (2^15, 2^16]";
  EXPECT_EQ(e5m2.at(-17), 2u) << "2^-16";
  std::string halves;
  for (int code = 0; code < 65536; ++code) halves += little_endian(static_cast<std::uint64_t>(code), 2);
  const ExponentHistogram f2 = count("h.npy", npy("<f2", "(256, 256)", halves)).exponents();
  EXPECT_EQ(f2.zero, 2u);
  EXPECT_EQ(f2.infinite, 2u);
  EXPECT_EQ(f2.nan, 2u * 1023);
  EXPECT_EQ(f2.at(-25), 2u) << "2^-24";
  EXPECT_EQ(f2.at(0), 2u * 1024) << "(1, 2]";
}

TEST_F(ArrayValuesOfFiles, ThreadsNeverChangeCounts) {
  std::mt19937 random(3);
  std::string data;
  constexpr int values = 300'000;
  for (int i = 0; i < values; ++i) data += little_endian(random(), 4);
  write_raw("t.npy", npy("<f4", "(300000,)", data));
  const ArrayFile file(folder / "t.npy");
  EXPECT_EQ(count_array(file, file.arrays()[0], bins, 1), count_array(file, file.arrays()[0], bins, 2));
}

}  // namespace
}  // namespace fp16lab
