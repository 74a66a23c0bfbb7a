// Convolution: against naive loops, and against finite differences of first and second order, exactly unless
// a test states a bound.
#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/convolutions.hpp"
#include "tests/engine/autograd/gradient_checks.hpp"

namespace fp16lab::engine::test::convolution_test {
namespace {

using V = std::vector<Variable>;

/// Inputs are multiples of 1/4 of magnitude <= 5/4, moved by multiples of 1/32; the weights of weighted_sum
/// are multiples of 1/16 of magnitude <= 1. So f is a multiple of 2^-11 and, with P outputs of T terms each,
/// at most P (T 25/16 + 5/4): below 2^13 for all cases. The weighted gradient is a multiple of 2^-13 (two
/// weights, one moved input) and at most |x| K R S 5/4 + |w| N P Q 5/4 + N P Q K: below 2^11. Neither needs
/// more than 24 bits, nor do the partial sums: everything is exact, and central differences of a polynomial
/// of degree 2 (in one variable: 1) are its derivative.
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
    add("groups", {1, 4, 4, 3, 6, 2, 2}, {.padding = {1, 0}, .groups = 2});
    add("depthwise", {2, 3, 4, 5, 3, 3, 2}, {.padding = {1, 1}, .groups = 3});
    add("dilated_groups", {1, 4, 6, 5, 2, 2, 3},
        {.stride = {2, 1}, .padding = {1, 2}, .dilation = {2, 3}, .groups = 2});
    add("pointwise_groups", {2, 4, 2, 2, 4, 1, 1}, {.groups = 2});
    add("one_channel_one_filter", {1, 1, 3, 3, 1, 3, 3}, {.padding = {1, 1}});
  }
  return cases;
}

class Convolution : public testing::TestWithParam<ConvolutionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Convolution, testing::ValuesIn(convolution_cases()),
                         [](const auto& test) { return test.param.name; });

Convolve convolution(const ConvolutionCase& conv) {
  return [&](const Variable& x, const Variable& w, const Variable& b) {
    return ops::conv2d(x, w, b, conv.geometry);
  };
}

TEST_P(Convolution, EqualsTheNaiveLoops) { expect_naive_loops(GetParam(), convolution(GetParam())); }

TEST_P(Convolution, GradientsEqualFiniteDifferences) {
  expect_exact_differences(GetParam(), convolution(GetParam()));
}

Function input_gradient(const ConvolutionCase& conv) {
  return [&](Tape&, const V& x) { return ops::conv2d_input_gradient(x[0], x[1], conv.x(), conv.geometry); };
}
Function weight_gradient(const ConvolutionCase& conv) {
  return [&](Tape&, const V& x) {
    return ops::conv2d_weight_gradient(x[0], x[1], conv.weight(), conv.geometry);
  };
}

TEST_P(Convolution, ItsGradientMapsHaveGradientsToo) {
  const ConvolutionCase& conv = GetParam();
  const auto backend = hopper_backend();
  const HostTensor x = short_numbers(conv.x(), 1), w = short_numbers(conv.weight(), 2),
                   g = short_numbers(conv.y(), 3);
  const DifferenceBounds exact{.magnitude = 0};
  expect_gradients(*backend, input_gradient(conv), {g, w}, exact);
  expect_gradients(*backend, gradient_function(input_gradient(conv)), {g, w}, exact);
  expect_gradients(*backend, weight_gradient(conv), {x, g}, exact);
  expect_gradients(*backend, gradient_function(weight_gradient(conv)), {x, g}, exact);
}

TEST(GradientChecks, CoverTheConvolution) {
  const ConvolutionCase conv = convolution_cases().front();
  const HostTensor x = short_numbers(conv.x(), 1), w = short_numbers(conv.weight(), 2),
                   y = short_numbers(conv.y(), 3);
  GradientChecks checks;
  checks.add([&](Tape&, const V& v) { return convolution(conv)(v[0], v[1], {}); }, {x, w});
  checks.add(input_gradient(conv), {y, w});
  checks.add(weight_gradient(conv), {x, y});
  checks.expect_all_of(CheckedIn::convolution);
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
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.groups = 0}); }, {"conv2d: 0 groups", "at least 1"});
  expect_rejected([&] { ops::conv2d(v[0], v[2], {}, {.groups = 3}); },
                  {"conv2d: ", "(K, C / groups, R, S)", "(2, 3, 4, 4)", "(2, 3, 3, 3)", "3 groups"});
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
  amp::Autocast autocast{tape, {.level = amp::Level::O1}};
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
  const CountingGuard counted(tape, seen);
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
  const CountingGuard counted(tape, seen);
  const Tensor seed = halves_of(*backend, {1, 1, 2, 2}, std::vector<float>(4, 0x1p-24f));
  const auto gradients = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x, w});
  EXPECT_EQ(seen.rows.at("conv1.input").kind, GradientKind::activation);
  EXPECT_EQ(seen.rows.at("conv1.input").probe.before.finite_nonzero(), 4u);
  EXPECT_EQ(seen.rows.at("conv1.input").probe.after.zero, 4u);
  EXPECT_EQ(values_of(*backend, gradients[1].tensor()), (std::vector<float>{0x1p-22f}));
}

TEST(ConvolutionObservation, StepsOfABackwardPassAreNoLayers) {
  // The derivatives of the two gradient maps hold conv2d again. A third backward pass goes through all of
  // them, and shows the one layer of the forward pass once.
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
  const CountingGuard counted(tape, seen);
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

}  // namespace
}  // namespace fp16lab::engine::test::convolution_test
