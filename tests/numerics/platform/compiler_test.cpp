// What the project takes for granted of the compiler and its flags: every assignment to a narrower type
// rounds, and a * b + c is two operations. GCC 12.2 at -O2 breaks the first without -fno-tree-slp-vectorize.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fp16lab {
namespace {

// Separate functions that are not inlined, so that constant folding cannot answer for the code generator.
__attribute__((noinline)) void round_pair(double* __restrict y, const double* __restrict x) {
  y[0] = static_cast<double>(static_cast<float>(x[0]));
  y[1] = static_cast<double>(static_cast<float>(x[1]));
}

__attribute__((noinline)) void round_four(double* __restrict y, const double* __restrict x) {
  y[0] = static_cast<double>(static_cast<float>(x[0]));
  y[1] = static_cast<double>(static_cast<float>(x[1]));
  y[2] = static_cast<double>(static_cast<float>(x[2]));
  y[3] = static_cast<double>(static_cast<float>(x[3]));
}

__attribute__((noinline)) float multiply_add(float a, float b, float c) { return a * b + c; }

__attribute__((noinline)) float half_of(float x) { return x * 0.5f; }

TEST(Compiler, NarrowingRounds) {
  const double x[4] = {0.1, 0.2, 0.3, 0.7};
  const double expected[4] = {0x1.99999ap-4, 0x1.99999ap-3, 0x1.333334p-2, 0x1.666666p-1};
  double y[4] = {};
  round_pair(y, x);
  EXPECT_EQ(y[0], expected[0]);
  EXPECT_EQ(y[1], expected[1]);
  round_four(y, x);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], expected[i]) << i;
}

TEST(Compiler, ProductAndSumAreTwoRoundings) {
  const float a = 0x1.000002p+0f;  // a * a = 1 + 2^-22 + 2^-46, whose last bit only a fused operation keeps
  EXPECT_EQ(multiply_add(a, a, -0x1.000004p+0f), 0.0f);
  EXPECT_EQ(std::fma(a, a, -0x1.000004p+0f), 0x1p-46f);
}

TEST(Compiler, SubnormalsAreNotFlushed) {
  EXPECT_EQ(half_of(std::numeric_limits<float>::min()), 0x1p-127f);
  EXPECT_EQ(half_of(0x1p-148f), std::numeric_limits<float>::denorm_min());
}

}  // namespace
}  // namespace fp16lab
