// Scalar arithmetic of the formats up to FP32, values and flags, judged by the host's FP64 with its rounding
// error (tests/support/arithmetic_oracle.hpp) and by golden vectors; options beyond IEEE by what they mean.
#include "numerics/arithmetic/arithmetic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "tests/support/arithmetic_calls.hpp"
#include "tests/support/arithmetic_cases.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Number;
using oracle::Operation;
using oracle::Outcome;
using oracle::Sizes;
using testing_support::name_of;
using testing_support::outcome_of;
using testing_support::text_of;

constexpr std::array binary_operations = {Operation::add, Operation::sub, Operation::mul, Operation::div,
                                          Operation::remainder};
constexpr std::array tininesses = {Tininess::after_rounding, Tininess::before_rounding};

ArithmeticOptions options_of(Rounding rounding, Tininess tininess) {
  ArithmeticOptions options(rounding);
  options.tininess = tininess;
  return options;
}

/// All five directions, both tininesses. A failure prints the case and stops the test.
template <class F>
void expect_as_fp64(Operation operation, const Number& a, const Number& b, const Number& c) {
  constexpr Sizes sizes = oracle::sizes_of<F>();
  for (const Rounding rounding : all_roundings)
    for (const Tininess tininess : tininesses) {
      const Outcome expected = oracle::fp64_outcome(operation, sizes, a, b, c, rounding, tininess);
      const Outcome actual = outcome_of<F>(operation, a.bits, b.bits, c.bits, options_of(rounding, tininess));
      ASSERT_EQ(actual, expected) << name_of(operation) << std::hex << ' ' << a.bits << ' ' << b.bits << ' '
                                  << c.bits << ' ' << name_of(rounding) << ": " << text_of(actual)
                                  << ", expected " << text_of(expected);
    }
}

template <class F>
void test_all_pairs() {
  constexpr Sizes sizes = oracle::sizes_of<F>();
  static_assert(F::width == 8);
  for (std::uint64_t a = 0; a < 256; ++a)
    for (std::uint64_t b = 0; b < 256; ++b)
      for (const Operation operation : binary_operations) {
        expect_as_fp64<F>(operation, oracle::number(sizes, a), oracle::number(sizes, b), {});
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Arithmetic, AllPairsOfE4M3) { test_all_pairs<Fp8E4M3>(); }
TEST(Arithmetic, AllPairsOfE5M2) { test_all_pairs<Fp8E5M2>(); }

template <class F>
void test_all_of_16_bits() {
  constexpr Sizes sizes = oracle::sizes_of<F>();
  static_assert(F::width == 16);
  for (std::uint64_t a = 0; a < 65536; ++a) {
    const Number x = oracle::number(sizes, a);
    expect_as_fp64<F>(Operation::sqrt, x, {}, {});
    for (const Rounding rounding : all_roundings) {
      const auto code = SmallFloat<F>::from_bits(static_cast<std::uint16_t>(a));
      ExceptionFlags flags, exact_flags;
      const SmallFloat<F> result = round_to_integral(code, rounding, &flags);
      const SmallFloat<F> exact_result = round_to_integral_exact(code, rounding, &exact_flags);
      ASSERT_EQ(result.bits(), exact_result.bits());
      ExceptionFlags expected;
      expected.invalid = x.kind == Number::Kind::signaling_nan;
      ASSERT_EQ(flags, expected);
      if (x.is_nan()) {
        ASSERT_EQ(result.bits(), F::canonical_nan);
      } else if (x.is_infinite()) {
        ASSERT_EQ(result.bits(), a);
      } else {
        const double value = x.real();
        const double floor = std::floor(value);
        const double ceil = std::ceil(value);
        double integer = 0;
        switch (rounding) {
          case Rounding::nearest_even:
            integer = std::nearbyint(value);
            break;
          case Rounding::nearest_away:
            integer = std::round(value);
            break;
          case Rounding::toward_zero:
            integer = std::trunc(value);
            break;
          case Rounding::upward:
            integer = ceil;
            break;
          case Rounding::downward:
          case Rounding::stochastic:
            integer = floor;
            break;
        }
        ASSERT_EQ(oracle::number(sizes, result.bits()).real(), integer) << a;
        ASSERT_EQ(result.sign(), x.negative) << a;
        expected.inexact = integer != value;
      }
      ASSERT_EQ(exact_flags, expected) << a;
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Arithmetic, SqrtAndRoundToIntegralOfAllFP16) { test_all_of_16_bits<Binary16>(); }
TEST(Arithmetic, SqrtAndRoundToIntegralOfAllBF16) { test_all_of_16_bits<BrainFloat16>(); }
TEST(Arithmetic, SqrtAndRoundToIntegralOfAllOfAUserFormat) { test_all_of_16_bits<Format<6, 10>>(); }

template <class F>
void test_corners_and_random() {
  constexpr Sizes sizes = oracle::sizes_of<F>();
  std::vector<Number> corners;
  for (const std::uint64_t code : cases::corner_codes(sizes)) corners.push_back(oracle::number(sizes, code));
  for (const Number& a : corners)
    for (const Number& b : corners) {
      for (const Operation operation : binary_operations) expect_as_fp64<F>(operation, a, b, {});
      if (testing::Test::HasFatalFailure()) return;
    }
  std::mt19937_64 engine(20240607);
  const auto pick = [&](std::uint64_t other) {
    if (engine() % 4 == 0) return corners[engine() % corners.size()];
    return oracle::number(sizes, cases::random_code(sizes, engine, other));
  };
  for (int i = 0; i < 100000; ++i) {
    const Number a = pick(engine());
    const Number b = pick(a.bits);
    // An addend of about the product's magnitude: the middle field of the two beyond the bias.
    const Number c =
        pick(i % 2 == 0 ? a.bits : a.bits + b.bits - (std::uint64_t{F::bias} << F::fraction_bits));
    expect_as_fp64<F>(Operation::fma, a, b, c);
    expect_as_fp64<F>(binary_operations[static_cast<std::size_t>(i) % 5], a, b, {});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Arithmetic, CornersAndRandomFP16) { test_corners_and_random<Binary16>(); }
TEST(Arithmetic, CornersAndRandomBF16) { test_corners_and_random<BrainFloat16>(); }
TEST(Arithmetic, CornersAndRandomTF32) { test_corners_and_random<TensorFloat32>(); }
TEST(Arithmetic, CornersAndRandomFP32) { test_corners_and_random<Binary32>(); }
TEST(Arithmetic, CornersAndRandomE4M3) { test_corners_and_random<Fp8E4M3>(); }
TEST(Arithmetic, CornersAndRandomE5M2) { test_corners_and_random<Fp8E5M2>(); }
TEST(Arithmetic, CornersAndRandomOfAUserFormat) { test_corners_and_random<Format<6, 10>>(); }
TEST(Arithmetic, CornersAndRandomOfAUserFormatWithoutInfinity) {
  test_corners_and_random<Format<3, 5, Encoding::numbers>>();
}

TEST(Arithmetic, GoldenVectors) {
  std::ifstream file(FP16LAB_SOURCE_DIR "/tests/golden/plain_fp16.tsv");
  ASSERT_TRUE(file);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string operation;
    std::array<std::uint32_t, 4> words{};
    fields >> operation >> std::hex;
    std::size_t count = 0;
    while (count < 4 && fields >> words[count]) ++count;
    const auto half = [&](std::size_t i) { return Float16::from_bits(static_cast<std::uint16_t>(words[i])); };
    std::uint32_t result = 0;
    if (operation == "add" && count == 3)
      result = add(half(0), half(1)).bits();
    else if (operation == "mul" && count == 3)
      result = mul(half(0), half(1)).bits();
    else if (operation == "fma" && count == 4)
      result = fma(half(0), half(1), half(2)).bits();
    else if (operation == "cvt" && count == 2)
      result = convert<Binary16>(SmallFloat<Binary32>::from_bits(words[0])).bits();
    else
      FAIL() << line;
    EXPECT_EQ(result, words[count - 1]) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 17);
}

TEST(Arithmetic, FlushedOperandsAreZerosOfTheirSign) {
  constexpr Sizes sizes = oracle::sizes_of<Fp8E5M2>();
  ArithmeticOptions flush(Rounding::upward);
  flush.flush_inputs = true;
  const auto flushed = [](std::uint64_t code) { return (code & 0x7c) == 0 ? code & 0x80 : code; };
  for (std::uint64_t a = 0; a < 256; ++a)
    for (std::uint64_t b = 0; b < 256; ++b) {
      for (const Operation operation : binary_operations)
        ASSERT_EQ(outcome_of<Fp8E5M2>(operation, a, b, 0, flush),
                  oracle::fp64_outcome(operation, sizes, oracle::number(sizes, flushed(a)),
                                       oracle::number(sizes, flushed(b)), {}, Rounding::upward,
                                       Tininess::after_rounding));
      ASSERT_EQ(
          outcome_of<Fp8E5M2>(Operation::fma, a, b, b ^ 0x83, flush),
          outcome_of<Fp8E5M2>(Operation::fma, flushed(a), flushed(b), flushed(b ^ 0x83), Rounding::upward));
    }
}

TEST(Arithmetic, FlushedAndSaturatedResults) {
  ArithmeticOptions flush, saturate;
  flush.flush_results = true;
  saturate.saturate = true;
  for (std::uint64_t a = 0; a < 256; ++a)
    for (std::uint64_t b = 0; b < 256; ++b)
      for (const Operation operation : binary_operations) {
        const Outcome plain = outcome_of<Fp8E5M2>(operation, a, b, 0, Rounding::nearest_even);
        const Outcome flushed = outcome_of<Fp8E5M2>(operation, a, b, 0, flush);
        const bool subnormal = (plain.bits & 0x7f) != 0 && (plain.bits & 0x7f) < 0x04;
        ASSERT_EQ(flushed.bits, subnormal ? plain.bits & 0x80 : plain.bits);
        ASSERT_EQ(flushed.flags.inexact, plain.flags.inexact || subnormal);
        ASSERT_EQ(flushed.flags.underflow, plain.flags.underflow || subnormal);
        const Outcome saturated = outcome_of<Fp8E5M2>(operation, a, b, 0, saturate);
        ASSERT_EQ(saturated.bits, (plain.bits & 0x7f) == 0x7c ? plain.bits - 1 : plain.bits);
        ASSERT_EQ(saturated.flags, plain.flags);
      }
}

TEST(Arithmetic, StochasticRoundingGoesUpWhereTheBitsSay) {
  // floor(2^32 * discarded fraction) + random_bits >= 2^32 decides; the fraction is found in FP64 from the
  // two neighbours.
  constexpr Sizes sizes = oracle::sizes_of<Binary16>();
  std::mt19937_64 engine(5);
  int inexact = 0;
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t a = engine() & 0x7bff;
    const std::uint64_t b = engine() & 0x7bff;
    const double product = oracle::number(sizes, a).real() * oracle::number(sizes, b).real();
    const Outcome below = outcome_of<Binary16>(Operation::mul, a, b, 0, Rounding::toward_zero);
    if (below.flags.overflow || !below.flags.inexact) continue;
    ++inexact;
    const double low = oracle::number(sizes, below.bits).real();
    const double high = below.bits == 0x7bff ? 65536 : oracle::number(sizes, below.bits + 1).real();
    const auto fraction = static_cast<std::uint64_t>((product - low) / (high - low) * 0x1p32);  // exact
    const auto rounded = [&](std::uint64_t bits) {
      ArithmeticOptions options(Rounding::stochastic);
      options.random_bits = static_cast<std::uint32_t>(bits);
      return outcome_of<Binary16>(Operation::mul, a, b, 0, options).bits;
    };
    const std::uint64_t threshold = (std::uint64_t{1} << 32) - fraction;
    ASSERT_EQ(rounded(0), below.bits);
    ASSERT_EQ(rounded(threshold - 1), below.bits);
    if (fraction > 0) {
      ASSERT_EQ(rounded(threshold), below.bits + 1);
    }
  }
  EXPECT_GT(inexact, 50000);
}

TEST(Arithmetic, ScaleBAndLogB) {
  constexpr Sizes sizes = oracle::sizes_of<Binary16>();
  for (std::uint64_t code = 0; code < 65536; ++code) {
    const Number x = oracle::number(sizes, code);
    const auto half = Float16::from_bits(static_cast<std::uint16_t>(code));
    ExceptionFlags flags;
    const int exponent = log_b(half, {}, &flags);
    if (x.kind == Number::Kind::finite && x.significand != 0) {
      ASSERT_EQ(exponent, std::ilogb(x.real()));
      ASSERT_EQ(flags, ExceptionFlags{});
    } else {
      ASSERT_TRUE(flags.invalid);
      ASSERT_EQ(exponent, x.is_zero() ? std::numeric_limits<int>::min() : std::numeric_limits<int>::max());
    }
    for (const int n : {-2000000000, -45, -11, -1, 0, 1, 14, 45, 2000000000}) {
      Outcome actual;
      actual.bits = scale_b(half, n, Rounding::nearest_even, &actual.flags).bits();
      const int near = std::max(-100, std::min(100, n));
      Outcome expected;
      if (x.kind == Number::Kind::finite && x.significand != 0)
        expected = oracle::rounded(sizes, oracle::HeadTail{std::ldexp(x.real(), near), 0},
                                   Rounding::nearest_even, Tininess::after_rounding);
      else {
        expected.bits = x.is_nan() ? 0x7fff : code;
        expected.flags.invalid = x.kind == Number::Kind::signaling_nan;
      }
      ASSERT_EQ(actual, expected) << code << ' ' << n;
    }
  }
}

}  // namespace
}  // namespace fp16lab
