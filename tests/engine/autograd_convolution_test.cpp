// Convolution, pooling and batched products: against naive loops, as adjoints of each other, and against finite
// differences of first and second order. All of these are polynomials (or piecewise linear) and the inputs have
// few bits, so FP32 makes no rounding and every comparison is exact, unless said otherwise.
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "engine/amp/autocast.hpp"
#include "tests/engine/autograd_twin.hpp"

namespace fp16lab::engine::test {
namespace {

using V = std::vector<Variable>;

// ---- naive twins --------------------------------------------------------------------------------

/// Row-major index of (n, c, h, w) in either layout, from the extents of the tensor's shape.
struct Plane {
  std::int64_t n, c, h, w;
  Layout layout;
  Plane(const Shape& shape, Layout at) : layout(at) {
    const bool nchw = at == Layout::nchw;
    n = shape[0], c = shape[nchw ? 1 : 3], h = shape[nchw ? 2 : 1], w = shape[nchw ? 3 : 2];
  }
  std::size_t at(std::int64_t in, std::int64_t ic, std::int64_t ih, std::int64_t iw) const {
    return static_cast<std::size_t>(layout == Layout::nchw ? ((in * c + ic) * h + ih) * w + iw
                                                           : ((in * h + ih) * w + iw) * c + ic);
  }
};

Shape activation(Layout layout, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return layout == Layout::nchw ? Shape{n, c, h, w} : Shape{n, h, w, c};
}

std::int64_t extent_after(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                          std::int64_t dilation) {
  std::int64_t count = 0;  // counted, not computed: windows that start inside and end inside
  for (std::int64_t start = -padding; start + dilation * (kernel - 1) < extent + padding; start += stride)
    ++count;
  return count;
}

struct ConvolutionCase {
  std::string name;
  std::int64_t n, c, h, w, k, r, s;
  Conv2dGeometry geometry;

  Shape x() const { return activation(geometry.layout, n, c, h, w); }
  Shape weight() const { return {k, c, r, s}; }
  Shape y() const {
    return activation(geometry.layout, n, k,
                      extent_after(h, r, geometry.stride[0], geometry.padding[0], geometry.dilation[0]),
                      extent_after(w, s, geometry.stride[1], geometry.padding[1], geometry.dilation[1]));
  }
};

void PrintTo(const ConvolutionCase& conv, std::ostream* out) { *out << conv.name; }

/// Visits every product x[i] * w[j] that goes into y[o].
template <class Visit>
void for_each_product(const ConvolutionCase& conv, const Visit& visit) {
  const Conv2dGeometry& geometry = conv.geometry;
  const Plane x(conv.x(), geometry.layout), y(conv.y(), geometry.layout);
  for (std::int64_t n = 0; n < y.n; ++n)
    for (std::int64_t k = 0; k < y.c; ++k)
      for (std::int64_t p = 0; p < y.h; ++p)
        for (std::int64_t q = 0; q < y.w; ++q)
          for (std::int64_t c = 0; c < x.c; ++c)
            for (std::int64_t r = 0; r < conv.r; ++r)
              for (std::int64_t s = 0; s < conv.s; ++s) {
                const std::int64_t ih =
                    p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
                const std::int64_t iw =
                    q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
                if (ih < 0 || ih >= x.h || iw < 0 || iw >= x.w) continue;
                visit(x.at(n, c, ih, iw),
                      static_cast<std::size_t>(((k * conv.c + c) * conv.r + r) * conv.s + s),
                      y.at(n, k, p, q), static_cast<std::size_t>(k));
              }
}

/// Inputs are multiples of 1/4 of magnitude <= 5/4, moved by multiples of 1/32; the weights of weighted_sum are
/// multiples of 1/16 of magnitude <= 1. So f is a multiple of 2^-11 and, with P outputs of T terms each, at most
/// P (T 25/16 + 5/4): below 2^13 for all cases. The weighted gradient is a multiple of 2^-13 (two weights, one
/// moved input) and at most |x| K R S 5/4 + |w| N P Q 5/4 + N P Q K: below 2^11. Neither needs more than 24 bits,
/// nor do the partial sums: everything is exact, and central differences of a polynomial of degree 2 (in one
/// variable: 1) are its derivative.
std::vector<ConvolutionCase> convolution_cases() {
  std::vector<ConvolutionCase> cases;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const std::string tag = layout == Layout::nchw ? "_nchw" : "_nhwc";
    const auto add = [&](const std::string& name, std::array<std::int64_t, 7> e, Conv2dGeometry geometry) {
      geometry.layout = layout;
      cases.push_back({name + tag, e[0], e[1], e[2], e[3], e[4], e[5], e[6], geometry});
    };
    add("plain", {2, 2, 4, 3, 2, 2, 2}, {});
    add("pointwise", {2, 3, 2, 2, 2, 1, 1}, {});
    add("whole_image", {2, 2, 3, 2, 3, 3, 2}, {});
    add("padded", {1, 2, 5, 4, 3, 3, 2}, {.padding = {1, 1}});
    add("padded_beyond_the_kernel", {1, 1, 2, 2, 2, 2, 2}, {.padding = {2, 3}});
    add("strided", {1, 2, 5, 6, 2, 3, 2}, {.stride = {2, 3}});
    add("stride_skips_elements", {2, 1, 5, 5, 2, 2, 1}, {.stride = {3, 2}});
    add("stride_leaves_a_rest", {1, 1, 6, 5, 2, 3, 2}, {.stride = {2, 2}, .padding = {1, 0}});
    add("dilated", {1, 2, 5, 6, 2, 2, 3}, {.dilation = {3, 2}});
    add("everything", {2, 2, 6, 5, 2, 2, 3}, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {2, 3}});
    add("one_channel_one_filter", {1, 1, 3, 3, 1, 3, 3}, {.padding = {1, 1}});
  }
  return cases;
}

class Convolution : public testing::TestWithParam<ConvolutionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Convolution, testing::ValuesIn(convolution_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Convolution, EqualsTheNaiveLoops) {
  const ConvolutionCase& conv = GetParam();
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const HostTensor x = short_numbers(conv.x(), 1), w = short_numbers(conv.weight(), 2),
                   b = short_numbers({conv.k}, 3);
  std::vector<float> expected(count_of(conv.y()), 0.0f);
  for_each_product(conv, [&](std::size_t i, std::size_t j, std::size_t o, std::size_t) {
    expected[o] += x.values[i] * w.values[j];
  });
  const V inputs = inputs_on(tape, {x, w, b});
  const Variable y = ops::conv2d(inputs[0], inputs[1], {}, conv.geometry);
  EXPECT_EQ(y.shape(), conv.y());
  EXPECT_EQ(values_of(*backend, y.tensor()), expected);
  const Plane plane(conv.y(), conv.geometry.layout);
  for (std::int64_t n = 0; n < plane.n; ++n)
    for (std::int64_t k = 0; k < plane.c; ++k)
      for (std::int64_t p = 0; p < plane.h; ++p)
        for (std::int64_t q = 0; q < plane.w; ++q)
          expected[plane.at(n, k, p, q)] += b.values[static_cast<std::size_t>(k)];
  EXPECT_EQ(values_of(*backend, ops::conv2d(inputs[0], inputs[1], inputs[2], conv.geometry).tensor()),
            expected);
}

TEST_P(Convolution, GradientsEqualFiniteDifferences) {
  const ConvolutionCase& conv = GetParam();
  const auto backend = hopper_backend();
  const Function with_bias = [&](Tape&, const V& x) { return ops::conv2d(x[0], x[1], x[2], conv.geometry); };
  const Function without = [&](Tape&, const V& x) { return ops::conv2d(x[0], x[1], {}, conv.geometry); };
  const HostTensor x = short_numbers(conv.x(), 1), w = short_numbers(conv.weight(), 2),
                   b = short_numbers({conv.k}, 3);
  const DifferenceBounds exact{.magnitude = 0};
  expect_gradients(*backend, with_bias, {x, w, b}, exact);
  expect_gradients(*backend, without, {x, w}, exact);
  expect_gradients(*backend, gradient_function(with_bias), {x, w, b}, exact);
}

TEST_P(Convolution, ItsGradientMapsHaveGradientsToo) {
  const ConvolutionCase& conv = GetParam();
  const auto backend = hopper_backend();
  const Function input_gradient = [&](Tape&, const V& x) {
    return ops::conv2d_input_gradient(x[0], x[1], conv.x(), conv.geometry);
  };
  const Function weight_gradient = [&](Tape&, const V& x) {
    return ops::conv2d_weight_gradient(x[0], x[1], conv.weight(), conv.geometry);
  };
  const HostTensor x = short_numbers(conv.x(), 1), w = short_numbers(conv.weight(), 2),
                   g = short_numbers(conv.y(), 3);
  const DifferenceBounds exact{.magnitude = 0};
  expect_gradients(*backend, input_gradient, {g, w}, exact);
  expect_gradients(*backend, gradient_function(input_gradient), {g, w}, exact);
  expect_gradients(*backend, weight_gradient, {x, g}, exact);
  expect_gradients(*backend, gradient_function(weight_gradient), {x, g}, exact);
}

/// <conv(x, w), g> = <x, input_gradient(g, w)> = <w, weight_gradient(x, g)>, in integers.
TEST_P(Convolution, IsTheAdjointOfItsGradientMaps) {
  const ConvolutionCase& conv = GetParam();
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const auto integers = [](const Shape& shape, std::size_t seed) {
    HostTensor tensor{shape, std::vector<float>(count_of(shape))};
    for (std::size_t i = 0; i < tensor.values.size(); ++i)
      tensor.values[i] = static_cast<float>((i * 29 + seed * 17) % 13) - 6.0f;
    return tensor;
  };
  const HostTensor x = integers(conv.x(), 1), w = integers(conv.weight(), 2), g = integers(conv.y(), 3);
  const auto inner = [&](const Variable& a, const HostTensor& b) {
    const std::vector<float> values = values_of(*backend, a.tensor());
    EXPECT_EQ(values.size(), b.values.size());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += static_cast<std::int64_t>(values[i]) * static_cast<std::int64_t>(b.values[i]);
    return sum;
  };
  std::int64_t expected = 0;
  for_each_product(conv, [&](std::size_t i, std::size_t j, std::size_t o, std::size_t) {
    expected += static_cast<std::int64_t>(x.values[i] * w.values[j] * g.values[o]);
  });
  const V v = inputs_on(tape, {x, w, g});
  EXPECT_EQ(inner(ops::conv2d(v[0], v[1], {}, conv.geometry), g), expected);
  EXPECT_EQ(inner(ops::conv2d_input_gradient(v[2], v[1], conv.x(), conv.geometry), x), expected);
  EXPECT_EQ(inner(ops::conv2d_weight_gradient(v[0], v[2], conv.weight(), conv.geometry), w), expected);
}

TEST(ConvolutionErrors, NameTheOpAndTheShapes) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v =
      inputs_on(tape, {short_numbers({2, 3, 4, 4}, 1), short_numbers({2, 2, 3, 3}, 2),
                       short_numbers({2, 3, 3, 3}, 3), short_numbers({3}, 4), short_numbers({2, 3}, 5),
                       short_numbers({2, 3, 5, 5}, 6), short_numbers({2, 2, 4, 4}, 7)});
  const Conv2dGeometry plain;
  expect_rejected([&] { ops::conv2d(v[0], v[1], {}, plain); },
                  {"conv2d: ", "(2, 3, 4, 4)", "(2, 2, 3, 3)", "(N, C, H, W)"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.layout = Layout::nhwc}); },
                  {"conv2d: ", "(N, H, W, C)", "(2, 3, 3, 3)"});
  expect_rejected([&] { ops::conv2d(v[4], v[2], {}, plain); }, {"conv2d: ", "(2, 3)"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], v[3], plain); }, {"conv2d: bias", "f32 (3)", "(2, 3, 3, 3)"});
  expect_rejected([&] { ops::conv2d(v[0], v[5], {}, plain); }, {"no window fits", "(2, 3, 5, 5)"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.stride = {0, 1}}); }, {"stride (0, 1)", "at least 1"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.padding = {0, -1}}); }, {"padding (0, -1)"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.dilation = {1, 0}}); }, {"dilation (1, 0)"});
  expect_rejected([&] { ops::conv2d(v[0], ops::cast(v[2], DType::f16), {}, plain); },
                  {"conv2d", "differ in dtype"});
  expect_rejected(
      [&] {
        ops::conv2d_input_gradient(v[6], v[2], {2, 3, 4, 4}, plain);
      },
      {"conv2d_input_gradient", "(2, 2, 4, 4)", "(2, 2, 2, 2)"});
  expect_rejected(
      [&] {
        ops::conv2d_weight_gradient(v[0], v[6], {2, 3, 3, 3}, plain);
      },
      {"conv2d_weight_gradient", "(2, 2, 4, 4)", "(2, 2, 2, 2)"});
}

// ---- observation and autocast -------------------------------------------------------------------

TEST(ConvolutionUnderAutocast, ComputesInSixteenBitsAndShowsItsGradientsWhereTheyAreRounded) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  amp::Autocast autocast{amp::AmpOptions{.dtype = DType::f16}};
  Parameter weight{"conv1.weight", tensor_of(*backend, {2, 1, 3, 3}, short_numbers({2, 1, 3, 3}, 2).values)};
  Parameter bias{"conv1.bias", tensor_of(*backend, {2}, {1, -1})};
  const Variable x = tape.input(tensor_of(*backend, {2, 1, 5, 5}, short_numbers({2, 1, 5, 5}, 1).values));
  Variable y, pooled, averaged;
  {
    const CastPolicyGuard guard(tape, &autocast);
    const ScopeGuard scope(tape, "conv1");
    y = ops::conv2d(x, tape.parameter(weight), tape.parameter(bias), {.padding = {1, 1}});
    pooled = ops::max_pool2d(y, {});
    averaged = ops::average_pool2d(y, {});
  }
  EXPECT_EQ(y.dtype(), DType::f16);
  EXPECT_EQ(pooled.dtype(), DType::f16) << "pooling follows its input";
  EXPECT_EQ(averaged.dtype(), DType::f16);
  SeenGradients seen;
  tape.set_observer(&seen);
  tape.backward(y, halves_of(*backend, y.shape(), std::vector<float>(count_of(y.shape()), 0x1p-24f)));
  EXPECT_EQ(seen.totals(), (std::map<std::string, std::uint64_t>{{"conv1.weight", 18}, {"conv1.bias", 2}}))
      << "backward stops at parameters: the data's gradient is not computed";
  for (const auto& [name, row] : seen.rows) {
    EXPECT_EQ(row.dtype, DType::f16) << name;
    EXPECT_EQ(row.kind, GradientKind::weight) << name;
    EXPECT_EQ(row.times, 1) << name;
  }
  EXPECT_TRUE(weight.has_gradient);
  EXPECT_EQ(weight.gradient.dtype(), DType::f32);
}

TEST(ConvolutionObservation, NarrowingProductsCountBeforeAndAfterTheRounding) {
  // dL/dx = w * g: with g = 2^-24 and |w| = 1/4 every product is lost in f16 (below 2^-25), none in f32.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(halves_of(*backend, {1, 1, 2, 2}, {1, 1, 1, 1}));
  const Variable w = tape.input(halves_of(*backend, {1, 1, 1, 1}, {0.25f}));
  const Variable y = [&] {
    const ScopeGuard scope(tape, "conv1");
    return ops::conv2d(x, w, {}, {});
  }();
  SeenGradients seen;
  tape.set_observer(&seen);
  const Tensor seed = halves_of(*backend, {1, 1, 2, 2}, std::vector<float>(4, 0x1p-24f));
  const auto gradients = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x, w});
  EXPECT_EQ(seen.rows.at("conv1.input").kind, GradientKind::activation);
  EXPECT_EQ(seen.rows.at("conv1.input").probe.before.finite_nonzero(), 4u);
  EXPECT_EQ(seen.rows.at("conv1.input").probe.after.zero, 4u);
  EXPECT_EQ(values_of(*backend, gradients[1].tensor()), (std::vector<float>{0x1p-22f}));
}

TEST(ConvolutionObservation, StepsOfABackwardPassAreNoLayers) {
  // The derivatives of the two gradient maps hold conv2d again. A third backward pass goes through all of them, and
  // shows the one layer of the forward pass once.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({1, 1, 3, 3}, 1), short_numbers({1, 1, 2, 2}, 2)});
  const Variable y = [&] {
    const ScopeGuard scope(tape, "conv1");
    return ops::conv2d(v[0], v[1], {}, {});
  }();
  const auto norm = [](const V& x) {
    return ops::add(ops::sum(ops::multiply(x[0], x[0])), ops::sum(ops::multiply(x[1], x[1])));
  };
  const auto first =
      tape.gradients(std::vector{ops::sum(ops::multiply(y, y))}, {}, v, {.create_graph = true});
  const auto second = tape.gradients(std::vector{norm(first)}, {}, v, {.create_graph = true});
  SeenGradients seen;
  tape.set_observer(&seen);
  tape.gradients(std::vector{norm(second)}, {}, v);
  EXPECT_EQ(seen.totals(), (std::map<std::string, std::uint64_t>{{"conv1.input", 9}, {"conv1.weight", 4}}));
  for (const auto& [name, row] : seen.rows) EXPECT_EQ(row.times, 1) << name;
}

/// Sums of 16-bit gradients over (n, p, q) are one TREE in FP32, rounded once: 2048 + 1 + ... survives.
TEST(ConvolutionBias, GradientRoundsOnce) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const auto backend = hopper_backend();
    Tape tape(*backend);
    const Variable x =
        tape.constant(halves_of(*backend, activation(layout, 2, 1, 2, 2), std::vector<float>(8, 0)));
    const Variable w = tape.constant(halves_of(*backend, {1, 1, 1, 1}, {1}));
    const Variable b = tape.input(halves_of(*backend, {1}, {0}));
    const Variable y = ops::conv2d(x, w, b, {.layout = layout});
    const Tensor seed = halves_of(*backend, y.shape(), {2048, 1, 1, 1, 1, 1, 1, 1});
    const auto gradient = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{b});
    EXPECT_EQ(gradient[0].dtype(), DType::f16);
    // 2055 lies between 2054 and 2056 (ulp 2 above 2^11) and ties to the even significand, 2056.
    EXPECT_EQ(values_of(*backend, gradient[0].tensor()), std::vector<float>{2056});
  }
}

// ---- pooling ------------------------------------------------------------------------------------

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

/// Squares of the pooled values, so that there is a second derivative: multiples of 2^-14 (2^-5 squared, a weight)
/// of at most 16 each (average: 2^-8 squared for areas up to 8, of at most 4 x 4), at most 16 of them.
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
  // 9 outputs of at most 3/2, squared: magnitude 21; chain: 9 additions, a division, a square, a weight, the sum.
  // The gradient's chain is twice as long, and its weighted sum has 25 terms of at most 3.
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

// ---- batched products ---------------------------------------------------------------------------

TEST(BatchedMatmul, IsOneMatmulAMatrix) {
  const auto backend = hopper_backend();
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Tape tape(*backend);
      const Shape a_shape = ta ? Shape{3, 4, 5} : Shape{3, 5, 4};
      const Shape b_shape = tb ? Shape{3, 2, 4} : Shape{3, 4, 2};
      const HostTensor a = with_signs(a_shape, 1), b = with_signs(b_shape, 2);
      const V v = inputs_on(tape, {a, b});
      const Variable y = ops::matmul(v[0], v[1], {.a = ta, .b = tb});
      EXPECT_EQ(y.shape(), (Shape{3, 5, 2}));
      std::vector<float> expected;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto part = [&](const HostTensor& from) {
          const std::size_t size = from.values.size() / 3;
          const auto begin = from.values.begin() + static_cast<std::ptrdiff_t>(i * size);
          return tape.constant(tensor_of(*backend, {from.shape[1], from.shape[2]},
                                         {begin, begin + static_cast<std::ptrdiff_t>(size)}));
        };
        const auto values = values_of(*backend, ops::matmul(part(a), part(b), {.a = ta, .b = tb}).tensor());
        expected.insert(expected.end(), values.begin(), values.end());
      }
      EXPECT_EQ(values_of(*backend, y.tensor()), expected);
    }
  }
}

TEST(BatchedMatmul, GradientsEqualFiniteDifferences) {
  const auto backend = hopper_backend();
  const DifferenceBounds exact{.magnitude = 0};
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Function function = [&](Tape&, const V& x) {
        return ops::matmul(x[0], x[1], {.a = ta, .b = tb});
      };
      const std::vector<HostTensor> inputs = {short_numbers(ta ? Shape{2, 4, 3} : Shape{2, 3, 4}, 1),
                                              short_numbers(tb ? Shape{2, 2, 4} : Shape{2, 4, 2}, 2)};
      expect_gradients(*backend, function, inputs, exact);
      expect_gradients(*backend, gradient_function(function), inputs, exact);
    }
  }
}

TEST(BatchedMatmul, RejectsUnequalBatchesAndRanks) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({2, 3, 4}, 1), short_numbers({3, 4, 2}, 2),
                               short_numbers({4, 2}, 3), short_numbers({2, 3, 2}, 4), short_numbers({4}, 5)});
  expect_rejected([&] { ops::matmul(v[0], v[1]); }, {"matmul: batch extents", "(2, 3, 4)", "(3, 4, 2)"});
  expect_rejected([&] { ops::matmul(v[0], v[2]); }, {"matmul: ", "(2, 3, 4)", "(4, 2)"});
  expect_rejected([&] { ops::matmul(v[4], v[4]); }, {"matmul: ", "(4)"});
  expect_rejected([&] { ops::matmul(v[0], v[3]); }, {"matmul: inner extents", "(2, 3, 4)", "(2, 3, 2)"});
}

TEST(LinearOverLeadingAxes, HasTheBitsOfTheMatrixCase) {
  const auto backend = hopper_backend();
  const HostTensor x = with_signs({2, 3, 4}, 1), w = with_signs({5, 4}, 2), b = with_signs({5}, 3);
  const auto run = [&](const Shape& shape) {
    Tape tape(*backend);
    const V v = inputs_on(tape, {{shape, x.values}, w, b});
    const Variable y = ops::linear(v[0], v[1], v[2]);
    std::vector<std::vector<float>> results = {values_of(*backend, y.tensor())};
    for (const Variable& g : tape.gradients(std::vector{weighted_sum(tape, y)}, {}, v))
      results.push_back(values_of(*backend, g.tensor()));
    return std::pair(y.shape(), results);
  };
  const auto [matrix_shape, matrix] = run({6, 4});
  const auto [batch_shape, batch] = run({2, 3, 4});
  EXPECT_EQ(matrix_shape, (Shape{6, 5}));
  EXPECT_EQ(batch_shape, (Shape{2, 3, 5}));
  EXPECT_EQ(matrix, batch);
}

TEST(LinearOverLeadingAxes, GradientsEqualFiniteDifferences) {
  const auto backend = hopper_backend();
  const DifferenceBounds exact{.magnitude = 0};
  const Function with_bias = [](Tape&, const V& x) { return ops::linear(x[0], x[1], x[2]); };
  const Function without = [](Tape&, const V& x) { return ops::linear(x[0], x[1], {}); };
  for (const Shape& shape : {Shape{2, 2, 3}, Shape{3}, Shape{1, 2, 2, 3}}) {
    const HostTensor x = short_numbers(shape, 1), w = short_numbers({2, 3}, 2), b = short_numbers({2}, 3);
    expect_gradients(*backend, with_bias, {x, w, b}, exact);
    expect_gradients(*backend, gradient_function(with_bias), {x, w, b}, exact);
    expect_gradients(*backend, without, {x, w}, exact);
    expect_gradients(*backend, gradient_function(without), {x, w}, exact);
  }
}

TEST(LinearOverLeadingAxes, ShowsItsGradientsUnderTheirNames) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({2, 2, 3}, 1), short_numbers({4, 3}, 2), short_numbers({4}, 3)});
  const Variable y = [&] {
    const ScopeGuard scope(tape, "fc1");
    return ops::linear(v[0], v[1], v[2]);
  }();
  SeenGradients seen;
  tape.set_observer(&seen);
  tape.gradients(std::vector{ops::sum(y)}, {}, v);
  EXPECT_EQ(seen.totals(),
            (std::map<std::string, std::uint64_t>{{"fc1.input", 12}, {"fc1.weight", 12}, {"fc1.bias", 4}}));
}

}  // namespace
}  // namespace fp16lab::engine::test
