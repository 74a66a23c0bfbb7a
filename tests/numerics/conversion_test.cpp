// Conversions between formats, judged by exact rationals written from the definition
// (tests/support/exact_rounding.hpp), by the compiler's _Float16, and array forms by scalar forms.
#include "numerics/convert.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
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
void expect_rounded(const ValueTable& table, From x) {
  const Rational magnitude = oracle::rational(std::fabs(x));
  const bool negative = std::signbit(x);
  for (const Rounding rounding : all_roundings) {
    const Rounded expected = table.round(magnitude, negative, rounding);
    const auto source =
        SmallFloat<std::conditional_t<sizeof(From) == 4, Binary32, Binary64>>::from_bits(bits_of(x));
    RoundingFlags flags;
    const SmallFloat<F> result = round_pack<F>(decode(source), rounding, &flags);
    ASSERT_EQ(result.magnitude(), expected.magnitude) << x << ' ' << name_of(rounding);
    ASSERT_EQ(result.sign(), negative) << x << ' ' << name_of(rounding);
    ASSERT_EQ(convert<F>(source, rounding).bits(), result.bits());
    ASSERT_EQ(flags.inexact, expected.inexact) << x << ' ' << name_of(rounding);
    ASSERT_EQ(flags.overflow, expected.overflow) << x << ' ' << name_of(rounding);
    ASSERT_EQ(flags.underflow, expected.underflow) << x << ' ' << name_of(rounding);
  }
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
    expect_rounded<Binary16>(binary16_values(), -x);
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
    expect_rounded<Binary16>(binary16_values(), -x);
    if (HasFatalFailure()) return;
  }
}

/// For formats other than FP16: values at every exponent of the format with the significands that matter.
template <class F>
void test_format() {
  const ValueTable table(F::exponent_bits, F::precision);
  for (int exponent = F::exponent_of_min_subnormal - 2; exponent <= F::emax + 1; ++exponent)
    for (const double significand :
         {1.0, 1.0 + 0x1p-52, 1.5, 2.0 - 0x1p-52, 2.0 - std::ldexp(1.0, -F::fraction_bits),
          2.0 - std::ldexp(1.0, -F::precision), 2.0 - std::ldexp(1.0, -F::precision - 1),
          1.0 + std::ldexp(1.0, -F::fraction_bits), 1.0 + std::ldexp(1.0, -F::precision),
          1.0 + std::ldexp(3.0, -F::precision), 1.0 + std::ldexp(1.0, -F::precision) + 0x1p-50,
          1.0 + std::ldexp(1.0, -F::precision) - 0x1p-50}) {
      expect_rounded<F>(table, std::ldexp(significand, exponent));
      expect_rounded<F>(table, -std::ldexp(significand, exponent));
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Conversion, DoublesToBFloat16ByExactRationals) { test_format<BrainFloat16>(); }
TEST(Conversion, DoublesToTensorFloat32ByExactRationals) { test_format<TensorFloat32>(); }
TEST(Conversion, DoublesToFp8E5M2ByExactRationals) { test_format<Fp8E5M2>(); }

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
  RoundingFlags flags;
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
    }
}

TEST(ArrayConversion, EqualsScalarOnCornersInEveryMode) {
  std::vector<float> from = cases::half_corners();
  const std::size_t positive = from.size();
  for (std::size_t i = 0; i < positive; ++i) from.push_back(-from[i]);
  for (const std::uint32_t bits :
       {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0x7fffffffu, 0x80000001u})
    from.push_back(float_from_bits(bits));
  std::vector<Float16> to(from.size());
  for (const Rounding rounding : all_roundings) {
    narrow(from, to, rounding);
    for (std::size_t i = 0; i < from.size(); ++i)
      ASSERT_EQ(to[i].bits(), narrow<Binary16>(from[i], rounding).bits())
          << from[i] << ' ' << name_of(rounding);
  }
}

/// Every instruction set that the build contains and this CPU has, not only the best one.
TEST(ArrayConversion, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 engine(11);
  std::vector<float> from = cases::half_corners();
  for (int i = 0; i < 100000; ++i) from.push_back(float_from_bits(static_cast<std::uint32_t>(engine())));
  std::vector<Float16> halves;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    halves.push_back(Float16::from_bits(static_cast<std::uint16_t>(bits)));
  std::vector<Float16> to(from.size());
  std::vector<float> wide(halves.size());
  int targets = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const std::string name = hwy::TargetName(target);
    ++targets;
    std::size_t wrong = 0;
    for (const Rounding rounding : all_roundings) {
      narrow(from, to, rounding);
      for (std::size_t i = 0; i < from.size(); ++i)
        wrong += to[i].bits() != narrow<Binary16>(from[i], rounding).bits() ? 1u : 0u;
    }
    widen(halves, wide);
    for (std::size_t i = 0; i < halves.size(); ++i)
      wrong += bits_of(wide[i]) != bits_of(widen(halves[i])) ? 1u : 0u;
    EXPECT_EQ(wrong, 0u) << name;
    std::printf("  instruction set %s\n", name.c_str());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  EXPECT_GE(targets, 1);
}

TEST(ArrayConversion, AllHalvesWidenAsScalarsDo) {
  std::vector<Float16> from;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    from.push_back(Float16::from_bits(static_cast<std::uint16_t>(bits)));
  std::vector<float> to(from.size());
  widen(from, to);
  for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(bits_of(to[i]), bits_of(widen(from[i]))) << i;
}

TEST(ArrayConversion, TouchesNothingButItsElementsAndThreadsDoNotShow) {
  std::mt19937 engine(3);
  for (const std::size_t n : {0u, 1u, 7u, 15u, 16u, 17u, 63u, 600001u}) {
    std::vector<float> from(n);
    for (float& x : from) x = float_from_bits(static_cast<std::uint32_t>(engine()));
    std::vector<Float16> one(n + 1, Float16::from_bits(0x1234));
    std::vector<Float16> two = one;
    narrow(from, std::span(one).first(n), Rounding::nearest_even, 1);
    narrow(from, std::span(two).first(n), Rounding::nearest_even, 2);
    EXPECT_EQ(one[n].bits(), 0x1234);
    std::vector<float> wide_one(n + 1, 42.0f);
    std::vector<float> wide_two = wide_one;
    widen(std::span(one).first(n), std::span(wide_one).first(n), 1);
    widen(std::span(two).first(n), std::span(wide_two).first(n), 2);
    EXPECT_EQ(wide_one[n], 42.0f);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(one[i].bits(), narrow<Binary16>(from[i]).bits());
      ASSERT_EQ(two[i].bits(), one[i].bits());
      ASSERT_EQ(bits_of(wide_one[i]), bits_of(widen(one[i])));
      ASSERT_EQ(bits_of(wide_two[i]), bits_of(wide_one[i]));
    }
  }
}

TEST(ArrayConversion, BadSizesAreNamed) {
  std::vector<float> from(3);
  std::vector<Float16> to(2);
  EXPECT_THROW(narrow(from, to), std::invalid_argument);
  EXPECT_THROW(widen(to, from), std::invalid_argument);
  to.resize(3);
  EXPECT_THROW(narrow(from, to, Rounding::nearest_even, 0), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
