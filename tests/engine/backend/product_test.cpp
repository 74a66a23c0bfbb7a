// Conformance: products and convolutions of special values, their memory, and what they refuse.
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
    backend().conv2d_input_gradient(x, weight, {.padding = {0, 1}, .layout = layout}, out);
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

TEST_P(BackendConformance, ScratchIsPooled) {
  const Conv2dGeometry geometry{.stride = {2, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
  const auto random = [&](const Shape& shape, std::uint64_t seed) {
    return tensor(shape, random_halves(shape.element_count(), Kind::ordinary, seed));
  };
  const Tensor x = random({8, 23, 21, 5}, 52), dy = random({8, 12, 21, 6}, 53),
               weight = random({6, 5, 3, 3}, 51);
  Tensor y = output(dy.shape(), DType::f16), dx = output(x.shape(), DType::f16),
         dw = output(weight.shape(), DType::f16), index = output(x.shape(), DType::i32);
  const auto run = [&] {
    backend().conv2d(x, weight, geometry, nullptr, y);
    backend().conv2d_input_gradient(dy, weight, geometry, dx);
    backend().conv2d_weight_gradient(x, dy, geometry, dw);
    const Pool2dGeometry pool{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
    backend().max_pool2d(x, pool, dx, index);
    backend().pool_place(x, index, Layout::nhwc, dx);
    backend().average_pool2d(x, pool, dx);
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
    try {
      backend().gemm({.a = output(a, DType::f32), .b = output(b, DType::f32), .out = result});
      FAIL() << "accepted: " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), what);
    }
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
  const auto expect_error = [](const std::function<void()>& call, const std::string& what) {
    try {
      call();
      FAIL() << "accepted: " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), what);
    }
  };
  const Tensor x = zeros({2, 3, 8, 9}), weight = zeros({4, 3, 3, 5});
  Tensor out = zeros({2, 4, 6, 5});
  EXPECT_NO_THROW(backend().conv2d(x, weight, {}, nullptr, out));
  expect_error(
      [&] {
        backend().conv2d(x, zeros({4, 2, 3, 5}), {}, nullptr, out);
      },
      "conv2d: x is f32 (2, 3, 8, 9) in NCHW, weight is f32 (4, 2, 3, 5): 3 and 2 channels differ");
  expect_error([&] { backend().conv2d(x, weight, {.layout = Layout::nhwc}, nullptr, out); },
               "conv2d: x is f32 (2, 3, 8, 9) in NHWC, weight is f32 (4, 3, 3, 5): 9 and 3 channels differ");
  expect_error(
      [&] {
        backend().conv2d(x, zeros({4, 3, 3}), {}, nullptr, out);
      },
      "conv2d: weight is f32 (4, 3, 3); (K, C, R, S) is needed");
  expect_error(
      [&] {
        backend().conv2d(zeros({3, 8, 9}), weight, {}, nullptr, out);
      },
      "conv2d: x is f32 (3, 8, 9); a 4-d activation in NCHW is needed");
  expect_error(
      [&] {
        backend().conv2d(x, zeros({4, 3, 3, 10}), {}, nullptr, out);
      },
      "conv2d: a kernel of 10 with dilation 1 does not fit into the horizontal extent 9 with padding 0: x is "
      "f32 (2, 3, 8, 9)");
  expect_error(
      [&] {
        backend().conv2d(x, weight, {.dilation = {4, 1}}, nullptr, out);
      },
      "conv2d: a kernel of 3 with dilation 4 does not fit into the vertical extent 8 with padding 0: x is "
      "f32 "
      "(2, 3, 8, 9)");
  expect_error(
      [&] {
        backend().conv2d(x, weight, {.stride = {0, 1}}, nullptr, out);
      },
      "conv2d: the vertical stride is 0; it must be at least 1");
  expect_error(
      [&] {
        backend().conv2d(x, weight, {.padding = {0, -1}}, nullptr, out);
      },
      "conv2d: the horizontal padding is -1; it must be at least 0");
  expect_error(
      [&] {
        backend().conv2d(x, weight, {.padding = {1, 0}}, nullptr, out);
      },
      "conv2d: out is f32 (2, 4, 6, 5); in NCHW it must be (2, 4, 8, 5), as x, weight and geometry say");
  expect_error(
      [&] {
        backend().conv2d(x, zeros({4, 3, 3, 5}, DType::f16), {}, nullptr, out);
      },
      "conv2d: x is f32 (2, 3, 8, 9), weight is f16 (4, 3, 3, 5): their dtypes differ");
  Tensor half = zeros({2, 4, 6, 5}, DType::f16);
  expect_error([&] { backend().conv2d(x, weight, {}, nullptr, half); },
               "conv2d: x is f32 (2, 3, 8, 9), out is f16 (2, 4, 6, 5): f32 operands give f32");
  const Tensor bias = zeros({3});
  expect_error([&] { backend().conv2d(x, weight, {}, &bias, out); },
               "conv2d: bias is f32 (3); it must have 4 elements, one per output channel");
  Tensor same = zeros({1, 1, 4, 4});
  expect_error(
      [&] {
        backend().conv2d(same, zeros({1, 1, 1, 1}), {}, nullptr, same);
      },
      "conv2d: x and out overlap in memory: x is f32 (1, 1, 4, 4), out is f32 (1, 1, 4, 4)");

  Tensor dx = zeros({2, 3, 8, 9}), dw = zeros({4, 3, 3, 5});
  EXPECT_NO_THROW(backend().conv2d_input_gradient(out, weight, {}, dx));
  EXPECT_NO_THROW(backend().conv2d_weight_gradient(x, out, {}, dw));
  expect_error(
      [&] {
        backend().conv2d_input_gradient(zeros({2, 4, 6, 6}), weight, {}, dx);
      },
      "conv2d_input_gradient: gradient is f32 (2, 4, 6, 6); in NCHW it must be (2, 4, 6, 5), as out, weight "
      "and geometry say");
  expect_error(
      [&] {
        backend().conv2d_weight_gradient(x, zeros({2, 5, 6, 5}), {}, dw);
      },
      "conv2d_weight_gradient: gradient is f32 (2, 5, 6, 5); in NCHW it must be (2, 4, 6, 5), as x, out and "
      "geometry say");
}

}  // namespace
}  // namespace fp16lab::engine::test
