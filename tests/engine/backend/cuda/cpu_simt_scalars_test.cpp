// The scalar instructions of the host machine (engine/backend/cuda/runtime/instructions.hpp) against exact
// arithmetic and the definition of the formats.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "numerics/random/philox.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab::engine::cpu_simt {
namespace {

float fma_of_oracle(float a, float b, float c) {
  constexpr oracle::Sizes sizes{8, 24};
  const oracle::Outcome outcome = oracle::exact_outcome(
      oracle::Operation::fma, sizes, oracle::number(sizes, bits_of(a)), oracle::number(sizes, bits_of(b)),
      oracle::number(sizes, bits_of(c)), Rounding::nearest_even, Tininess::after_rounding);
  return float_from_bits(static_cast<std::uint32_t>(outcome.bits));
}

void expect_exact_fma(float a, float b, float c) {
  const float expected = fma_of_oracle(a, b, c), result = fused_multiply_add(a, b, c);
  if (std::isnan(expected))
    ASSERT_TRUE(std::isnan(result)) << a << " " << b << " " << c;
  else
    ASSERT_EQ(bits_of(result), bits_of(expected)) << std::hexfloat << a << " " << b << " " << c;
}

TEST(HostScalars, FmaRoundsTheExactValueOnce) {
  // Signs, ends of binades, significands around ties, subnormals and both ends of the range, all triples.
  std::vector<float> values{0.0f,
                            -0.0f,
                            1.0f,
                            -1.0f,
                            3.0f,
                            0x1.000002p0f,
                            0x1.fffffep-1f,
                            0x1.fffffep0f,
                            0x1.000002p-24f,
                            -0x1.fffffep-25f,
                            0x1p-24f,
                            0x1p-25f,
                            -0x1p-48f,
                            0x1.8p-24f,
                            0x1.555556p5f,
                            0x1p-126f,
                            0x1p-149f,
                            -0x1p-149f,
                            0x1.8p-148f,
                            0x1p-75f,
                            0x1.000002p-75f,
                            0x1p64f,
                            0x1.fffffep63f,
                            0x1.fffffep127f,
                            -0x1.fffffep127f,
                            0x1p103f,
                            INFINITY,
                            -INFINITY,
                            NAN};
  for (const float a : values)
    for (const float b : values)
      for (const float c : values) expect_exact_fma(a, b, c);
}

TEST(HostScalars, FmaRoundsNearTiesOnce) {
  // The sum of product and addend next to the middle of two neighbours: c of 24 bits, and a product that is
  // half its last place give or take a piece too small for FP64, where rounding twice goes wrong.
  const PhiloxStream words{.seed = 5, .stream = 6};
  int doubly_rounded_wrong = 0;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const PhiloxCounter word = words.block(i);
    const float c =
        std::ldexp(static_cast<float>(0x800000u | word[0] >> 9), static_cast<int>(word[1] % 40) - 43);
    int exponent = 0;
    std::frexp(c, &exponent);
    const float half_ulp = std::ldexp(1.0f, exponent - 25);
    // (1 + x)(1 - x) = 1 - x^2 with x = j 2^-23: off the tie by 2^-46 and more.
    const float x = std::ldexp(static_cast<float>(1 + word[2] % 31), -23);
    const float a = (word[3] & 1) != 0 ? 1.0f + x : 1.0f, b = (word[3] & 2) != 0 ? 1.0f - x : 1.0f;
    const float sign = (word[3] & 4) != 0 ? -1.0f : 1.0f;
    expect_exact_fma(a * half_ulp, sign * b, c);
    const double in_fp64 =
        static_cast<double>(a * half_ulp) * static_cast<double>(sign * b) + static_cast<double>(c);
    doubly_rounded_wrong +=
        bits_of(static_cast<float>(in_fp64)) != bits_of(fma_of_oracle(a * half_ulp, sign * b, c));
  }
  EXPECT_GT(doubly_rounded_wrong, 100) << "the cases are hard";
}

template <class Half>
void expect_conversions() {
  using Format = typename Half::Format;
  constexpr int places = Format::fraction_bits, emin = 1 - Format::bias;
  constexpr std::uint32_t infinity = ((1u << Format::exponent_bits) - 1) << places, sign_bit = 0x8000;
  const auto value_of =
      [](std::uint32_t magnitude) {  // IEEE 754-2019, 3.4; that of infinity is where overflow begins
        const std::uint32_t field = magnitude >> places, fraction = magnitude & ((1u << places) - 1);
        const std::uint32_t significand = fraction | (field > 0 ? 1u << places : 0u);
        return std::ldexp(static_cast<double>(significand),
                          emin + (field > 0 ? static_cast<int>(field) - 1 : 0) - places);
      };
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half low = Half::from_bits(static_cast<std::uint16_t>(bits));
    const std::uint32_t magnitude = bits & ~sign_bit;
    const bool negative = (bits & sign_bit) != 0;
    const float wide = loaded(low);
    ASSERT_EQ(stored<float>(wide) == wide, magnitude <= infinity);
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(wide));
      ASSERT_EQ(stored<Half>(wide).bits(), 0x7fff) << "the canonical NaN";
      continue;
    }
    const double exact = magnitude == infinity ? HUGE_VAL : value_of(magnitude);
    ASSERT_EQ(bits_of(static_cast<double>(wide)), bits_of(negative ? -exact : exact)) << bits;
    ASSERT_EQ(stored<Half>(wide).bits(), bits);
    if (magnitude == infinity) continue;
    // Half way to the next magnitude: to the even one; FP32 has the middle exactly, and its own neighbours.
    const auto middle = static_cast<float>((value_of(magnitude) + value_of(magnitude + 1)) / 2);
    const auto rounded = [&](float x) { return stored<Half>(negative ? -x : x).bits() & 0x7fffu; };
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), magnitude);
    ASSERT_EQ(rounded(middle), magnitude + (magnitude & 1));
    ASSERT_EQ(rounded(std::nextafter(middle, INFINITY)), magnitude + 1);
  }
}

TEST(HostScalars, ElementsLoadExactlyAndStoreRoundedToNearestEven) {
  expect_conversions<Float16>();
  expect_conversions<BFloat16>();
}

}  // namespace
}  // namespace fp16lab::engine::cpu_simt
