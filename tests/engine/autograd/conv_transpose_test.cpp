// Transposed convolution: against the naive loops of a convolution turned round, and against finite
// differences of first and second order, exactly unless a test states a bound.
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

namespace fp16lab::engine::test::conv_transpose_test {
namespace {

using V = std::vector<Variable>;

struct TransposedCase {
  std::string name;
  std::int64_t n, inputs, h, w, outputs, r, s;
  Conv2dGeometry geometry;
  std::array<std::int64_t, 2> output_padding{0, 0};

  Shape x() const { return activation(geometry.layout, n, inputs, h, w); }
  Shape weight() const { return {inputs, outputs / geometry.groups, r, s}; }
  Shape y() const { return activation(geometry.layout, n, outputs, extent(0), extent(1)); }
  /// As torch documents ConvTranspose2d.
  std::int64_t extent(std::size_t axis) const {
    return ((axis == 0 ? h : w) - 1) * geometry.stride[axis] - 2 * geometry.padding[axis] +
           geometry.dilation[axis] * ((axis == 0 ? r : s) - 1) + output_padding[axis] + 1;
  }
};

void PrintTo(const TransposedCase& conv, std::ostream* out) { *out << conv.name; }

/// Visits every product x[i] * w[j] that goes into y[o]: the convolution of y takes y[o] * w[j] to x[i].
template <class Visit>
void for_each_product(const TransposedCase& conv, const Visit& visit) {
  const ConvolutionCase of_y{conv.name,   conv.n, conv.outputs, conv.extent(0), conv.extent(1),
                             conv.inputs, conv.r, conv.s,       conv.geometry};
  for_each_product(of_y, [&](std::size_t o, std::size_t j, std::size_t i) { visit(i, j, o); });
}

/// As small as the cases of convolution_test.cpp, whose bounds on bits hold here too: the same sums of
/// products of the same numbers, with x and y exchanged.
std::vector<TransposedCase> transposed_cases() {
  std::vector<TransposedCase> cases;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const auto add = [&](const std::string& name, std::array<std::int64_t, 7> e, Conv2dGeometry geometry,
                         std::array<std::int64_t, 2> output_padding = {0, 0}) {
      geometry.layout = layout;
      cases.push_back({name + (layout == Layout::nchw ? "_nchw" : "_nhwc"), e[0], e[1], e[2], e[3], e[4],
                       e[5], e[6], geometry, output_padding});
    };
    add("plain", {2, 2, 3, 2, 3, 2, 2}, {});
    add("pointwise", {2, 3, 2, 2, 2, 1, 1}, {});
    add("one_place", {2, 2, 1, 1, 2, 3, 2}, {});
    add("padded", {1, 2, 4, 3, 3, 3, 2}, {.padding = {1, 1}});
    add("doubles_the_image", {1, 2, 3, 2, 2, 4, 4}, {.stride = {2, 2}, .padding = {1, 1}});
    add("strided_with_holes", {2, 1, 2, 3, 2, 1, 2}, {.stride = {3, 3}}, {2, 1});
    add("output_padding", {1, 2, 3, 3, 2, 3, 3}, {.stride = {2, 3}, .padding = {1, 1}}, {1, 2});
    add("dilated", {1, 2, 3, 2, 2, 2, 3}, {.dilation = {3, 2}});
    add("groups", {2, 4, 3, 2, 6, 2, 2}, {.stride = {2, 1}, .groups = 2}, {1, 0});
    add("depthwise", {2, 3, 2, 3, 3, 3, 2}, {.stride = {1, 2}, .padding = {1, 0}, .groups = 3});
    add("everything", {2, 4, 3, 2, 2, 2, 3},
        {.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 3}, .groups = 2}, {1, 1});
  }
  return cases;
}

class TransposedConvolution : public testing::TestWithParam<TransposedCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TransposedConvolution, testing::ValuesIn(transposed_cases()),
                         [](const auto& test) { return test.param.name; });

Convolve transposed(const TransposedCase& conv) {
  return [&](const Variable& x, const Variable& w, const Variable& b) {
    return ops::conv_transpose2d(x, w, b, conv.geometry, conv.output_padding);
  };
}

TEST_P(TransposedConvolution, EqualsTheNaiveLoops) { expect_naive_loops(GetParam(), transposed(GetParam())); }

TEST_P(TransposedConvolution, GradientsEqualFiniteDifferences) {
  expect_exact_differences(GetParam(), transposed(GetParam()));
}

TEST(GradientChecks, CoverTheTransposedConvolution) {
  const TransposedCase conv = transposed_cases().front();
  GradientChecks checks;
  checks.add([&](Tape&, const V& v) { return transposed(conv)(v[0], v[1], v[2]); }, operands_of(conv));
  checks.expect_all_of(CheckedIn::conv_transpose);
}

TEST(TransposedConvolutionErrors, NameTheOpAndTheShapes) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v =
      inputs_on(tape, {short_numbers({2, 4, 3, 3}, 1), short_numbers({4, 3, 2, 2}, 2),
                       short_numbers({3, 4, 2, 2}, 3), short_numbers({4}, 4), short_numbers({2, 4}, 5)});
  const auto rejected = [&](const Variable& x, const Variable& w, const Variable& b,
                            const Conv2dGeometry& geometry, std::array<std::int64_t, 2> output_padding,
                            const std::vector<std::string>& words) {
    expect_rejected([&] { ops::conv_transpose2d(x, w, b, geometry, output_padding); }, words);
  };
  const std::string op = "conv_transpose2d: ";
  rejected(v[0], v[2], {}, {}, {0, 0}, {op, "(2, 4, 3, 3)", "(3, 4, 2, 2)", "(C_in, C_out / groups, R, S)"});
  rejected(v[4], v[1], {}, {}, {0, 0}, {op, "(2, 4)"});
  rejected(v[0], v[1], {}, {.groups = 3}, {0, 0}, {op, "(4, 3, 2, 2)", "3 groups"});
  rejected(v[0], v[1], {}, {.groups = 0}, {0, 0}, {op, "0 groups", "at least 1"});
  rejected(v[0], v[1], v[3], {}, {0, 0}, {op, "bias f32 (4)", "(4, 3, 2, 2)"});
  rejected(v[0], v[1], v[3], {.groups = 2}, {0, 0}, {op, "bias f32 (4)"});
  rejected(v[0], v[1], {}, {}, {1, 0}, {op, "output padding (1, 0)", "below the stride (1, 1)"});
  rejected(v[0], v[1], {}, {.stride = {2, 2}}, {0, -1}, {op, "output padding (0, -1)"});
  rejected(v[0], v[1], {}, {.padding = {2, 2}}, {0, 0}, {op, "nothing is left", "(2, 4, 3, 3)"});
  rejected(v[0], v[1], {}, {.stride = {0, 1}}, {0, 0}, {op, "stride (0, 1)"});
  rejected(v[0], v[1], {}, {.layout = Layout::nhwc}, {0, 0}, {op, "(N, H, W, C)"});
}

TEST(TransposedConvolutionUnderAutocast, ComputesInSixteenBitsAndShowsItsGradients) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  amp::Autocast autocast{tape, {.level = amp::Level::O1}};
  Parameter weight{"up.weight", tensor_of(*backend, {1, 2, 2, 2}, short_numbers({1, 2, 2, 2}, 2).values)};
  Parameter bias{"up.bias", tensor_of(*backend, {2}, {1, -1})};
  const Variable x = tape.input(tensor_of(*backend, {2, 1, 3, 3}, short_numbers({2, 1, 3, 3}, 1).values));
  Variable y;
  {
    const CastPolicyGuard guard(tape, &autocast);
    const ScopeGuard scope(tape, "up");
    y = ops::conv_transpose2d(ops::scale(x, 1.0f), tape.parameter(weight), tape.parameter(bias),
                              {.stride = {2, 2}});
  }
  EXPECT_EQ(y.dtype(), DType::f16);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 6, 6}));
  SeenGradients seen;
  const CountingGuard counted(tape, seen);
  const Tensor seed = halves_of(*backend, y.shape(), std::vector<float>(count_of(y.shape()), 1));
  tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x, tape.parameter(weight)});
  EXPECT_EQ(seen.rows.at("up.input").dtype, DType::f16);
  EXPECT_EQ(seen.rows.at("up.input").kind, GradientKind::activation);
  EXPECT_EQ(seen.rows.at("up.weight").dtype, DType::f16);
  EXPECT_EQ(seen.rows.at("up.weight").kind, GradientKind::weight);
  for (const auto& [name, row] : seen.rows) EXPECT_EQ(row.times, 1) << name;
}

}  // namespace
}  // namespace fp16lab::engine::test::conv_transpose_test
