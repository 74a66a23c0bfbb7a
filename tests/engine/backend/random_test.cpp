// Conformance: random fills. Every element is a pure function of (stream, iteration, its index).
#include <cmath>
#include <limits>

#include "engine/backend/elementwise_functions.hpp"
#include "numerics/elementary/elementary.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr std::array<std::int64_t, 4> sizes{1, 31, 1025, 70001};  // the last one is shared by threads
const PhiloxStream stream{.seed = 3, .stream = stream_id("fc1.weight"), .iteration = 5, .micro_batch = 1};

/// The 24 random bits of word `index`.
std::uint32_t bits24(const PhiloxStream& s, std::uint64_t index) {
  return philox4x32_10({static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>(index / 4 >> 32),
                        s.iteration, s.micro_batch},
                       s.key())[index % 4] >>
         8;
}

TEST_P(BackendConformance, FillUniformIsAFunctionOfTheIndex) {
  const float low = -0.3f, high = 0.7f;
  for (const std::int64_t size : sizes) {
    Tensor out = output(Shape{size}, DType::f32);
    backend().fill_uniform(out, stream, low, high);
    std::vector<float> expected;
    const float width = high - low;
    for (std::int64_t i = 0; i < size; ++i) {
      const float u = static_cast<float>(bits24(stream, static_cast<std::uint64_t>(i))) / 16777216.0f;
      const float product = width * u;
      expected.push_back(low + product);
    }
    expect_same_bits(values_of<float>(out), expected, "fill_uniform");
  }
}

// ---- fill_normal ----

TEST_P(BackendConformance, FillNormalTakesTwoWordsPerElement) {
  for (const std::int64_t size : sizes)
    for (const auto& [mean, deviation] :
         {std::pair{0.0f, 1.0f}, std::pair{-0.3f, 0.02f}, std::pair{2.0f, 0.0f}}) {
      Tensor out = output(Shape{size}, DType::f32);
      backend().fill_normal(out, stream, mean, deviation);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < size; ++i) {
        const auto word = 2 * static_cast<std::uint64_t>(i);
        const float u = static_cast<float>(bits24(stream, word) + 1) / 16777216.0f;
        const float v = static_cast<float>(bits24(stream, word + 1)) / 16777216.0f;
        const float root = std::sqrt(-2.0f * log_f32(u));  // correctly rounded: IEEE 754-2019, 5.4.1
        const float angle = 6.283185307179586f * v;
        const float z = root * cos_f32(angle);
        const float spread = deviation * z;
        expected.push_back(mean + spread);
      }
      expect_same_bits(values_of<float>(out), expected, "fill_normal");
    }
}

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

// ---- fill_bernoulli ----

StepState state_at(std::uint64_t iteration) {
  StepState state;
  state.iteration = iteration;
  return state;
}

TEST_P(BackendConformance, FillBernoulliTakesItsIterationFromTheState) {
  const std::uint64_t iteration = (std::uint64_t{9} << 32) + 77;  // the low 32 bits count
  const StepState state = state_at(iteration);
  const Tensor step = backend().make_step_state(state);
  PhiloxStream current = stream;
  current.iteration = 77;
  for (const std::int64_t size : sizes)
    for (const float keep : {0.0f, 0x1p-24f, 0.1f, 0.5f, 0.9f, 1.0f - 0x1p-24f, 1.0f}) {
      std::vector<float> expected;
      for (std::int64_t i = 0; i < size; ++i) {
        const float u = static_cast<float>(bits24(current, static_cast<std::uint64_t>(i))) / 16777216.0f;
        expected.push_back(u < keep ? 1.0f : 0.0f);
      }
      for_each_float_type([&](auto tag) {
        using T = decltype(tag);
        Tensor out = output(Shape{size}, DTypeOf<T>::value);
        backend().fill_bernoulli(out, stream, keep, step);
        expect_same_bits(values_of<T>(out), mapped(expected, [](float x) { return stored_as(x, T{}); }),
                         "fill_bernoulli " + out.describe());
      });
    }
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), state)) << "the state is only read";
}

TEST_P(BackendConformance, FillBernoulliDrawsANewMaskEachIteration) {
  constexpr std::int64_t n = 1 << 17;
  const auto mask_at = [&](std::uint64_t iteration) {
    Tensor out = output(Shape{n}, DType::f32);
    backend().fill_bernoulli(out, stream, 0.25f, backend().make_step_state(state_at(iteration)));
    return values_of<float>(out);
  };
  const std::vector<float> first = mask_at(0), second = mask_at(1), again = mask_at(0);
  EXPECT_EQ(first, again);
  double kept = 0, in_both = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    kept += static_cast<double>(first[i]);
    in_both += static_cast<double>(first[i] * second[i]);
  }
  // Binomial counts, the masks independent: five deviations sqrt(p (1 - p) n).
  EXPECT_NEAR(kept, n * 0.25, 5 * std::sqrt(n * 0.25 * 0.75));
  EXPECT_NEAR(in_both, n * 0.0625, 5 * std::sqrt(n * 0.0625 * 0.9375));
}

// ---- rejected calls ----

TEST_P(BackendConformance, RandomFillsRejectWhatIsNoDistribution) {
  Tensor f32 = output(Shape{4}, DType::f32), f16 = output(Shape{4}, DType::f16),
         i32 = output(Shape{4}, DType::i32);
  const Tensor step = backend().make_step_state({});
  EXPECT_REFUSED("fill_normal: out is f16 (4); f32 is needed",
                 backend().fill_normal(f16, stream, 0.0f, 1.0f));
  EXPECT_REFUSED("fill_normal: mean is 0.5 and deviation -1; both must be finite, the deviation >= 0",
                 backend().fill_normal(f32, stream, 0.5f, -1.0f));
  EXPECT_REFUSED("fill_bernoulli: out is i32 (4); f32, f16 or bf16 is needed",
                 backend().fill_bernoulli(i32, stream, 0.5f, step));
  for (const float bad : {-0.5f, 1.5f})
    EXPECT_REFUSED("fill_bernoulli: keep is " + std::string(bad < 0 ? "-0.5" : "1.5") +
                       "; a probability in [0, 1] is needed",
                   backend().fill_bernoulli(f32, stream, bad, step));
  EXPECT_THROW(backend().fill_bernoulli(f32, stream, std::nanf(""), step), std::invalid_argument);
  EXPECT_REFUSED("fill_bernoulli: step is i32 (4); u8 is needed",
                 backend().fill_bernoulli(f32, stream, 0.5f, i32));
}

}  // namespace
}  // namespace fp16lab::engine::test
