// Conversions between formats, judged by exact rationals written from the definition
// (tests/support/exact_rounding.hpp) and by the compiler's _Float16. The array forms have files of their own.
#include "numerics/convert/convert.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/cases.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab {
namespace {

using oracle::Rational;
using oracle::Rounded;
using oracle::ValueTable;

const ValueTable& binary16_values() {
  static const ValueTable table(5, 11);
  return table;
}

template <class F, class From>
void expect_rounded(const ValueTable& table, const ValueTable::Place& place, From x) {
  const bool negative = std::signbit(x);
  for (const Rounding rounding : all_roundings) {
    const Rounded expected = table.round(place, negative && F::has_sign, rounding);
    const auto source =
        SmallFloat<std::conditional_t<sizeof(From) == 4, Binary32, Binary64>>::from_bits(bits_of(x));
    ExceptionFlags flags;
    const SmallFloat<F> result = round_pack<F>(decode(source), rounding, &flags);
    ASSERT_EQ(result.bits(), table.code(expected.magnitude, negative && F::has_sign))
        << x << ' ' << name_of(rounding);
    ASSERT_EQ(flags.invalid, negative && !F::has_sign && x != 0) << x << ' ' << name_of(rounding);
    ASSERT_EQ(convert<F>(source, rounding).bits(), result.bits());
    ASSERT_EQ(flags.inexact, expected.inexact) << x << ' ' << name_of(rounding);
    ASSERT_EQ(flags.overflow, expected.overflow) << x << ' ' << name_of(rounding);
    ASSERT_EQ(flags.underflow, expected.underflow) << x << ' ' << name_of(rounding);
    ArithmeticOptions before = rounding;
    before.tininess = Tininess::before_rounding;
    ExceptionFlags flags_before;
    ASSERT_EQ(round_pack<F>(decode(source), before, &flags_before).bits(), result.bits());
    ASSERT_EQ(flags_before.underflow, expected.underflow_before) << x << ' ' << name_of(rounding);
  }
}
/// x and -x.
template <class F, class From>
void expect_rounded(const ValueTable& table, From x) {
  const ValueTable::Place place = table.place(oracle::rational(std::fabs(x)));
  expect_rounded<F>(table, place, x);
  expect_rounded<F>(table, place, -x);
}

TEST(Conversion, AllHalvesWidenExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half = Float16::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = widen(half);
    const std::uint32_t magnitude = bits % 0x8000;
    if (magnitude > 0x7c00) {
      ASSERT_EQ(bits_of(wide), 0x7fffffffu) << bits;
      ASSERT_EQ(narrow<Binary16>(wide).bits(), 0x7fff);
      continue;
    }
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    if (magnitude == 0x7c00)
      ASSERT_TRUE(std::isinf(wide));
    else
      ASSERT_EQ(oracle::rational(std::fabs(wide)), binary16_values().value(magnitude)) << bits;
    for (const Rounding rounding : all_roundings) ASSERT_EQ(narrow<Binary16>(wide, rounding).bits(), bits);
#if defined(__FLT16_MAX__)
    ASSERT_EQ(bits_of(static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)))),
              bits_of(wide));
#endif
  }
}

TEST(Conversion, SinglesToHalvesByExactRationals) {
  for (const float x : cases::half_corners()) {
    expect_rounded<Binary16>(binary16_values(), x);
    if (HasFatalFailure()) return;
  }
}

TEST(Conversion, DoublesToHalvesByExactRationals) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023, 0x1p16, 0x1p17};
  std::vector<double> corners;
  const std::vector<float> singles = cases::half_corners();
  for (std::size_t i = 2; i < singles.size(); i += 5 * 7)
    corners.push_back(singles[i]);  // every seventh half or midpoint
  for (int e = -26; e <= 16; ++e) corners.push_back(std::ldexp(1.0, e));
  for (const double x : {65504.0, 65520.0, 65536.0, 0x1p-14 - 0x1p-25, 0x1p-14 - 0x1p-26})
    corners.push_back(x);
  for (const double x : corners)
    for (const double y : {std::nextafter(x, 0.0), x, std::nextafter(x, infinity)}) values.push_back(y);
  for (const double x : values) {
    expect_rounded<Binary16>(binary16_values(), x);
    if (HasFatalFailure()) return;
  }
}

/// For formats other than FP16: values at every exponent of the format with the significands that matter.
template <class F>
void test_format() {
  const ValueTable table = ValueTable::of<F>();
  expect_rounded<F>(table, 0.0);
  for (int exponent = F::exponent_of_min_subnormal - 2; exponent <= F::emax + 1; ++exponent)
    for (const double significand :
         {1.0, 1.0 + 0x1p-52, 1.5, 2.0 - 0x1p-52, 2.0 - std::ldexp(1.0, -F::fraction_bits),
          2.0 - std::ldexp(1.0, -F::precision), 2.0 - std::ldexp(1.0, -F::precision - 1),
          1.0 + std::ldexp(1.0, -F::fraction_bits), 1.0 + std::ldexp(1.0, -F::precision),
          1.0 + std::ldexp(3.0, -F::precision), 1.0 + std::ldexp(1.0, -F::precision) + 0x1p-50,
          1.0 + std::ldexp(1.0, -F::precision) - 0x1p-50}) {
      expect_rounded<F>(table, std::ldexp(significand, exponent));
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Conversion, DoublesToBFloat16ByExactRationals) { test_format<BrainFloat16>(); }
TEST(Conversion, DoublesToTensorFloat32ByExactRationals) { test_format<TensorFloat32>(); }
TEST(Conversion, DoublesToFp8E5M2ByExactRationals) { test_format<Fp8E5M2>(); }
TEST(Conversion, DoublesToFp8E4M3ByExactRationals) { test_format<Fp8E4M3>(); }
TEST(Conversion, DoublesToFp6AndFp4ByExactRationals) {
  test_format<Fp6E3M2>();
  test_format<Fp6E2M3>();
  test_format<Fp4E2M1>();
}
TEST(Conversion, DoublesToFnuzByExactRationals) {
  test_format<Fp8E4M3Fnuz>();
  test_format<Fp8E5M2Fnuz>();
}
TEST(Conversion, DoublesToScalesByExactRationals) {
  test_format<ScaleE8M0>();
  test_format<ScaleUE4M3>();
  test_format<Format<5, 1, Encoding::scale>>();
}
TEST(Conversion, DoublesToUserFormatsByExactRationals) {
  test_format<Format<6, 10>>();
  test_format<Format<2, 2>>();
  test_format<Format<3, 5, Encoding::numbers>>();
}

TEST(Conversion, DoublesToSinglesAsTheHardwareRounds) {
  std::mt19937_64 engine(7);
  for (int i = 0; i < 300000; ++i) {
    double x = double_from_bits(engine());
    if (i % 2 == 0)
      x = std::ldexp(1.0 + static_cast<double>(engine() >> 12) * 0x1p-52,
                     static_cast<int>(engine() % 290) - 155);
    if (i % 4 == 0) x = double_from_bits(bits_of(x) & ~((std::uint64_t{1} << 28) - 1));  // exact, or a tie
    if (std::isnan(x)) continue;
    ASSERT_EQ(convert<Binary32>(SmallFloat<Binary64>::from_bits(bits_of(x))).bits(),
              bits_of(static_cast<float>(x)))
        << x;
  }
}

TEST(Conversion, StickyBitsDecide) {
  // 1 + 2^-11 is a tie in FP16; anything below it in the sticky bit breaks the tie upwards.
  Exact exact{Exact::Kind::finite, false, (1u << 13) | (1u << 2), -13, false};
  EXPECT_EQ(round_pack<Binary16>(exact, Rounding::nearest_even).bits(), 0x3c00);
  exact.sticky = true;
  ExceptionFlags flags;
  EXPECT_EQ(round_pack<Binary16>(exact, Rounding::nearest_even, &flags).bits(), 0x3c01);
  EXPECT_TRUE(flags.inexact);
  EXPECT_FALSE(flags.underflow || flags.overflow);
  // Exactly representable but for the sticky bit: only directed rounding moves.
  exact = {Exact::Kind::finite, true, 1u << 13, -13, true};
  EXPECT_EQ(round_pack<Binary16>(exact, Rounding::nearest_away).bits(), 0xbc00);
  EXPECT_EQ(round_pack<Binary16>(exact, Rounding::downward).bits(), 0xbc01);
}

TEST(Conversion, NansBecomeCanonical) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffc00000u, 0xffffffffu, 0x7f801000u})
    for (const Rounding rounding : all_roundings) {
      EXPECT_EQ(narrow<Binary16>(float_from_bits(bits), rounding).bits(), 0x7fff);
      EXPECT_EQ(narrow<BrainFloat16>(float_from_bits(bits), rounding).bits(), 0x7fff);
      EXPECT_EQ(narrow<Fp8E5M2>(float_from_bits(bits), rounding).bits(), 0x7f);
      EXPECT_EQ(narrow<Fp8E4M3Fnuz>(float_from_bits(bits), rounding).bits(), 0x80);
      EXPECT_EQ(narrow<ScaleE8M0>(float_from_bits(bits), rounding).bits(), 0xff);
      EXPECT_EQ(narrow<ScaleUE4M3>(float_from_bits(bits), rounding).bits(), 0x7f);
    }
}

TEST(Conversion, FormatsWithoutNanStoreTheLargestNumberAndRaiseInvalid) {
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u}) {
    ExceptionFlags flags;
    EXPECT_EQ(convert<Fp4E2M1>(SmallFloat<Binary32>::from_bits(bits), {}, &flags).bits(), 7);
    EXPECT_TRUE(flags.invalid);
    EXPECT_EQ(narrow<Fp6E2M3>(float_from_bits(bits)).bits(), 0x1f);
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(narrow<Fp4E2M1>(-infinity).bits(), 0xf);
  EXPECT_EQ(narrow<Fp8E5M2Fnuz>(-infinity).bits(), 0x80);
  EXPECT_EQ(narrow<ScaleE8M0>(-infinity).bits(), 0xff);
  ArithmeticOptions saturating;
  saturating.saturate = true;
  EXPECT_EQ(narrow<ScaleE8M0>(-infinity, saturating).bits(), 0xfe);
  EXPECT_EQ(narrow<Fp8E5M2Fnuz>(-infinity, saturating).bits(), 0xff);
}

}  // namespace
}  // namespace fp16lab
