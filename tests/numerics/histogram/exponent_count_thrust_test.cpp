// Counting by Thrust against counting one by one. Without Thrust's headers these tests say SKIPPED.
#include "numerics/histogram/exponent_count_thrust.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "tests/numerics/histogram/histogram_cases.hpp"

namespace fp16lab {
namespace {

class ThrustCounting : public testing::Test {
 protected:
  void SetUp() override {
    if (have_thrust_counting()) return;
    ExponentHistogram histogram;
    EXPECT_THROW(count_exponents_by_thrust(std::span<const float>(), histogram), std::runtime_error);
    GTEST_SKIP() << "built without libthrust-dev";
  }
};

TEST_F(ThrustCounting, EqualsCountingOneByOne) {
  for (const std::size_t n : {0u, 1u, 2u, 63u, 4097u, 250001u}) {
    const std::vector<float> values = random_patterns(n, static_cast<std::uint32_t>(n) + 1);
    ExponentHistogram expected, counted;
    for (const float x : values) expected.count(bits_of(x));
    count_exponents_by_thrust(std::span<const float>(values), counted);
    EXPECT_EQ(counted, expected) << n;
    count_exponents_by_thrust(std::span<const float>(values), counted);  // it adds
    expected += expected;
    EXPECT_EQ(counted, expected) << n;
  }
}

TEST_F(ThrustCounting, AllCodesOfSixteenBits) {
  std::vector<Float16> halves;
  std::vector<BFloat16> brains;
  ExponentHistogram expected_halves, expected_brains;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    halves.push_back(Float16::from_bits(static_cast<std::uint16_t>(code)));
    brains.push_back(BFloat16::from_bits(static_cast<std::uint16_t>(code)));
    expected_halves.count(bits_of(widen(halves.back())));
    expected_brains.count(code << 16);
  }
  ExponentHistogram counted_halves, counted_brains;
  count_exponents_by_thrust(std::span<const Float16>(halves), counted_halves);
  count_exponents_by_thrust(std::span<const BFloat16>(brains), counted_brains);
  EXPECT_EQ(counted_halves, expected_halves);
  EXPECT_EQ(counted_brains, expected_brains);
}

}  // namespace
}  // namespace fp16lab
