// Special values, known values, constant expressions and a digest of the elementary functions. All arguments:
// elementary_sweep_test.
#include "numerics/elementary/elementary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/numerics/elementary/elementary_functions.hpp"

namespace fp16lab::test {
namespace {

float value_of(Elementary function, float x) {
  float y = 0;
  apply(function, &x, &y, 1);
  return y;
}

TEST(Elementary, SpecialValues) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const ElementaryProperties& f : elementary_properties) {
    SCOPED_TRACE(f.name);
    EXPECT_EQ(bits_of(value_of(f.function, 0.0f)), f.at_zero);
    EXPECT_EQ(bits_of(value_of(f.function, -0.0f)), f.at_minus_zero);
    EXPECT_EQ(bits_of(value_of(f.function, infinity)), f.at_infinity);
    EXPECT_EQ(bits_of(value_of(f.function, -infinity)), f.at_minus_infinity);
    for (const std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc00000u, 0xffffffffu})
      EXPECT_EQ(bits_of(value_of(f.function, float_from_bits(nan))), nan_bits);
    if (f.lowest == everywhere) continue;
    for (const float below :
         {std::nextafter(f.lowest, -infinity), f.lowest - 1, std::numeric_limits<float>::lowest()})
      EXPECT_EQ(bits_of(value_of(f.function, below)), nan_bits);
  }
}

TEST(Elementary, KnownValues) {  // by mpmath with 300 bits
  EXPECT_EQ(exp_f32(1.0f), 2.71828182845904524f);
  EXPECT_EQ(log_f32(2.0f), 0.69314718055994531f);
  EXPECT_EQ(log2_f32(10.0f), 3.32192809488736235f);
  EXPECT_EQ(log2_f32(0x1p-149f), -149);
  EXPECT_EQ(log1p_f32(1.0f), 0.69314718055994531f);
  EXPECT_EQ(log1p_f32(0.5f), 0.40546510810816438f);
  EXPECT_EQ(log1p_f32(-0.5f), -0.69314718055994531f);
  EXPECT_EQ(tanh_f32(1.0f), 0.76159415595576489f);
  EXPECT_EQ(sigmoid_f32(1.0f), 0.73105857863000488f);
  EXPECT_EQ(rsqrt_f32(2.0f), 0.70710678118654752f);
  EXPECT_EQ(rsqrt_f32(0x1p-148f), 0x1p74f);
  EXPECT_EQ(erf_f32(0.5f), 0.52049987781304654f);
  EXPECT_EQ(gelu_f32(1.0f), 0.84134474606854295f);
  EXPECT_EQ(gelu_f32(-1.0f), -0.15865525393145705f);
  EXPECT_EQ(gelu_tanh_f32(1.0f), 0.84119199060827670f);
  EXPECT_EQ(sin_f32(1.0f), 0.84147098480789651f);
  EXPECT_EQ(cos_f32(1.0f), 0.54030230586813972f);
}

TEST(Elementary, EndsOfTheRange) {
  // exp: 0x42b17217 is the largest float below 128 ln 2; the next one overflows.
  EXPECT_TRUE(std::isfinite(exp_f32(float_from_bits(0x42b17217))));
  EXPECT_EQ(bits_of(exp_f32(float_from_bits(0x42b17218))), infinity_bits);
  // A result above 2^-150 rounds to the smallest subnormal: exp above -150 ln 2 = -103.97208, sigmoid as
  // well, gelu above -14.35607, gelu_tanh above -10.77087 (solved with mpmath).
  EXPECT_EQ(bits_of(exp_f32(-103.972f)), 1u);
  EXPECT_EQ(bits_of(exp_f32(-103.9722f)), 0u);
  EXPECT_EQ(bits_of(sigmoid_f32(-103.972f)), 1u);
  EXPECT_EQ(bits_of(sigmoid_f32(-103.9722f)), 0u);
  EXPECT_EQ(bits_of(gelu_f32(-14.35606f)), sign_bit | 1);
  EXPECT_EQ(bits_of(gelu_f32(-14.35608f)), sign_bit);
  EXPECT_EQ(bits_of(gelu_tanh_f32(-10.77086f)), sign_bit | 1);
  EXPECT_EQ(bits_of(gelu_tanh_f32(-10.77088f)), sign_bit);
  // log1p: its pole and the argument next to it, log(2^-24); where adding 1 is lost in FP64; the largest.
  EXPECT_EQ(bits_of(log1p_f32(-1.0f)), sign_bit | infinity_bits);
  EXPECT_EQ(log1p_f32(-1.0f + 0x1p-24f), -16.635532333438687f);
  EXPECT_EQ(log1p_f32(0x1p60f), 41.588830833596719f);
  EXPECT_EQ(log1p_f32(std::numeric_limits<float>::max()), 88.722839052068353f);
  // Subnormal arguments pass through where f(x) = x (1 + O(x^2)).
  for (const float x : {0x1p-149f, -0x1p-149f, 0x1.fffffcp-127f}) {
    EXPECT_EQ(bits_of(log1p_f32(x)), bits_of(x));
    EXPECT_EQ(bits_of(tanh_f32(x)), bits_of(x));
    EXPECT_EQ(bits_of(sin_f32(x)), bits_of(x));
    EXPECT_EQ(bits_of(gelu_f32(2 * x)), bits_of(x));
  }
}

TEST(Elementary, HugeAngles) {
  // 16367173 * 2^72 is 1.6e-9 from an odd multiple of pi/2, closer than any other FP32 number to a multiple
  // of pi/2 (values by mpmath with 300 bits).
  constexpr float worst = 16367173.0f * 0x1p72f;
  EXPECT_EQ(sin_f32(worst), 1.0f);
  EXPECT_EQ(cos_f32(worst), -1.6147697982476211876e-9f);
  EXPECT_EQ(cos_f32(-worst), cos_f32(worst));
  EXPECT_EQ(sin_f32(-worst), -1.0f);
}

TEST(Elementary, ConstantExpressions) {
  static_assert(exp_f32(0.0f) == 1.0f && log_f32(1.0f) == 0.0f && log1p_f32(0.0f) == 0.0f &&
                sigmoid_f32(0.0f) == 0.5f && rsqrt_f32(4.0f) == 0.5f && tanh_f32(20.0f) == 1.0f &&
                erf_f32(5.0f) == 1.0f && gelu_f32(20.0f) == 20.0f && gelu_tanh_f32(20.0f) == 20.0f &&
                sin_f32(0.0f) == 0.0f && cos_f32(0.0f) == 1.0f);
  constexpr float folded = gelu_f32(0.7f) + sin_f32(1e30f);
  const volatile float small = 0.7f;
  const volatile float huge = 1e30f;
  EXPECT_EQ(bits_of(folded), bits_of(gelu_f32(small) + sin_f32(huge)));
}

// Every compiler, CPU and optimisation level must give these bits; a change of them needs a change here.
TEST(Elementary, Digest) {
  for (const ElementaryProperties& f : elementary_properties) {
    std::uint64_t digest = 0;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 40009)
      digest = digest * 0x9e3779b97f4a7c15 +
               bits_of(value_of(f.function, float_from_bits(static_cast<std::uint32_t>(bits))));
    EXPECT_EQ(digest, f.digest) << f.name << std::hex << ": 0x" << digest;
  }
}

}  // namespace
}  // namespace fp16lab::test
