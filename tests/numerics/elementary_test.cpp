// The special values of exp_f32 and log_f32, and their use in constant expressions. All arguments:
// elementary_sweep_test.
#include "numerics/elementary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fp16lab {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Elementary, ExpOfSpecialValues) {
  EXPECT_EQ(bits_of(exp_f32(0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(-0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(infinity)), bits_of(infinity));
  EXPECT_EQ(bits_of(exp_f32(-infinity)), 0u);
  for (const std::uint32_t nan : {0x7f800001u, 0xffc00000u, 0x7fffffffu})
    EXPECT_EQ(bits_of(exp_f32(float_from_bits(nan))), 0x7fffffffu);
  // 0x42b17217 is the largest float below 128 ln 2; the next one overflows.
  EXPECT_TRUE(std::isfinite(exp_f32(float_from_bits(0x42b17217))));
  EXPECT_EQ(bits_of(exp_f32(float_from_bits(0x42b17218))), bits_of(infinity));
  // -149 ln 2 = -103.278929...: around it the result is the smallest subnormal; below -150 ln 2 = -103.97 it
  // is zero.
  EXPECT_EQ(bits_of(exp_f32(-103.27893f)), 1u);
  EXPECT_EQ(bits_of(exp_f32(-103.97f)), 1u);
  EXPECT_EQ(bits_of(exp_f32(-103.98f)), 0u);
  EXPECT_EQ(bits_of(exp_f32(std::numeric_limits<float>::denorm_min())), bits_of(1.0f));
}

TEST(Elementary, LogOfSpecialValues) {
  EXPECT_EQ(bits_of(log_f32(1.0f)), 0u);
  EXPECT_EQ(bits_of(log_f32(0.0f)), bits_of(-infinity));
  EXPECT_EQ(bits_of(log_f32(-0.0f)), bits_of(-infinity));
  EXPECT_EQ(bits_of(log_f32(infinity)), bits_of(infinity));
  for (const float bad :
       {-1.0f, -infinity, -0x1p-149f, float_from_bits(0x7f800001), float_from_bits(0xffc00000)})
    EXPECT_EQ(bits_of(log_f32(bad)), 0x7fffffffu);
  EXPECT_FLOAT_EQ(log_f32(0x1p-149f), -103.27893f);
  EXPECT_FLOAT_EQ(log_f32(2.0f), 0.69314718f);
}

TEST(Elementary, ConstantExpressions) {
  static_assert(exp_f32(0.0f) == 1.0f);
  static_assert(log_f32(1.0f) == 0.0f);
  constexpr float e = exp_f32(1.0f);
  volatile float one = 1.0f;
  EXPECT_EQ(bits_of(e), bits_of(exp_f32(one)));
}

}  // namespace
}  // namespace fp16lab
