// Conformance: what convolutions refuse, and in which words.
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

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
