// FP16 add, mul and div over all 2^32 pairs of operands, or every n-th of them: FP16LAB_SWEEP_STRIDE (an odd
// number; 1 is everything). Each pair is judged to nearest even and in one more direction, values and flags,
// by the host's FP64 with its rounding error (tests/support/arithmetic_oracle.hpp).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/arithmetic_calls.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Number;
using oracle::Operation;
using oracle::Outcome;

constexpr oracle::Sizes half_sizes = oracle::sizes_of<Binary16>();

std::uint64_t stride_from_environment() {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = text == nullptr ? 29 : std::stoull(text);
  return stride | 1;  // odd, so that every residue of the low bits occurs
}

const std::vector<Number>& numbers() {
  static const std::vector<Number> table = [] {
    std::vector<Number> all;
    for (std::uint64_t code = 0; code < 65536; ++code) all.push_back(oracle::number(half_sizes, code));
    return all;
  }();
  return table;
}

const std::vector<double>& values() {
  static const std::vector<double> table = [] {
    std::vector<double> all;
    for (const Number& x : numbers()) all.push_back(x.real());
    return all;
  }();
  return table;
}

constexpr std::array other_roundings = {Rounding::toward_zero, Rounding::upward, Rounding::downward,
                                        Rounding::nearest_away};

/// Expected is what oracle::fp64_outcome gives, with the operands' values from a table and the exact result
/// once for both directions.
std::uint64_t mismatches(Operation operation, std::uint64_t pair) {
  const std::size_t a = pair >> 16;
  const std::size_t b = pair & 0xffff;
  const Number &x = numbers()[a], &y = numbers()[b];
  const auto special = oracle::special(operation, half_sizes, x, y, {});
  const oracle::HeadTail exact =
      special ? oracle::HeadTail{} : oracle::head_tail(operation, values()[a], values()[b], 0);
  std::uint64_t wrong = 0;
  const std::uint64_t turn =
      pair * 0x9e3779b97f4a7c15u >> 61;  // a hash: directions and tininess in no pattern
  for (const Rounding rounding : {Rounding::nearest_even, other_roundings[turn % 4]}) {
    ArithmeticOptions options(rounding);
    options.tininess = turn < 4 ? Tininess::after_rounding : Tininess::before_rounding;
    Outcome expected;
    if (special)
      expected = *special;
    else if (exact.head != 0)
      expected = oracle::rounded(half_sizes, exact, rounding, options.tininess);
    else if (oracle::sign_of_zero(operation, x, y, {}, rounding))
      expected.bits = half_sizes.sign_mask();
    if (testing_support::outcome_of<Binary16>(operation, a, b, 0, options) != expected) ++wrong;
  }
  return wrong;
}

class ArithmeticSweep : public testing::TestWithParam<Operation> {};

TEST_P(ArithmeticSweep, EveryPairOfHalves) {
  const Operation operation = GetParam();
  const std::uint64_t stride = stride_from_environment();
  constexpr std::uint64_t pairs = std::uint64_t{1} << 32;
  const auto count = static_cast<std::int64_t>((pairs + stride - 1) / stride);
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic, 65536) reduction(+ : wrong) num_threads(2)
  for (std::int64_t i = 0; i < count; ++i)
    wrong += mismatches(operation, static_cast<std::uint64_t>(i) * stride);
  EXPECT_EQ(wrong, 0u);
  RecordProperty("pairs", std::to_string(count));
}

INSTANTIATE_TEST_SUITE_P(, ArithmeticSweep, testing::Values(Operation::add, Operation::mul, Operation::div),
                         [](const auto& parameter) {
                           return std::string(testing_support::name_of(parameter.param));
                         });

}  // namespace
}  // namespace fp16lab
