// Pooling: against naive loops and finite differences of first and second order, and to third order in closed
// form. It is piecewise linear and the inputs have few bits, so FP32 makes no rounding and every comparison
// is exact, unless a test states a bound.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/engine/autograd/gradient_checks.hpp"
#include "tests/engine/autograd/planes.hpp"

namespace fp16lab::engine::test {
namespace {

using V = std::vector<Variable>;

struct PoolCase {
  std::string name;
  std::int64_t n, c, h, w;
  Pool2dGeometry geometry;

  Shape x() const { return activation(geometry.layout, n, c, h, w); }
  Shape y() const {
    return activation(geometry.layout, n, c,
                      extent_after(h, geometry.kernel[0], geometry.stride[0], geometry.padding[0], 1),
                      extent_after(w, geometry.kernel[1], geometry.stride[1], geometry.padding[1], 1));
  }
};

void PrintTo(const PoolCase& pool, std::ostream* out) { *out << pool.name; }

std::vector<PoolCase> pool_cases() {
  std::vector<PoolCase> cases;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const std::string tag = layout == Layout::nchw ? "_nchw" : "_nhwc";
    const auto add = [&](const std::string& name, std::array<std::int64_t, 4> e, Pool2dGeometry geometry) {
      geometry.layout = layout;
      cases.push_back({name + tag, e[0], e[1], e[2], e[3], geometry});
    };
    add("plain", {2, 2, 4, 2}, {});
    add("overlapping", {1, 2, 4, 4}, {.kernel = {2, 2}, .stride = {1, 1}});
    add("rest_is_dropped", {1, 2, 5, 3}, {});
    add("padded", {1, 2, 4, 3}, {.kernel = {4, 2}, .stride = {2, 1}, .padding = {2, 1}});
    add("gaps", {1, 1, 5, 5}, {.kernel = {1, 2}, .stride = {3, 3}});
    add("whole_plane", {2, 2, 2, 4}, {.kernel = {2, 4}, .stride = {1, 1}});
  }
  return cases;
}

/// Visits every (x, y) pair of element and window; h * W + w is the element's place in its plane.
template <class Visit>
void for_each_window_element(const PoolCase& pool, const Visit& visit) {
  const Pool2dGeometry& geometry = pool.geometry;
  const Plane x(pool.x(), geometry.layout), y(pool.y(), geometry.layout);
  for (std::int64_t n = 0; n < y.n; ++n)
    for (std::int64_t c = 0; c < y.c; ++c)
      for (std::int64_t p = 0; p < y.h; ++p)
        for (std::int64_t q = 0; q < y.w; ++q)
          for (std::int64_t r = 0; r < geometry.kernel[0]; ++r)
            for (std::int64_t s = 0; s < geometry.kernel[1]; ++s) {
              const std::int64_t ih = p * geometry.stride[0] - geometry.padding[0] + r;
              const std::int64_t iw = q * geometry.stride[1] - geometry.padding[1] + s;
              if (ih < 0 || ih >= x.h || iw < 0 || iw >= x.w) continue;
              visit(x.at(n, c, ih, iw), y.at(n, c, p, q));
            }
}

/// Different multiples of 1/4 in [-4, 4): no two elements change order within a step h = 1/16.
HostTensor separated(const Shape& shape) {
  HostTensor tensor{shape, std::vector<float>(count_of(shape))};
  EXPECT_LE(tensor.values.size(), 32u);
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = -4.0f + 0.25f * static_cast<float>((i * 11 + 5) % 32);
  return tensor;
}

class Pooling : public testing::TestWithParam<PoolCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Pooling, testing::ValuesIn(pool_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Pooling, EqualsTheNaiveLoops) {
  const PoolCase& pool = GetParam();
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const HostTensor x = separated(pool.x());
  std::vector<float> maximum(count_of(pool.y()), -HUGE_VALF), average(count_of(pool.y()), 0.0f);
  const auto area = static_cast<float>(pool.geometry.kernel[0] * pool.geometry.kernel[1]);
  for_each_window_element(pool, [&](std::size_t i, std::size_t o) {
    maximum[o] = std::max(maximum[o], x.values[i]);
    average[o] += x.values[i] / area;  // exact: the areas are powers of two
  });
  const V v = inputs_on(tape, {x});
  EXPECT_EQ(ops::max_pool2d(v[0], pool.geometry).shape(), pool.y());
  EXPECT_EQ(values_of(*backend, ops::max_pool2d(v[0], pool.geometry).tensor()), maximum);
  EXPECT_EQ(ops::average_pool2d(v[0], pool.geometry).shape(), pool.y());
  EXPECT_EQ(values_of(*backend, ops::average_pool2d(v[0], pool.geometry).tensor()), average);
}

/// Squares of the pooled values, so that there is a second derivative: multiples of 2^-14 (2^-5 squared, a
/// weight) of at most 16 each (average: 2^-8 squared for areas up to 8, of at most 4 x 4), at most 16 of
/// them.
TEST_P(Pooling, GradientsEqualFiniteDifferences) {
  const PoolCase& pool = GetParam();
  const auto backend = hopper_backend();
  const Function maximum = [&](Tape&, const V& x) {
    const Variable y = ops::max_pool2d(x[0], pool.geometry);
    return ops::multiply(y, y);
  };
  const Function average = [&](Tape&, const V& x) {
    const Variable y = ops::average_pool2d(x[0], pool.geometry);
    return ops::multiply(y, y);
  };
  const DifferenceBounds exact{.magnitude = 0};
  for (const Function& function : {maximum, average}) {
    expect_gradients(*backend, function, {separated(pool.x())}, exact);
    expect_gradients(*backend, gradient_function(function), {separated(pool.x())}, exact);
  }
}

/// The gradients of both, and the gradient of the maximum's gradient, have ops of their own.
TEST(GradientChecks, CoverPooling) {
  GradientChecks checks;
  const HostTensor x = separated({1, 1, 2, 4});
  for (const Function& pool : {Function([](Tape&, const V& v) { return ops::max_pool2d(v[0], {}); }),
                               Function([](Tape&, const V& v) { return ops::average_pool2d(v[0], {}); })}) {
    const Function squared = [pool](Tape& tape, const V& v) {
      const Variable y = pool(tape, v);
      return ops::multiply(y, y);
    };
    checks.add(gradient_function(gradient_function(squared)), {x});
  }
  checks.expect_all_of(CheckedIn::pooling);
}

/// With f1 = sum(y^3), f2 = sum(grad f1 ^2), f3 = sum(grad f2), in closed form; windows do not overlap.
TEST(PoolingToThirdOrder, EqualsTheClosedForm) {
  const auto backend = hopper_backend();
  const std::vector<float> values = {1, 3, 2, 2, 5, 0, 2, 2};  // windows {1, 3, 5, 0} and {2, 2, 2, 2}
  const auto third = [&](const std::function<Variable(const Variable&)>& pool) {
    Tape tape(*backend);
    const V x = {tape.input(tensor_of(*backend, {1, 1, 2, 4}, values))};
    const auto derivative = [&](const Variable& f) {
      return tape.gradients(std::vector{f}, {}, x, {.create_graph = true})[0];
    };
    const Variable y = pool(x[0]);
    const Variable first = derivative(ops::sum(ops::multiply(y, ops::multiply(y, y))));
    const Variable second = derivative(ops::sum(ops::multiply(first, first)));
    return values_of(*backend, derivative(ops::sum(second)).tensor());
  };
  // The maximum: f2 = 9 y^4 at the winner (the first), f3 = 36 y^3, 108 y^2.
  EXPECT_EQ(third([](const Variable& x) { return ops::max_pool2d(x, {}); }),
            (std::vector<float>{0, 0, 108 * 4, 0, 108 * 25, 0, 0, 0}));
  // The average of four: grad f1 = 3/4 y^2, f2 = 4 * 9/16 y^4, grad f2 = 9/4 y^3, f3 = 9 y^3, 27/4 y^2.
  const float left = 27.0f / 4 * 2.25f * 2.25f, right = 27.0f / 4 * 4;
  EXPECT_EQ(third([](const Variable& x) { return ops::average_pool2d(x, {}); }),
            (std::vector<float>{left, left, right, right, left, left, right, right}));
}

TEST(AveragePooling, WithAnAreaThatIsNoPowerOfTwoDividesOnce) {
  // 9 outputs of at most 3/2, squared: magnitude 21; chain: 9 additions, a division, a square, a weight, the
  // sum. The gradient's chain is twice as long, and its weighted sum has 25 terms of at most 3.
  const auto backend = hopper_backend();
  const Function average = [](Tape&, const V& x) {
    const Variable y = ops::average_pool2d(x[0], {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    return ops::multiply(y, y);
  };
  const std::vector<HostTensor> inputs = {with_signs({1, 1, 5, 5}, 1)};
  expect_gradients(*backend, average, inputs, {.magnitude = 21, .roundings = 18});
  expect_gradients(*backend, gradient_function(average), inputs, {.magnitude = 75, .roundings = 40});
  Tape tape(*backend);
  const Variable x = tape.constant(tensor_of(*backend, {1, 1, 3, 3}, {1, 1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(values_of(*backend, ops::average_pool2d(x, {.kernel = {3, 3}, .stride = {1, 1}}).tensor()),
            std::vector<float>{5.0f / 9.0f});
}

TEST(MaxPooling, SendsTheGradientToTheFirstMaximum) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {1, 1, 2, 2}, {3, 7, 7, 7}));
  const Variable y = ops::max_pool2d(x, {});
  EXPECT_EQ(values_of(*backend, tape.gradients(std::vector{y}, {}, std::vector{x})[0].tensor()),
            (std::vector<float>{0, 1, 0, 0}));
}

TEST(MaxPooling, SumsOverlappingWindowsInFp32) {
  // One maximum in four windows: 2048 + 1 + 1 + 1 in 16 bits would lose every 1 on the way.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(halves_of(*backend, {1, 1, 3, 3}, {0, 0, 0, 0, 9, 0, 0, 0, 0}));
  const Variable y = ops::max_pool2d(x, {.kernel = {2, 2}, .stride = {1, 1}});
  const Tensor seed = halves_of(*backend, {1, 1, 2, 2}, {2048, 1, 1, 2});
  const auto gradient = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x});
  EXPECT_EQ(values_of(*backend, gradient[0].tensor()), (std::vector<float>{0, 0, 0, 0, 2052, 0, 0, 0, 0}));
}

TEST(PoolingErrors, NameTheOpAndTheShapes) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({2, 3, 4, 4}, 1), short_numbers({3, 4, 4}, 2)});
  expect_rejected([&] { ops::max_pool2d(v[1], {}); }, {"max_pool2d: ", "(3, 4, 4)", "(N, C, H, W)"});
  expect_rejected([&] { ops::average_pool2d(v[1], {}); }, {"average_pool2d: ", "(3, 4, 4)"});
  expect_rejected([&] { ops::max_pool2d(v[0], {.kernel = {5, 1}}); }, {"no window fits", "(5, 1)"});
  expect_rejected(
      [&] {
        ops::max_pool2d(v[0], {.kernel = {2, 2}, .padding = {2, 0}});
      },
      {"padding (2, 0)", "half the kernel"});
  expect_rejected([&] { ops::average_pool2d(v[0], {.stride = {1, 0}}); }, {"stride (1, 0)"});
  expect_rejected([&] { ops::average_pool2d(v[0], {.kernel = {0, 1}}); }, {"kernel (0, 1)"});
}

}  // namespace
}  // namespace fp16lab::engine::test
