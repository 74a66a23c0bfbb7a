// Conversions between formats and integers, judged by exact rationals and 128-bit integers.
#include "numerics/arithmetic/integer_conversion.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/arithmetic_cases.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Integer;
using oracle::Number;
using oracle::Outcome;
using oracle::Rational;

struct Converted {
  Integer value;
  ExceptionFlags flags;
};

/// 5.8 by definition; out of range the nearest integer of the type, for NaN zero.
template <class Int>
Converted converted(const Number& x, Rounding rounding, bool exact) {
  const Integer least = std::numeric_limits<Int>::min();
  const Integer largest = std::numeric_limits<Int>::max();
  Converted result;
  if (x.kind != Number::Kind::finite) {
    result.flags.invalid = true;
    result.value = x.is_nan() ? Integer(0) : x.negative ? least : largest;
    return result;
  }
  const Rational value = x.rational();
  const Rational magnitude = x.negative ? Rational(-value) : value;
  result.value = oracle::round_to_multiple(magnitude, 1, x.negative, rounding);
  if (x.negative) result.value = -result.value;
  if (result.value < least || result.value > largest) {
    result.flags.invalid = true;
    result.value = x.negative ? least : largest;
    return result;
  }
  result.flags.inexact = exact && Rational(result.value) != value;
  return result;
}

template <class Int, class F>
void expect_converted(std::uint64_t code) {
  const Number number = oracle::number(oracle::sizes_of<F>(), code);
  const auto x = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(code));
  for (const Rounding rounding : all_roundings) {
    ExceptionFlags flags, exact_flags;
    const Int result = to_integer<Int>(x, rounding, &flags);
    const Int exact_result = to_integer_exact<Int>(x, rounding, &exact_flags);
    const Converted expected = converted<Int>(number, rounding, true);
    ASSERT_EQ(Integer(exact_result), expected.value) << std::hex << code << ' ' << name_of(rounding);
    ASSERT_EQ(exact_flags, expected.flags) << std::hex << code << ' ' << name_of(rounding);
    ASSERT_EQ(result, exact_result) << std::hex << code << ' ' << name_of(rounding);
    ASSERT_EQ(flags, converted<Int>(number, rounding, false).flags) << std::hex << code;
  }
}

template <class F>
void expect_all_integers(std::uint64_t code) {
  expect_converted<std::int32_t, F>(code);
  expect_converted<std::uint32_t, F>(code);
  expect_converted<std::int64_t, F>(code);
  expect_converted<std::uint64_t, F>(code);
}

TEST(IntegerConversion, AllOfE4M3AndE5M2) {
  for (std::uint64_t code = 0; code < 256; ++code) {
    expect_all_integers<Fp8E4M3>(code);
    expect_all_integers<Fp8E5M2>(code);
    if (HasFatalFailure()) return;
  }
}

TEST(IntegerConversion, AllOfFP16) {
  for (std::uint64_t code = 0; code < 65536; ++code) {
    expect_all_integers<Binary16>(code);
    if (HasFatalFailure()) return;
  }
}

/// Numbers around every power of two that an integer type ends at, and around integers and their middles.
template <class F>
void test_edges() {
  constexpr oracle::Sizes sizes = oracle::sizes_of<F>();
  std::vector<std::uint64_t> codes = cases::corner_codes(sizes);
  for (const int exponent :
       {-2, -1, 0, 1, 2, 10, 22, 23, 24, 29, 30, 31, 32, 33, 51, 52, 53, 61, 62, 63, 64, 65}) {
    const auto field = static_cast<std::uint64_t>(exponent + F::bias);
    for (std::uint64_t low = 0; low < 16; ++low)
      for (const std::uint64_t fraction : {low, F::fraction_mask - low, (F::fraction_mask >> 1) - 8 + low,
                                           ((low + 1) << F::fraction_bits >> 4) & F::fraction_mask}) {
        codes.push_back(field << F::fraction_bits | (fraction & F::fraction_mask));
        codes.push_back(codes.back() | F::sign_mask);
      }
  }
  std::mt19937_64 engine(11);
  for (int i = 0; i < 3000; ++i)
    codes.push_back((engine() & (F::sign_mask | F::fraction_mask)) | (F::bias - 2 + engine() % 68)
                                                                         << F::fraction_bits);
  for (const std::uint64_t code : codes) {
    expect_all_integers<F>(code);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(IntegerConversion, EdgesOfFP32) { test_edges<Binary32>(); }
TEST(IntegerConversion, EdgesOfFP64) { test_edges<Binary64>(); }
TEST(IntegerConversion, EdgesOfBF16) { test_edges<BrainFloat16>(); }
TEST(IntegerConversion, EdgesOfAWideFormat) { test_edges<Format<10, 54>>(); }

template <class F, class Int>
void expect_from(Int n) {
  constexpr oracle::Sizes sizes = oracle::sizes_of<F>();
  for (const Rounding rounding : all_roundings) {
    Outcome actual, expected;
    actual.bits = from_integer<F>(n, rounding, &actual.flags).bits();
    if (n != 0) expected = oracle::rounded(sizes, Rational(Integer(n)), rounding, Tininess::after_rounding);
    ASSERT_EQ(actual, expected) << n << ' ' << name_of(rounding);
  }
}

template <class Int>
void test_from() {
  std::mt19937_64 engine(17);
  std::vector<Int> integers = {0,
                               1,
                               2,
                               3,
                               std::numeric_limits<Int>::min(),
                               std::numeric_limits<Int>::max(),
                               std::numeric_limits<Int>::min() + 1,
                               std::numeric_limits<Int>::max() - 1,
                               65503,
                               65504,
                               65505,
                               65519,
                               65520,
                               65521,
                               447,
                               448,
                               449,
                               463,
                               464,
                               465};
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t word = engine() >> (engine() % 64);
    integers.push_back(static_cast<Int>(word));
    integers.push_back(static_cast<Int>(0 - word));
    integers.push_back(static_cast<Int>((word | 1) << (i % 40)));  // ties and their neighbours
  }
  for (const Int n : integers) {
    expect_from<Binary16>(n);
    expect_from<BrainFloat16>(n);
    expect_from<Binary32>(n);
    expect_from<Binary64>(n);
    expect_from<Fp8E4M3>(n);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(IntegerConversion, FromSigned32) { test_from<std::int32_t>(); }
TEST(IntegerConversion, FromUnsigned32) { test_from<std::uint32_t>(); }
TEST(IntegerConversion, FromSigned64) { test_from<std::int64_t>(); }
TEST(IntegerConversion, FromUnsigned64) { test_from<std::uint64_t>(); }

}  // namespace
}  // namespace fp16lab
