// Where branches with other scales meet: the exponent that their sum has, and what a backward pass makes of
// it.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/gradient_scales.hpp"
#include "tests/engine/amp/asked_scales.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(JoinedExponent, IsTheLargerOneWhereTheSumFits) {
  EXPECT_EQ(joined_exponent(1, 3, 1, 5, DType::f16), 5);
  EXPECT_EQ(joined_exponent(1, 5, 1, 3, DType::f16), 5);
  EXPECT_EQ(joined_exponent(0, 20, 0, -3, DType::f16), 20);
  EXPECT_EQ(joined_exponent(1, -8, 0x1p100, 9, DType::f32), 9);
  EXPECT_EQ(joined_exponent(1, -8, 0x1p100, 9, DType::bf16), 9);
}

TEST(JoinedExponent, GoesDownUntilTheSumFits) {
  // 2^14 at exponent 0 and 1 at exponent 5: at 5 the first would be 2^19. At 1 it is 2^15, plus 2^-4.
  EXPECT_EQ(joined_exponent(0x1p14, 0, 1, 5, DType::f16), 1);
  EXPECT_EQ(joined_exponent(1, 5, 0x1p14, 0, DType::f16), 1);
  // The sum rounds to infinity from 65520 on: 32752 + 32768 is too much, 32752 + 32767.984375 is not.
  EXPECT_EQ(joined_exponent(32752, 0, 16384, -1, DType::f16), -1);
  EXPECT_EQ(joined_exponent(32752, 0, 16383.9921875, -1, DType::f16), 0);
  // Both branches are at the edge: below either's own exponent.
  EXPECT_EQ(joined_exponent(65504, 0, 65504, 1, DType::f16), -1);
  const double largest = std::ldexp(2.0 - 0x1p-23, 127);
  EXPECT_EQ(joined_exponent(largest, 0, 1, 1, DType::f32), 0);
  EXPECT_EQ(joined_exponent(largest, 0, largest, 1, DType::f32), -1);
}

TEST(JoinedExponent, LeavesAnOverflowAsItIs) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(joined_exponent(infinity, 0, 1, 5, DType::f16), 5);
  EXPECT_EQ(joined_exponent(1, 7, std::nan(""), 5, DType::f16), 7);
}

TEST(LargestMagnitude, IsExact) {
  const auto backend = hopper_backend();
  EXPECT_EQ(largest_magnitude(*backend, tensor_of(*backend, {2, 2}, {1, -3.25f, 0, 2})), 3.25);
  EXPECT_EQ(largest_magnitude(*backend, halves_of(*backend, {3}, {-0x1p-24f, 0, 0})), 0x1p-24);
  EXPECT_EQ(largest_magnitude(*backend, backend->empty({0}, DType::f16)), 0);
  EXPECT_TRUE(std::isnan(
      largest_magnitude(*backend, tensor_of(*backend, {2}, {1, std::numeric_limits<float>::quiet_NaN()}))));
  std::vector<float> many(5000, 0.5f);
  many[4321] = -0.75f;
  EXPECT_EQ(largest_magnitude(*backend, tensor_of(*backend, {5000}, many)), 0.75);
}

TEST(TimesPowerOfTwo, ReachesTheWholeRange) {
  const auto backend = hopper_backend();
  const Tensor tiny = tensor_of(*backend, {2}, {0x1p-126f, -0x1.8p-125f});
  EXPECT_EQ(values_of(*backend, times_power_of_two(*backend, tiny, 250)),
            (std::vector<float>{0x1p124f, -0x1.8p125f}));
  const Tensor one = tensor_of(*backend, {1}, {0x1.fffffep120f});
  EXPECT_EQ(values_of(*backend, times_power_of_two(*backend, one, -240)),
            std::vector<float>{0x1.fffffep-120f});
}

/// y = a(h) + b(h) with h = p * x, FP16: the gradients of h meet with the exponents of a and b.
struct JoinedBranches {
  float of_h = 0;         ///< the gradient of h's element, without scales
  int exponent_at_p = 0;  ///< that the pass carried on
  bool finite = true;
};

JoinedBranches join(float weight_a, int exponent_a, float weight_b, int exponent_b) {
  const auto backend = hopper_backend();
  const auto parameter = [&](const char* name, float value) {
    return std::make_unique<Parameter>(name, tensor_of(*backend, {1, 1}, {value}));
  };
  const auto p = parameter("p", 1), a = parameter("a", weight_a), b = parameter("b", weight_b);
  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = amp::Level::O1});
  JoinedBranches result;
  AskedScales scales([&](const GradientSite& site) {
    if (site.weight == a.get()) return exponent_a;
    if (site.weight == b.get()) return exponent_b;
    result.exponent_at_p = site.exponent;
    return site.exponent;
  });
  tape.set_gradient_scales(&scales);
  {
    const amp::AutocastGuard guard(tape, autocast);
    const Variable x = tape.constant(tensor_of(*backend, {1, 1}, {1}));
    const Variable h = ops::linear(x, tape.parameter(*p), {});
    const Variable y =
        ops::add(ops::linear(h, tape.parameter(*a), {}), ops::linear(h, tape.parameter(*b), {}));
    tape.backward(ops::sum(ops::cast(y, DType::f32)), tensor_of(*backend, Shape{}, {1}));
  }
  result.of_h = values_of(*backend, p->gradient)[0];
  result.finite = std::isfinite(result.of_h);
  return result;
}

TEST(GradientScales, BranchesMeetAtTheLargestExponentThatFits) {
  JoinedBranches met = join(0x1p-3f, 4, 0x1p-5f, 9);
  EXPECT_EQ(met.exponent_at_p, 9);
  EXPECT_EQ(met.of_h, 0x1p-3f + 0x1p-5f);
  met = join(1024, 0, 0x1p-10f, 12);  // 1024 * 2^12 is beyond FP16; with 2^5 it is 2^15
  EXPECT_EQ(met.exponent_at_p, 5);
  EXPECT_EQ(met.of_h, 1024) << "2^15 + 2^-5: the small branch is below half an ulp";
  met = join(0x1p-20f, 0, 0x1p-18f, 10);  // the first branch alone is subnormal, and the sum exact at 2^10
  EXPECT_EQ(met.exponent_at_p, 10);
  EXPECT_EQ(met.of_h, 0x1p-20f + 0x1p-18f);
  met = join(40000, 0, 20000, 1);  // 40000 and 40000: too much even where they are
  EXPECT_TRUE(met.finite);
  EXPECT_EQ(met.exponent_at_p, 0);
  EXPECT_EQ(met.of_h, 60000);
  met = join(-40000, 0, 20000, 1);  // bounds, not the sum itself, decide
  EXPECT_EQ(met.exponent_at_p, 0);
  EXPECT_EQ(met.of_h, -20000);
}

TEST(GradientScales, BranchesOfOneExponentMeetAsEver) {
  EXPECT_FALSE(join(40000, 0, 40000, 0).finite) << "an overflow is found_inf's, as without scales";
  const JoinedBranches met = join(0x1p-3f, 6, 0x1p-5f, 6);
  EXPECT_EQ(met.exponent_at_p, 6);
  EXPECT_EQ(met.of_h, 0x1p-3f + 0x1p-5f);
}

TEST(GradientScales, AnExponentThatOverflowsIsFound) { EXPECT_FALSE(join(1, 17, 1, 17).finite); }

}  // namespace
}  // namespace fp16lab::engine::test
