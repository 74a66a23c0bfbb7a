// Conformance: products and convolutions of special values, their memory, and what they refuse.
#include <array>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

TEST_P(BackendConformance, PaddingIsAnOperandSoInfiniteWeightsMakeItNaN) {
  // A 1 x 3 kernel whose left tap is infinite, over two ones: at the left edge it meets padding, inf * +0.
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = float_from_bits(0x7fffffffu);
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const bool nchw = layout == Layout::nchw;
    const Tensor x = tensor(nchw ? Shape{1, 1, 1, 2} : Shape{1, 1, 2, 1}, std::vector<float>{1.0f, 1.0f});
    const Tensor weight = tensor(Shape{1, 1, 1, 3}, std::vector<float>{inf, 1.0f, 1.0f});
    Tensor out = output(x.shape(), DType::f32);
    backend().conv2d(x, weight, {.padding = {0, 1}, .layout = layout}, nullptr, out);
    expect_same_bits(values_of<float>(out), {nan, inf}, "forward");
    // Backward, place w reads window w + 1 - s through tap s: the left tap reads a window beyond the right
    // edge from place 1.
    backend().conv2d_input_gradient(x, weight, {.padding = {0, 1}, .layout = layout}, nullptr, out);
    expect_same_bits(values_of<float>(out), {inf, nan}, "input gradient");
  }
}

TEST_P(BackendConformance, LongWeightGradientChainsHaveNoSeams) {
  // Every partial sum counts: 1 first, then halves of the last place, which all vanish in a chain from 1 but
  // would add up in a partial sum of their own. Positions: 3 images of 47 * 47.
  const std::int64_t images = 3, side = 47;
  std::vector<float> x(static_cast<std::size_t>(images * side * side), 0x1p-24f);
  x[0] = 1.0f;
  const Shape shape{images, 1, side, side};
  Tensor out = output(Shape{1, 1, 1, 1}, DType::f32);
  backend().conv2d_weight_gradient(tensor(shape, x), tensor(shape, std::vector<float>(x.size(), 1.0f)), {},
                                   out);
  expect_same_bits(values_of<float>(out), {1.0f}, "f32");
}

TEST_P(BackendConformance, GroupsAreConvolutionsOfTheirChannels) {
  // Each group's channels cut out, convolved on their own, and put back in their place: the same bits.
  constexpr std::int64_t groups = 3, group_inputs = 2, group_outputs = 4;
  const auto random = [&](const Shape& shape, std::uint64_t seed) {
    return tensor(shape, random_halves(shape.element_count(), Kind::cancelling, seed));
  };
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const Conv2dGeometry alone{.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .layout = layout};
    Conv2dGeometry together = alone;
    together.groups = groups;
    const int axis = layout == Layout::nchw ? 1 : 3;
    const auto image = [&](std::int64_t channels, std::int64_t height, std::int64_t width) {
      return layout == Layout::nchw ? Shape{2, channels, height, width} : Shape{2, height, width, channels};
    };
    const Tensor x = random(image(groups * group_inputs, 7, 6), 1),
                 weight = random({groups * group_outputs, group_inputs, 3, 2}, 2),
                 dy = random(image(groups * group_outputs, 4, 8), 3),
                 bias = random({groups * group_outputs}, 4), back_bias = random({groups * group_inputs}, 5);
    Tensor y = output(dy.shape(), DType::f32), dx = output(x.shape(), DType::f32),
           dw = output(weight.shape(), DType::f32);
    backend().conv2d(x, weight, together, &bias, y);
    backend().conv2d_input_gradient(dy, weight, together, &back_bias, dx);
    backend().conv2d_weight_gradient(x, dy, together, dw);
    Tensor y_alone = output(y.shape(), DType::f32), dx_alone = output(x.shape(), DType::f32),
           dw_alone = output(weight.shape(), DType::f32);
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto part = [&](const Tensor& whole, int along, std::int64_t channels) {
        Shape shape = whole.shape();
        std::vector<std::int64_t> extents;
        for (int i = 0; i < shape.rank(); ++i) extents.push_back(i == along ? channels : shape[i]);
        Tensor out = output(Shape(extents), whole.dtype());
        if (whole.dtype() == DType::f16) backend().slice(whole, along, group * channels, out);
        return out;
      };
      const Tensor x_part = part(x, axis, group_inputs), dy_part = part(dy, axis, group_outputs),
                   weight_part = part(weight, 0, group_outputs), bias_part = part(bias, 0, group_outputs),
                   back_part = part(back_bias, 0, group_inputs);
      Tensor y_part = part(y, axis, group_outputs), dx_part = part(dx, axis, group_inputs),
             dw_part = part(dw, 0, group_outputs);
      backend().conv2d(x_part, weight_part, alone, &bias_part, y_part);
      backend().conv2d_input_gradient(dy_part, weight_part, alone, &back_part, dx_part);
      backend().conv2d_weight_gradient(x_part, dy_part, alone, dw_part);
      backend().insert(y_part, axis, group * group_outputs, y_alone);
      backend().insert(dx_part, axis, group * group_inputs, dx_alone);
      backend().insert(dw_part, 0, group * group_outputs, dw_alone);
    }
    const std::string name = layout == Layout::nchw ? "NCHW, " : "NHWC, ";
    expect_same_bits(values_of<float>(y), values_of<float>(y_alone), name + "forward");
    expect_same_bits(values_of<float>(dx), values_of<float>(dx_alone), name + "input gradient");
    expect_same_bits(values_of<float>(dw), values_of<float>(dw_alone), name + "weight gradient");
  }
}

TEST_P(BackendConformance, ScratchIsPooled) {
  const Conv2dGeometry geometry{.stride = {2, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
  Conv2dGeometry grouped = geometry;
  grouped.groups = 2;
  const auto random = [&](const Shape& shape, std::uint64_t seed) {
    return tensor(shape, random_halves(shape.element_count(), Kind::ordinary, seed));
  };
  const Tensor x = random({8, 23, 21, 5}, 52), dy = random({8, 12, 21, 6}, 53),
               weight = random({6, 5, 3, 3}, 51);
  Tensor y = output(dy.shape(), DType::f16), dx = output(x.shape(), DType::f16),
         dw = output(weight.shape(), DType::f16), index = output(x.shape(), DType::i32);
  const Tensor even_x = random({8, 23, 21, 4}, 54), two_channels = random({6, 2, 3, 3}, 55),
               bias = random({4}, 56);
  Tensor even_dx = output(even_x.shape(), DType::f16), even_dw = output(two_channels.shape(), DType::f16);
  std::vector<std::int32_t> places(5000);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int32_t>(i * 7 % 300);
  const Tensor row = tensor(places), step = backend().make_step_state({});
  Tensor table = random({300, 70}, 57), rows = output({5000, 70}, DType::f16),
         turned = output({70, 300}, DType::f16), part = output({300, 7}, DType::f16);
  const std::array axes{1, 0};
  const auto run = [&] {
    backend().conv2d(x, weight, geometry, nullptr, y);
    backend().conv2d_input_gradient(dy, weight, geometry, nullptr, dx);
    backend().conv2d_weight_gradient(x, dy, geometry, dw);
    backend().conv2d(even_x, two_channels, grouped, nullptr, y);
    backend().conv2d_input_gradient(dy, two_channels, grouped, &bias, even_dx);
    backend().conv2d_weight_gradient(even_x, dy, grouped, even_dw);
    const Pool2dGeometry pool{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
    backend().max_pool2d(x, pool, dx, index);
    backend().pool_place(x, index, Layout::nhwc, dx);
    backend().average_pool2d(x, pool, dx);
    backend().gather_rows(table, row, rows);
    backend().scatter_rows(rows, row, table);
    backend().permute(table, axes, turned);
    backend().slice(table, 1, 3, part);
    backend().insert(part, 1, 60, table);
    backend().fill_bernoulli(rows, {.seed = 1}, 0.5f, step);
  };
  run();
  const PoolStatistics warm = backend().memory_statistics();
  for (int i = 0; i < 3; ++i) run();
  EXPECT_GT(backend().memory_statistics().allocations, warm.allocations);
  EXPECT_EQ(backend().memory_statistics().system_allocations, warm.system_allocations);
  EXPECT_EQ(backend().memory_statistics().bytes_in_use, warm.bytes_in_use);
}

TEST_P(BackendConformance, GemmSaysWhichBatchExtentsOrRanksDiffer) {
  const auto expect_error = [&](const Shape& a, const Shape& b, const Shape& out, const std::string& what) {
    Tensor result = output(out, DType::f32);
    EXPECT_REFUSED(what,
                   backend().gemm({.a = output(a, DType::f32), .b = output(b, DType::f32), .out = result}));
  };
  expect_error(
      {2, 3, 4}, {3, 4, 5}, {2, 3, 5},
      "gemm: a is f32 (2, 3, 4), b is f32 (3, 4, 5), out is f32 (2, 3, 5): their batch extents differ");
  expect_error({2, 3, 4}, {4, 5}, {2, 3, 5},
               "gemm: b is f32 (4, 5), out is f32 (2, 3, 5): their ranks differ");
  expect_error(
      {2, 3, 4}, {2, 4, 5}, {2, 5, 3},
      "gemm: a is f32 (2, 3, 4), b is f32 (2, 4, 5): out must be (2, 3, 5), but out is f32 (2, 5, 3)");
  expect_error({4}, {4}, {1}, "gemm: out is f32 (1); a matrix, or matrices along one batch axis, is needed");
}

TEST_P(BackendConformance, ConvolutionErrorsNameVerbShapesAndReason) {
  const auto zeros = [&](const Shape& shape, DType dtype = DType::f32) { return output(shape, dtype); };
  const Tensor x = zeros({2, 3, 8, 9}), weight = zeros({4, 3, 3, 5});
  Tensor out = zeros({2, 4, 6, 5});
  EXPECT_NO_THROW(backend().conv2d(x, weight, {}, nullptr, out));
  EXPECT_REFUSED("conv2d: x is f32 (2, 3, 8, 9) in NCHW, weight is f32 (4, 2, 3, 5): 3 and 2 channels differ",
                 backend().conv2d(x, zeros({4, 2, 3, 5}), {}, nullptr, out));
  EXPECT_REFUSED("conv2d: x is f32 (2, 3, 8, 9) in NHWC, weight is f32 (4, 3, 3, 5): 9 and 3 channels differ",
                 backend().conv2d(x, weight, {.layout = Layout::nhwc}, nullptr, out));
  EXPECT_REFUSED("conv2d: weight is f32 (4, 3, 3); (K, C, R, S) is needed",
                 backend().conv2d(x, zeros({4, 3, 3}), {}, nullptr, out));
  EXPECT_REFUSED("conv2d: x is f32 (3, 8, 9); a 4-d activation in NCHW is needed",
                 backend().conv2d(zeros({3, 8, 9}), weight, {}, nullptr, out));
  EXPECT_REFUSED(
      "conv2d: a kernel of 10 with dilation 1 does not fit into the horizontal extent 9 with padding 0: x is "
      "f32 (2, 3, 8, 9)",
      backend().conv2d(x, zeros({4, 3, 3, 10}), {}, nullptr, out));
  EXPECT_REFUSED(
      "conv2d: a kernel of 3 with dilation 4 does not fit into the vertical extent 8 with padding 0: x is "
      "f32 (2, 3, 8, 9)",
      backend().conv2d(x, weight, {.dilation = {4, 1}}, nullptr, out));
  EXPECT_REFUSED("conv2d: the vertical stride is 0; it must be at least 1",
                 backend().conv2d(x, weight, {.stride = {0, 1}}, nullptr, out));
  constexpr std::int64_t most = 9223372036854775807;
  EXPECT_REFUSED("conv2d: the vertical padding is 9223372036854775807; it must be at most 2147483647",
                 backend().conv2d(x, weight, {.padding = {most, 0}}, nullptr, out));
  EXPECT_REFUSED("conv2d: the horizontal dilation is 9223372036854775807; it must be at most 2147483647",
                 backend().conv2d(x, weight, {.dilation = {1, most}}, nullptr, out));
  EXPECT_REFUSED("conv2d: the horizontal padding is -1; it must be at least 0",
                 backend().conv2d(x, weight, {.padding = {0, -1}}, nullptr, out));
  EXPECT_REFUSED(
      "conv2d: out is f32 (2, 4, 6, 5); in NCHW it must be (2, 4, 8, 5), as x, weight and geometry say",
      backend().conv2d(x, weight, {.padding = {1, 0}}, nullptr, out));
  EXPECT_REFUSED("conv2d: x is f32 (2, 3, 8, 9), weight is f16 (4, 3, 3, 5): their dtypes differ",
                 backend().conv2d(x, zeros({4, 3, 3, 5}, DType::f16), {}, nullptr, out));
  Tensor half = zeros({2, 4, 6, 5}, DType::f16);
  EXPECT_REFUSED("conv2d: x is f32 (2, 3, 8, 9), out is f16 (2, 4, 6, 5): f32 operands give f32",
                 backend().conv2d(x, weight, {}, nullptr, half));
  const Tensor bias = zeros({3});
  EXPECT_REFUSED("conv2d: bias is f32 (3); it must have 4 elements, one per output channel",
                 backend().conv2d(x, weight, {}, &bias, out));
  Tensor same = zeros({1, 1, 4, 4});
  EXPECT_REFUSED("conv2d: x and out overlap in memory: x is f32 (1, 1, 4, 4), out is f32 (1, 1, 4, 4)",
                 backend().conv2d(same, zeros({1, 1, 1, 1}), {}, nullptr, same));

  Tensor dx = zeros({2, 3, 8, 9}), dw = zeros({4, 3, 3, 5});
  EXPECT_NO_THROW(backend().conv2d_input_gradient(out, weight, {}, nullptr, dx));
  EXPECT_NO_THROW(backend().conv2d_weight_gradient(x, out, {}, dw));
  EXPECT_REFUSED(
      "conv2d_input_gradient: gradient is f32 (2, 4, 6, 6); in NCHW it must be (2, 4, 6, 5), as out, weight "
      "and geometry say",
      backend().conv2d_input_gradient(zeros({2, 4, 6, 6}), weight, {}, nullptr, dx));
  EXPECT_REFUSED(
      "conv2d_weight_gradient: gradient is f32 (2, 5, 6, 5); in NCHW it must be (2, 4, 6, 5), as x, out and "
      "geometry say",
      backend().conv2d_weight_gradient(x, zeros({2, 5, 6, 5}), {}, dw));
  const Tensor long_bias = zeros({4});
  EXPECT_REFUSED("conv2d_input_gradient: bias is f32 (4); it must have 3 elements, one per output channel",
                 backend().conv2d_input_gradient(out, weight, {}, &long_bias, dx));
}

TEST_P(BackendConformance, GroupErrorsNameTheChannels) {
  const auto expect_error = [&](const Shape& channels_and_filters, std::int64_t groups,
                                const std::string& what) {
    const Tensor x = output({1, channels_and_filters[0], 3, 3}, DType::f32),
                 weight = output({channels_and_filters[2], channels_and_filters[1], 3, 3}, DType::f32);
    Tensor out = output({1, channels_and_filters[2], 1, 1}, DType::f32);
    EXPECT_REFUSED(what, backend().conv2d(x, weight, {.groups = groups}, nullptr, out));
  };
  expect_error({4, 4, 4}, 0, "conv2d: the number of groups is 0; it must be at least 1");
  expect_error({4, 1, 6}, 4,
               "conv2d: x is f32 (1, 4, 3, 3) in NCHW, weight is f32 (6, 1, 3, 3): 4 groups do not divide 4 "
               "input and 6 output channels");
  expect_error({6, 1, 4}, 4,
               "conv2d: x is f32 (1, 6, 3, 3) in NCHW, weight is f32 (4, 1, 3, 3): 4 groups do not divide 6 "
               "input and 4 output channels");
  expect_error({6, 6, 4}, 2,
               "conv2d: x is f32 (1, 6, 3, 3) in NCHW, weight is f32 (4, 6, 3, 3): 6 channels in 2 groups "
               "need filters of 3, not of 6");
  Tensor dx = output({1, 4, 3, 3}, DType::f32), dw = output({4, 4, 3, 3}, DType::f32);
  const Tensor y = output({1, 4, 1, 1}, DType::f32);
  EXPECT_THROW(backend().conv2d_input_gradient(y, dw, {.groups = 2}, nullptr, dx), std::invalid_argument);
  EXPECT_THROW(backend().conv2d_weight_gradient(dx, y, {.groups = 2}, dw), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
