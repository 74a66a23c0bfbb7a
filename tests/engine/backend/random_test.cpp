// What is known of normal random numbers; their bits are asked by the verb cases.
#include <cmath>
#include <limits>

#include "engine/backend/elementwise_functions.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

TEST_P(BackendConformance, FillNormalHasTheMomentsOfItsDistribution) {
  constexpr std::int64_t n = 1 << 20;
  Tensor out = output(Shape{n}, DType::f32);
  backend().fill_normal(out, {.seed = 11, .stream = stream_id("normal")}, 0.0f, 1.0f);
  double sums[4] = {};
  std::int64_t within_one = 0;
  for (const float value : values_of<float>(out)) {
    double power = 1.0;
    for (double& sum : sums) sum += power *= static_cast<double>(value);
    within_one += static_cast<std::int64_t>(std::fabs(value) < 1.0f);
  }
  // z^k has mean 0, 1, 0, 3 and variance E z^2k - (E z^k)^2 = 1, 2, 15, 96 for k = 1 .. 4: five deviations of
  // the mean of n of them. The grid of 2^-24 moves the moments by less than 1e-5.
  const double expected[4] = {0, 1, 0, 3}, variance[4] = {1, 2, 15, 96};
  for (int k = 0; k < 4; ++k)
    EXPECT_NEAR(sums[k] / n, expected[k], 5 * std::sqrt(variance[k] / n) + 1e-5) << "moment " << k + 1;
  const double p = std::erf(std::sqrt(0.5));  // of |z| < 1
  EXPECT_NEAR(static_cast<double>(within_one) / n, p, 5 * std::sqrt(p * (1 - p) / n));
}

TEST(NormalFrom, IsFiniteForEveryWord) {
  // u and v take 2^24 values each. v = 0 has the largest cosine, 1, and so shows the radius of every u; the
  // smallest u has the largest radius, sqrt(48 ln 2) = 5.7681; 2 ulp for the roundings of the logarithm, the
  // root and the product.
  const float largest = std::nextafter(std::nextafter(static_cast<float>(std::sqrt(48 * M_LN2)), 6.0f), 6.0f);
  float previous = std::numeric_limits<float>::infinity();
  for (std::uint32_t word = 0; word < 1u << 24; ++word) {
    const std::uint32_t of_radius[] = {word << 8, 0u}, of_angle[] = {0u, word << 8};
    const float radius = functions::Normal{0.0f, 1.0f}(of_radius);
    ASSERT_TRUE(radius >= 0.0f && radius <= largest && radius <= previous) << word << ": " << radius;
    previous = radius;
    const float z = functions::Normal{0.0f, 1.0f}(of_angle);
    ASSERT_TRUE(std::fabs(z) <= largest) << word << ": " << z;
  }
  EXPECT_EQ(previous, 0.0f) << "u = 1";
}

}  // namespace
}  // namespace fp16lab::engine::test
