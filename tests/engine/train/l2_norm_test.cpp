// l2_norm, the norm of a gradient penalty: zero at zero, with a gradient of zero, and the exact root
// everywhere else.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/train/methods/gradient_penalty.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr double u32 = 0x1p-24;

struct NormAndGradient {
  float norm;
  std::vector<float> gradient;
};
NormAndGradient norm_of(const std::vector<float>& values) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {static_cast<std::int64_t>(values.size())}, values));
  const std::vector<Variable> inputs{x}, outputs{l2_norm(inputs)};
  const float norm = values_of(*backend, outputs[0].tensor()).at(0);
  return {norm, values_of(*backend, tape.gradients(outputs, {}, inputs)[0].tensor())};
}

TEST(L2Norm, OfZerosIsZeroAndSoIsItsGradient) {
  const auto [norm, gradient] = norm_of({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(norm, 0.0f);
  for (const float g : gradient) EXPECT_EQ(g, 0.0f);

  // Why it is guarded: the root alone.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const std::vector<Variable> x{tape.input(tensor_of(*backend, {3}, {0, 0, 0}))};
  const std::vector<Variable> plain{ops::square_root(ops::sum(ops::multiply(x[0], x[0])))};
  for (const float g : values_of(*backend, tape.gradients(plain, {}, x)[0].tensor()))
    EXPECT_TRUE(std::isnan(g));
}

TEST(L2Norm, IsTheExactRootEverywhereElse) {
  EXPECT_EQ(norm_of({3, -4}).norm, 5.0f);
  // 3/5 and 4/5 from 2 x (1 / (2 * 5)): two roundings.
  EXPECT_NEAR(norm_of({3, -4}).gradient[0], 0.6, 2 * u32);
  EXPECT_NEAR(norm_of({3, -4}).gradient[1], -0.8, 2 * u32);
  // A subnormal sum of squares, 2^-140, whose root is normal.
  EXPECT_EQ(norm_of({0x1p-70f}).norm, 0x1p-70f);
  EXPECT_EQ(norm_of({0x1p-70f}).gradient[0], 1.0f);
  EXPECT_EQ(norm_of({-0x1p-70f, 0}).gradient, (std::vector<float>{-1.0f, 0.0f}));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(norm_of({infinity, 1}).norm, infinity);
  EXPECT_TRUE(std::isnan(norm_of({std::numeric_limits<float>::quiet_NaN(), 1}).norm));
  EXPECT_THROW(l2_norm({}), std::invalid_argument);
}

TEST(L2Norm, SumsItsPartsInOrder) {
  // 1 + 2^-24 + 2^-24: from left to right each small square is lost (ties to even), the other way round they
  // add up.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const auto norm = [&](const std::vector<float>& values) {
    std::vector<Variable> parts;
    parts.reserve(values.size());
    for (const float value : values) parts.push_back(tape.constant(tensor_of(*backend, {1}, {value})));
    return values_of(*backend, l2_norm(parts).tensor()).at(0);
  };
  EXPECT_EQ(norm({1.0f, 0x1p-12f, 0x1p-12f}), 1.0f);
  EXPECT_EQ(norm({0x1p-12f, 0x1p-12f, 1.0f}), std::sqrt(1.0f + 0x1p-23f));
}

}  // namespace
}  // namespace fp16lab::engine::test
