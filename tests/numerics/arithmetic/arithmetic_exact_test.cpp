// Scalar arithmetic of every kind of format, FP64 and the widest user formats included, judged by exact
// rationals (tests/support/arithmetic_oracle.hpp): corner cross products, then random operands with a fixed
// seed. Each case takes one rounding direction and tininess.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "tests/support/arithmetic_calls.hpp"
#include "tests/support/arithmetic_cases.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Number;
using oracle::Operation;
using oracle::Outcome;
using oracle::Sizes;

template <class F>
class ArithmeticExact : public testing::Test {};
// Format<2, 62> and Format<15, 49>: the largest precision and the largest range that Format admits.
using Formats =
    testing::Types<Binary16, Binary32, Binary64, BrainFloat16, Fp8E4M3, Format<6, 10>, Format<2, 62>,
                   Format<15, 49>, Format<8, 40, Encoding::numbers>, Format<4, 2>>;
TYPED_TEST_SUITE(ArithmeticExact, Formats);

constexpr std::array operations = {Operation::add, Operation::sub,       Operation::mul, Operation::div,
                                   Operation::fma, Operation::remainder, Operation::sqrt};

/// Draws a direction and a tininess for each case.
class Judge {
 public:
  template <class F>
  void expect(Operation operation, const Number& a, const Number& b, const Number& c) {
    constexpr Sizes sizes = oracle::sizes_of<F>();
    constexpr std::size_t directions = std::size(all_roundings);
    const std::size_t mode = engine_() % (2 * directions);
    ArithmeticOptions options(all_roundings[mode % directions]);
    options.tininess = mode < directions ? Tininess::after_rounding : Tininess::before_rounding;
    const Outcome expected =
        oracle::exact_outcome(operation, sizes, a, b, c, options.rounding, options.tininess);
    const Outcome actual = testing_support::outcome_of<F>(operation, a.bits, b.bits, c.bits, options);
    ASSERT_EQ(actual, expected) << testing_support::name_of(operation) << std::hex << ' ' << a.bits << ' '
                                << b.bits << ' ' << c.bits << ' ' << name_of(options.rounding) << ": "
                                << testing_support::text_of(actual) << ", expected "
                                << testing_support::text_of(expected);
  }

 private:
  std::mt19937_64 engine_{754};
};

/// IEEE remainder takes a quotient as long as the exponents' difference: only the oracle minds.
bool affordable(Operation operation, const Number& a, const Number& b) {
  return operation != Operation::remainder || a.exponent - b.exponent < 3000;
}

TYPED_TEST(ArithmeticExact, CornerPairs) {
  using F = TypeParam;
  Judge judge;
  std::vector<Number> corners;
  for (const std::uint64_t code : cases::corner_codes(oracle::sizes_of<F>()))
    corners.push_back(oracle::number(oracle::sizes_of<F>(), code));
  const std::size_t step = F::exponent_bits > 11 ? 7 : 1;  // rationals of 2^15 bits are slow
  for (std::size_t i = 0; i < corners.size(); ++i)
    for (std::size_t j = i % step; j < corners.size(); j += step)
      for (const Operation operation : operations) {
        if (operation == Operation::fma || operation == Operation::sqrt) continue;
        if (!affordable(operation, corners[i], corners[j])) continue;
        judge.template expect<F>(operation, corners[i], corners[j], {});
        if (testing::Test::HasFatalFailure()) return;
      }
  for (const Number& x : corners)
    for (int mode = 0; mode < 11; ++mode) judge.template expect<F>(Operation::sqrt, x, {}, {});
}

TYPED_TEST(ArithmeticExact, CornerTriplesAndRandomFma) {
  using F = TypeParam;
  constexpr Sizes sizes = oracle::sizes_of<F>();
  Judge judge;
  const std::vector<std::uint64_t> corners = cases::corner_codes(sizes);
  std::mt19937_64 engine(99);
  const int count = F::exponent_bits > 11 ? 3000 : 40000;
  for (int i = 0; i < count; ++i) {
    const bool corner = i % 2 == 0;
    const auto pick = [&](std::uint64_t near) {
      const std::uint64_t code =
          corner ? corners[engine() % corners.size()] : cases::random_code(sizes, engine, near);
      return oracle::number(sizes, code);
    };
    const Number a = pick(engine());
    const Number b = pick(a.bits);
    // For an addend of about the product's magnitude the fields add up, less one bias.
    const Number c = pick(a.bits + b.bits - (std::uint64_t{F::bias} << F::fraction_bits));
    judge.template expect<F>(Operation::fma, a, b, c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(ArithmeticExact, RandomPairs) {
  using F = TypeParam;
  constexpr Sizes sizes = oracle::sizes_of<F>();
  Judge judge;
  std::mt19937_64 engine(7);
  const int count = F::exponent_bits > 11 ? 5000 : 70000;
  for (int i = 0; i < count; ++i) {
    const Number a = oracle::number(sizes, cases::random_code(sizes, engine, engine()));
    const Number b = oracle::number(sizes, cases::random_code(sizes, engine, a.bits));
    const Operation operation = operations[static_cast<std::size_t>(i) % operations.size()];
    if (operation == Operation::fma || !affordable(operation, a, b)) continue;
    judge.template expect<F>(operation, a, operation == Operation::sqrt ? Number{} : b, {});
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// The two oracles were written apart: they must agree.
TYPED_TEST(ArithmeticExact, TheFasterOracleAgrees) {
  using F = TypeParam;
  if constexpr (F::precision <= 24 && F::exponent_bits <= 8) {
    constexpr Sizes sizes = oracle::sizes_of<F>();
    std::mt19937_64 engine(3);
    for (std::size_t i = 0; i < 20000; ++i) {
      const Number a = oracle::number(sizes, cases::random_code(sizes, engine, engine()));
      const Number b = oracle::number(sizes, cases::random_code(sizes, engine, a.bits));
      const Number c = oracle::number(sizes, cases::random_code(sizes, engine, b.bits));
      const Operation operation = operations[i % operations.size()];
      const Rounding rounding = all_roundings[i % std::size(all_roundings)];
      const Tininess tininess = i % 2 == 0 ? Tininess::after_rounding : Tininess::before_rounding;
      ASSERT_EQ(oracle::fp64_outcome(operation, sizes, a, b, c, rounding, tininess),
                oracle::exact_outcome(operation, sizes, a, b, c, rounding, tininess));
    }
  }
}

}  // namespace
}  // namespace fp16lab
