// The options of round_pack: stochastic rounding, flushing, saturation, formats without infinities.
// The IEEE directions and their flags are judged in conversion_test.cpp.
#include "numerics/arithmetic/round_pack.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "tests/support/cases.hpp"

namespace fp16lab {
namespace {

Exact finite(std::uint64_t significand, int exponent, bool sign = false) {
  return {Exact::Kind::finite, sign, significand, exponent, false};
}

ArithmeticOptions stochastic(std::uint32_t random_bits) {
  ArithmeticOptions options = Rounding::stochastic;
  options.random_bits = random_bits;
  return options;
}

/// The smallest random word that rounds `x` away from zero; 2^32 if none does. Rounding must be monotone in
/// the random bits, which the caller checks around the answer.
template <class F>
std::uint64_t threshold(const Exact& x) {
  const auto low = round_pack<F>(x, Rounding::toward_zero).magnitude();
  std::uint64_t first = 0, last = std::uint64_t{1} << 32;
  while (first < last) {
    const std::uint64_t middle = (first + last) / 2;
    if (round_pack<F>(x, stochastic(static_cast<std::uint32_t>(middle))).magnitude() != low)
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

// A discarded fraction of n / 2^m rounds up for exactly n * 2^(32-m) of the 2^32 random words.
TEST(StochasticRounding, RoundsUpForExactlyTheDiscardedShareOfRandomWords) {
  for (std::uint64_t fraction = 0; fraction < 0x2000; ++fraction) {  // 13 bits below a normal FP16 number
    const Exact x = finite((std::uint64_t{0x4d5} << 13) | fraction, -20);
    const std::uint64_t up = (std::uint64_t{1} << 32) - threshold<Binary16>(x);
    ASSERT_EQ(up, fraction << (32 - 13)) << fraction;
  }
  // Subnormal results: 1.5 * 2^-25 is 3/4 of the last place; 2^-40 is 2^-16 of it, 2^-57 less than any word.
  EXPECT_EQ((std::uint64_t{1} << 32) - threshold<Binary16>(finite(3, -26)), std::uint64_t{3} << 30);
  EXPECT_EQ((std::uint64_t{1} << 32) - threshold<Binary16>(finite(1, -40)), std::uint64_t{1} << 16);
  EXPECT_EQ((std::uint64_t{1} << 32) - threshold<Binary16>(finite(1, -56)), 1u);
  EXPECT_EQ(threshold<Binary16>(finite(1, -57)), std::uint64_t{1} << 32);
}

TEST(StochasticRounding, IsMonotoneInTheRandomBitsAndKeepsExactNumbers) {
  const Exact x = finite(0x80123, -19, true);
  const std::uint64_t first = threshold<Fp8E4M3>(x);
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 0x00fedcb9) {
    const auto result = round_pack<Fp8E4M3>(x, stochastic(static_cast<std::uint32_t>(word)));
    EXPECT_EQ(result.bits(), word >= first ? 0xb9 : 0xb8) << word;
  }
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = Float16::from_bits(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(convert<Binary16>(half, stochastic(0xffffffffu)).bits(), bits);
  }
}

TEST(StochasticRounding, OverflowsToInfinityAboveTheLargestNumber) {
  const Exact x = finite(0xfff, 4);  // 65520, half way from 65504 to 2^16
  EXPECT_EQ(round_pack<Binary16>(x, stochastic(0x7fffffffu)).bits(), Binary16::max_finite);
  EXPECT_EQ(round_pack<Binary16>(x, stochastic(0x80000000u)).bits(), Binary16::infinity);
  EXPECT_EQ(round_pack<Binary16>(finite(1, 16), stochastic(0)).bits(), Binary16::infinity);
}

// OFP8 revision 1.0: E4M3 overflows to NaN, or saturates to 448; the largest number that rounds to 448 is
// 464.
TEST(RoundPack, FormatsWithoutInfinitiesOverflowToNan) {
  const auto e4m3 = [](double x, bool saturate) {
    ArithmeticOptions options;
    options.saturate = saturate;
    ExceptionFlags flags;
    const auto bits = convert<Fp8E4M3>(SmallFloat<Binary64>::from_bits(bits_of(x)), options, &flags).bits();
    EXPECT_EQ(flags.overflow, std::isfinite(x) && std::fabs(x) > 464);
    return bits;
  };
  EXPECT_EQ(e4m3(464, false), 0x7e);
  EXPECT_EQ(e4m3(464.0000001, false), 0x7f);
  EXPECT_EQ(e4m3(-1e300, false), 0xff);
  EXPECT_EQ(e4m3(HUGE_VAL, false), 0x7f);
  EXPECT_EQ(e4m3(464.0000001, true), 0x7e);
  EXPECT_EQ(e4m3(-HUGE_VAL, true), 0xfe);
  EXPECT_EQ(e4m3(std::nan(""), true), 0x7f);
  EXPECT_EQ(round_pack<Fp8E4M3>(finite(449, 0), Rounding::toward_zero).bits(), 0x7e);
  EXPECT_EQ(round_pack<Fp8E4M3>(finite(449, 0), Rounding::upward).bits(), 0x7f);
  EXPECT_EQ(round_pack<Fp8E4M3>(finite(449, 0), Rounding::downward).bits(), 0x7e);
}

TEST(RoundPack, SaturationReplacesEveryInfinity) {
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                  Rounding::downward, Rounding::nearest_away, Rounding::stochastic}) {
    ArithmeticOptions options = rounding;
    options.saturate = true;
    for (const bool sign : {false, true}) {
      const std::uint16_t expected = Binary16::max_finite | (sign ? Binary16::sign_mask : 0);
      EXPECT_EQ(round_pack<Binary16>(finite(1, 16, sign), options).bits(), expected) << name_of(rounding);
      EXPECT_EQ(round_pack<Binary16>({Exact::Kind::infinite, sign, 0, 0, false}, options).bits(), expected);
    }
  }
}

// PTX ISA, .ftz: subnormal results are flushed to zero of the same sign.
TEST(RoundPack, FlushingTurnsSubnormalResultsIntoSignedZeros) {
  ArithmeticOptions flush;
  flush.flush_results = true;
  for (const float x : cases::half_corners())
    for (const float value : {x, -x}) {
      const Float16 kept = narrow<Binary16>(value);
      ExceptionFlags flags;
      const Float16 flushed =
          convert<Binary16>(SmallFloat<Binary32>::from_bits(bits_of(value)), flush, &flags);
      if (kept.is_subnormal()) {
        ASSERT_EQ(flushed.bits(), kept.sign() ? 0x8000 : 0) << value;
        ASSERT_TRUE(flags.inexact && flags.underflow) << value;
      } else {
        ASSERT_EQ(flushed.bits(), kept.bits()) << value;
      }
    }
}

TEST(RoundPack, FlushedInputsAreZeros) {
  ArithmeticOptions flush;
  flush.flush_inputs = true;
  EXPECT_EQ(convert<Binary32>(Float16::from_bits(0x83ff), flush).bits(), 0x80000000u);
  EXPECT_EQ(convert<Binary32>(Float16::from_bits(0x0400), flush).bits(), bits_of(0x1p-14f));
}

TEST(RoundPack, SignallingNansAreInvalid) {
  ExceptionFlags flags;
  EXPECT_EQ(convert<Binary16>(SmallFloat<Binary32>::from_bits(0xff800001), {}, &flags).bits(), 0x7fff);
  EXPECT_EQ(flags, (ExceptionFlags{.invalid = true}));
  flags = {};
  convert<Binary16>(SmallFloat<Binary32>::from_bits(0xffc00001), {}, &flags);
  convert<Binary16>(Float8E4M3::from_bits(0x7f), {}, &flags);
  EXPECT_EQ(flags, ExceptionFlags{});
}

}  // namespace
}  // namespace fp16lab
