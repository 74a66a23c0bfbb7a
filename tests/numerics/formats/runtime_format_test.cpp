// RuntimeFormat against Format, code for code, and round_bits against round_pack.
#include "numerics/formats/runtime_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>

#include "numerics/arithmetic/comparison.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

template <class F>
class RuntimeFormats : public testing::Test {};
using Formats = testing::Types<Binary16, BrainFloat16, TensorFloat32, Binary32, Binary64, Fp8E4M3, Fp8E5M2,
                               Fp8E4M3Fnuz, Fp6E3M2, Fp4E2M1, ScaleE8M0, ScaleUE4M3, Format<2, 2>,
                               Format<6, 10>, Format<3, 4, Encoding::numbers>, Format<15, 49>>;
TYPED_TEST_SUITE(RuntimeFormats, Formats);

TYPED_TEST(RuntimeFormats, HasTheConstantsOfTheType) {
  using F = TypeParam;
  const RuntimeFormat format = RuntimeFormat::of<F>();
  EXPECT_EQ(format.width, F::width);
  EXPECT_EQ(format.bias, F::bias);
  EXPECT_EQ(format.emax, F::emax);
  EXPECT_EQ(format.emin, F::emin);
  EXPECT_EQ(format.exponent_of_min_subnormal, F::exponent_of_min_subnormal);
  EXPECT_EQ(format.sign_mask, F::sign_mask);
  EXPECT_EQ(format.fraction_mask, F::fraction_mask);
  EXPECT_EQ(format.exponent_mask, F::exponent_mask);
  EXPECT_EQ(format.infinity, F::infinity);
  EXPECT_EQ(format.max_finite, F::max_finite);
  EXPECT_EQ(format.min_normal, F::min_normal);
  EXPECT_EQ(format.quiet_bit, F::quiet_bit);
  EXPECT_EQ(format.canonical_nan, F::canonical_nan);
}

template <class F>
void expect_same_code(const RuntimeFormat& format, std::uint64_t bits) {
  const auto x = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
  const Exact expected = decode(x);
  const Exact exact = format.decode(bits);
  ASSERT_EQ(exact.kind, expected.kind) << bits;
  ASSERT_EQ(exact.sign, expected.sign) << bits;
  ASSERT_EQ(exact.significand, expected.significand) << bits;
  ASSERT_EQ(exact.exponent, expected.exponent) << bits;
  ASSERT_EQ(format.is_nan(bits), x.is_nan());
  ASSERT_EQ(format.is_finite(bits), x.is_finite());
  ASSERT_EQ(format.next_up(bits), next_up(x).bits()) << bits;
  ASSERT_EQ(format.next_down(bits), next_down(x).bits()) << bits;
}

TYPED_TEST(RuntimeFormats, DecodesAndStepsAsTheTypeDoes) {
  using F = TypeParam;
  const RuntimeFormat format = RuntimeFormat::of<F>();
  const std::uint64_t last = F::sign_mask | F::magnitude_mask;
  std::mt19937_64 random(3);
  constexpr std::uint64_t all = std::uint64_t{1} << 16;
  for (std::uint64_t i = 0; i < all && !this->HasFatalFailure(); ++i)
    expect_same_code<F>(format, last < all ? std::min(i, last) : random() & last);
  for (const std::uint64_t magnitude : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{F::max_finite},
                                        std::uint64_t{F::infinity}, std::uint64_t{F::canonical_nan}}) {
    expect_same_code<F>(format, magnitude);
    expect_same_code<F>(format, magnitude | F::sign_mask);
  }
}

/// A number near something of the format: its ends, its subnormals, ties; with and without a sticky bit.
template <class F>
Exact draw(std::mt19937_64& random) {
  Exact exact{Exact::Kind::finite, random() % 2 == 0, 0, 0, random() % 2 == 0};
  exact.significand = random() | std::uint64_t{1} << 63;
  if (random() % 2 == 0) exact.significand &= ~std::uint64_t{0} << (62 - F::fraction_bits);  // exact or a tie
  if (random() % 4 == 0) exact.significand |= ~std::uint64_t{0} << (63 - F::fraction_bits);  // carries
  const std::uint64_t span = static_cast<std::uint64_t>(F::emax - F::exponent_of_min_subnormal) + 8;
  const int leading = static_cast<int>(random() % span) + F::exponent_of_min_subnormal - 4;
  exact.exponent = leading - 63;
  return exact;
}

TYPED_TEST(RuntimeFormats, RoundsAsRoundPackDoes) {
  using F = TypeParam;
  const RuntimeFormat format = RuntimeFormat::of<F>();
  std::mt19937_64 random(5);
  for (int i = 0; i < 50000; ++i) {
    Exact exact = draw<F>(random);
    if (i < 6) exact.kind = i < 2 ? Exact::Kind::zero : i < 4 ? Exact::Kind::infinite : Exact::Kind::nan;
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                    Rounding::downward, Rounding::nearest_away, Rounding::stochastic}) {
      ArithmeticOptions options = rounding;
      options.random_bits = static_cast<std::uint32_t>(random());
      options.saturate = random() % 4 == 0;
      options.flush_results = random() % 4 == 0;
      options.tininess = random() % 2 == 0 ? Tininess::after_rounding : Tininess::before_rounding;
      ExceptionFlags expected_flags, flags;
      const auto expected = round_pack<F>(exact, options, &expected_flags);
      ASSERT_EQ(format.round(exact, options, &flags), expected.bits()) << i << ' ' << name_of(rounding);
      ASSERT_EQ(flags, expected_flags) << i << ' ' << name_of(rounding);
      ASSERT_EQ(round_bits(F{}, exact, options), expected.bits());
    }
  }
}

TEST(RuntimeFormat, RefusesImpossibleSizes) {
  EXPECT_EQ(testing_support::message_of([] { RuntimeFormat(1, 5); }),
            "format: 1 exponent bits; 2 to 15 are possible");
  EXPECT_THROW(RuntimeFormat(16, 5), std::invalid_argument);
  EXPECT_THROW(RuntimeFormat(5, 1), std::invalid_argument);
  EXPECT_EQ(RuntimeFormat(5, 1, Encoding::scale).width, 5);
  EXPECT_THROW(RuntimeFormat(15, 50), std::invalid_argument);
  EXPECT_EQ(RuntimeFormat(15, 49).width, 64);
}

}  // namespace
}  // namespace fp16lab
