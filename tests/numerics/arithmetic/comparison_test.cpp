// Comparisons, minima and maxima, neighbours and the total order, judged by the host's comparison of exact
// doubles.
#include "numerics/arithmetic/comparison.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/arithmetic_cases.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Number;

double value_of(const Number& x) {
  if (x.is_nan()) return std::nan("");
  if (x.is_infinite()) return x.negative ? -HUGE_VAL : HUGE_VAL;
  return x.real();
}

template <class F>
void expect_as_doubles(std::uint64_t a_bits, std::uint64_t b_bits) {
  constexpr oracle::Sizes sizes = oracle::sizes_of<F>();
  const Number a = oracle::number(sizes, a_bits);
  const Number b = oracle::number(sizes, b_bits);
  const auto x = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(a_bits));
  const auto y = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(b_bits));
  const double u = value_of(a);
  const double v = value_of(b);
  ExceptionFlags if_quiet, if_signaling;
  if_quiet.invalid = a.kind == Number::Kind::signaling_nan || b.kind == Number::Kind::signaling_nan;
  if_signaling.invalid = a.is_nan() || b.is_nan();
  const auto expect = [&](auto predicate, bool expected, const ExceptionFlags& expected_flags,
                          const char* name) {
    ExceptionFlags flags;
    ASSERT_EQ(predicate(x, y, ArithmeticOptions{}, &flags), expected)
        << name << ' ' << a_bits << ' ' << b_bits;
    ASSERT_EQ(flags, expected_flags) << name << ' ' << a_bits << ' ' << b_bits;
  };
  expect(equal<F>, u == v, if_quiet, "equal");
  expect(equal_signaling<F>, u == v, if_signaling, "equal_signaling");
  expect(less<F>, u < v, if_signaling, "less");
  expect(less_quiet<F>, u < v, if_quiet, "less_quiet");
  expect(less_equal<F>, u <= v, if_signaling, "less_equal");
  expect(less_equal_quiet<F>, u <= v, if_quiet, "less_equal_quiet");
  expect(unordered<F>, std::isunordered(u, v) != 0, if_quiet, "unordered");
  ASSERT_EQ(compare_quiet(x, y), std::isunordered(u, v) ? Relation::unordered
                                 : u < v                ? Relation::less
                                 : u > v                ? Relation::greater
                                                        : Relation::equal);

  // 9.6: -0 is below +0; NaN, or the number beside it.
  const bool a_first = u < v || (u == v && std::signbit(u) && !std::signbit(v));
  const bool any_nan = a.is_nan() || b.is_nan();
  const std::uint64_t lesser = a_first ? a_bits : b_bits;
  const std::uint64_t greater = a_first || a_bits == b_bits ? b_bits : a_bits;
  const std::uint64_t number = a.is_nan() ? (b.is_nan() ? F::canonical_nan : b_bits) : a_bits;
  const auto expect_bits = [&](auto function, std::uint64_t expected, const char* name) {
    ExceptionFlags flags;
    ASSERT_EQ(function(x, y, ArithmeticOptions{}, &flags).bits(), expected)
        << name << ' ' << a_bits << ' ' << b_bits;
    ASSERT_EQ(flags, if_quiet) << name << ' ' << a_bits << ' ' << b_bits;
  };
  expect_bits(minimum<F>, any_nan ? F::canonical_nan : lesser, "minimum");
  expect_bits(maximum<F>, any_nan ? F::canonical_nan : greater, "maximum");
  expect_bits(minimum_number<F>, any_nan ? number : lesser, "minimum_number");
  expect_bits(maximum_number<F>, any_nan ? number : greater, "maximum_number");
}

template <class F>
void test_all_pairs() {
  for (std::uint64_t a = 0; a < 256; ++a)
    for (std::uint64_t b = 0; b < 256; ++b) {
      expect_as_doubles<F>(a, b);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Comparison, AllPairsOfE4M3) { test_all_pairs<Fp8E4M3>(); }
TEST(Comparison, AllPairsOfE5M2) { test_all_pairs<Fp8E5M2>(); }

template <class F>
void test_corners_and_random() {
  constexpr oracle::Sizes sizes = oracle::sizes_of<F>();
  std::vector<std::uint64_t> codes = cases::corner_codes(sizes);
  std::mt19937_64 engine(42);
  for (std::size_t i = 0; i < 300; ++i) {
    codes.push_back(cases::random_code(sizes, engine, codes[i % 100]));
    codes.push_back(codes.back() ^ 1);
  }
  for (const std::uint64_t a : codes)
    for (const std::uint64_t b : codes) {
      expect_as_doubles<F>(a, b);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Comparison, FP16) { test_corners_and_random<Binary16>(); }
TEST(Comparison, BF16) { test_corners_and_random<BrainFloat16>(); }
TEST(Comparison, FP32) { test_corners_and_random<Binary32>(); }
TEST(Comparison, FP64) { test_corners_and_random<Binary64>(); }

/// Neighbours from the sorted list of all numbers, one zero among them.
template <class F>
void test_neighbours() {
  constexpr oracle::Sizes sizes = oracle::sizes_of<F>();
  std::vector<double> values;
  for (std::uint64_t code = 0; code < std::uint64_t{1} << F::width; ++code)
    if (const Number x = oracle::number(sizes, code); !x.is_nan()) values.push_back(value_of(x));
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());  // -0 == +0
  for (std::uint64_t code = 0; code < std::uint64_t{1} << F::width; ++code) {
    const Number number = oracle::number(sizes, code);
    const auto x = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(code));
    ExceptionFlags flags;
    const std::uint64_t up = next_up(x, &flags).bits();
    const std::uint64_t down = next_down(x, &flags).bits();
    ASSERT_EQ(flags.invalid, number.kind == Number::Kind::signaling_nan);
    if (number.is_nan()) {
      ASSERT_EQ(up, F::canonical_nan);
      ASSERT_EQ(down, F::canonical_nan);
      continue;
    }
    const auto here = std::lower_bound(values.begin(), values.end(), value_of(number));
    const double above = here + 1 == values.end() ? *here : *(here + 1);
    const double below = here == values.begin() ? *here : *(here - 1);
    ASSERT_EQ(value_of(oracle::number(sizes, up)), above) << code;
    ASSERT_EQ(value_of(oracle::number(sizes, down)), below) << code;
    // 5.3.1: the neighbour that is zero has the sign of the side it is reached from.
    if (above == 0) {
      ASSERT_TRUE(oracle::number(sizes, up).negative);
    }
    if (below == 0) {
      ASSERT_FALSE(oracle::number(sizes, down).negative);
    }
  }
}

TEST(Comparison, NeighboursOfAllFP16) { test_neighbours<Binary16>(); }
TEST(Comparison, NeighboursOfAllBF16) { test_neighbours<BrainFloat16>(); }
TEST(Comparison, NeighboursOfAllE4M3) { test_neighbours<Fp8E4M3>(); }
TEST(Comparison, NeighboursOfAllE5M2) { test_neighbours<Fp8E5M2>(); }

TEST(Comparison, TotalOrderOfE5M2) {
  // 5.10, from the greatest down: +NaN quiet before signalling, +Inf, numbers, +0, -0, numbers, -Inf, -NaN
  // signalling before quiet; payloads within.
  std::vector<std::uint64_t> descending;
  for (int code = 0x7f; code >= 0; --code) descending.push_back(static_cast<std::uint64_t>(code));
  for (int code = 0x80; code <= 0xff; ++code) descending.push_back(static_cast<std::uint64_t>(code));
  const auto number = [&](std::size_t i) {
    return Float8E5M2::from_bits(static_cast<std::uint8_t>(descending[i]));
  };
  for (std::size_t i = 0; i < 256; ++i)
    for (std::size_t j = 0; j < 256; ++j)
      ASSERT_EQ(total_order(number(i), number(j)), i >= j) << i << ' ' << j;
}

TEST(Comparison, FlushedOperandsAreZeros) {
  ArithmeticOptions flush;
  flush.flush_inputs = true;
  const auto code = [](std::uint16_t bits) { return Float16::from_bits(bits); };
  EXPECT_TRUE(equal(code(0x0001), code(0x83ff), flush));
  EXPECT_FALSE(less(code(0x8001), code(0x0400 - 1), flush));
  EXPECT_TRUE(less(code(0x83ff), code(0x0400), flush));
  EXPECT_EQ(minimum(code(0x8001), code(0x0002), flush).bits(), 0x8000);
  EXPECT_EQ(maximum(code(0x8001), code(0x0002), flush).bits(), 0x0000);
  EXPECT_EQ(maximum_number(code(0x7fff), code(0x8002), flush).bits(), 0x8000);
  EXPECT_EQ(minimum_number(code(0x03ff), code(0x7fff), flush).bits(), 0x0000);
}

}  // namespace
}  // namespace fp16lab
