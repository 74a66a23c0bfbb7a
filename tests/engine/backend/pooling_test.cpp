// Conformance: pooling of special values, and what it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

/// Stored: one rounding, canonical NaN.
template <class T>
T stored(float x) {
  return stored_as(canonical(x), T{});
}

TEST_P(BackendConformance, MaximumOfEqualNaNAndInfinityIsTheFirst) {
  const float nan = float_from_bits(0xffc00123u), inf = std::numeric_limits<float>::infinity();
  const auto check = [&](const std::vector<float>& window, float maximum, std::int32_t place) {
    for_each_float_type([&](auto tag) {
      using T = decltype(tag);
      Tensor out = output(Shape{1, 1, 1, 1}, DTypeOf<T>::value),
             index = output(Shape{1, 1, 1, 1}, DType::i32);
      const Tensor x = tensor(Shape{1, 1, 2, 2}, mapped(window, [](float v) { return stored_as(v, T{}); }));
      backend().max_pool2d(x, {}, out, index);
      expect_same_bits(values_of<T>(out), {stored<T>(maximum)}, out.describe());
      expect_same_bits(values_of<std::int32_t>(index), {place}, "index");
    });
  };
  check({-0.0f, 0.0f, -1.0f, 0.0f}, -0.0f, 0);
  check({0.0f, -0.0f, -1.0f, -2.0f}, 0.0f, 0);
  check({1.0f, nan, inf, -nan}, nan, 1);
  check({-inf, -inf, -inf, -inf}, -inf, 0);
  check({1.0f, inf, inf, 2.0f}, inf, 1);
  check({-0x1p-24f, -0x1p-14f, -0x1p-24f, -1.0f}, -0x1p-24f, 0);
  check({-2.0f, -3.0f, 0x1p-24f, 0.0f}, 0x1p-24f, 2);
}

TEST_P(BackendConformance, PaddingIsNeverTheMaximum) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensor out = output(Shape{1, 1, 2, 2}, DType::f32), index = output(Shape{1, 1, 2, 2}, DType::i32);
  backend().max_pool2d(tensor(Shape{1, 1, 2, 2}, std::vector<float>(4, -inf)), {.padding = {1, 1}}, out,
                       index);
  expect_same_bits(values_of<float>(out), {-inf, -inf, -inf, -inf}, "maximum");
  expect_same_bits(values_of<std::int32_t>(index), {0, 1, 2, 3}, "index");
}

TEST_P(BackendConformance, PlaceKeepsALoneNegativeZeroAndZerosTheRest) {
  Tensor out = output(Shape{1, 1, 1, 3}, DType::f32);
  const Tensor index = tensor(Shape{1, 1, 1, 2}, std::vector<std::int32_t>{2, 2});
  backend().pool_place(tensor(Shape{1, 1, 1, 2}, std::vector<float>{-0.0f, -0.0f}), index, Layout::nchw, out);
  expect_same_bits(values_of<float>(out), {0.0f, 0.0f, -0.0f}, "-0");
  // In FP32 and rounded once: 2048 + 1 + 1 is 2050 in f16, where each step alone would be lost.
  Tensor half = output(Shape{1, 1, 1, 1}, DType::f16);
  backend().pool_place(
      tensor(Shape{1, 1, 1, 3}, std::vector<Float16>{half_of(2048.0f), half_of(1.0f), half_of(1.0f)}),
      tensor(Shape{1, 1, 1, 3}, std::vector<std::int32_t>{0, 0, 0}), Layout::nchw, half);
  expect_same_bits(values_of<Float16>(half), {half_of(2050.0f)}, "one rounding");
}

TEST_P(BackendConformance, IndexOutOfItsPlaneIsNamed) {
  const Tensor x = tensor(Shape{1, 1, 2, 3}, std::vector<float>(6, 1.0f));
  Tensor small = output(Shape{1, 1, 1, 2}, DType::f32), large = output(Shape{1, 1, 2, 3}, DType::f32);
  for (const std::int32_t bad : {-1, 6}) {
    const Tensor index = tensor(Shape{1, 1, 1, 2}, std::vector<std::int32_t>{5, bad});
    const auto expect_error = [bad](const std::string& verb, const std::function<void()>& call) {
      EXPECT_THAT(call, testing::ThrowsMessage<std::out_of_range>(
                            fmt::format("{}: index[1] is {}, which is not in [0, 6)", verb, bad)));
    };
    // A device may run behind the host: then the next verb that hands numbers to the host throws.
    expect_error("pool_pick", [&] {
      backend().pool_pick(x, index, Layout::nchw, small);
      values_of<float>(small);
    });
    const Tensor windows = tensor(Shape{1, 1, 1, 2}, std::vector<float>(2, 1.0f));
    expect_error("pool_place", [&] {
      backend().pool_place(windows, index, Layout::nchw, large);
      values_of<float>(large);
    });
  }
}

TEST_P(BackendConformance, AveragesOfNegativeZerosAreNegativeZero) {
  const Pool2dGeometry geometry{.kernel = {1, 2}, .stride = {1, 3}};
  const Tensor zeros = tensor(Shape{1, 1, 1, 6}, std::vector<float>(6, -0.0f));
  Tensor small = output(Shape{1, 1, 1, 2}, DType::f32), large = output(Shape{1, 1, 1, 6}, DType::f32);
  backend().average_pool2d(zeros, geometry, small);
  expect_same_bits(values_of<float>(small), {-0.0f, -0.0f}, "average");
  backend().average_pool2d_transposed(small, geometry, large);
  expect_same_bits(values_of<float>(large), {-0.0f, -0.0f, 0.0f, -0.0f, -0.0f, 0.0f},
                   "places without a window are +0");
}

TEST_P(BackendConformance, ErrorsNameVerbShapesAndReason) {
  const Tensor x = output({2, 3, 6, 8}, DType::f32);
  Tensor out = output({2, 3, 3, 4}, DType::f32), index = output({2, 3, 3, 4}, DType::i32);
  Tensor wrong = output({2, 3, 3, 3}, DType::f32), half = output({2, 3, 3, 4}, DType::f16);
  EXPECT_NO_THROW(backend().max_pool2d(x, {}, out, index));
  EXPECT_REFUSED(
      "max_pool2d: a kernel of 7 with dilation 1 does not fit into the vertical extent 6 with padding 0: x "
      "is f32 (2, 3, 6, 8)",
      backend().max_pool2d(x, {.kernel = {7, 1}, .stride = {1, 1}}, out, index));
  EXPECT_REFUSED("max_pool2d: the horizontal padding is 2; it must be at most half the kernel's 3",
                 backend().max_pool2d(x, {.kernel = {3, 3}, .padding = {1, 2}}, out, index));
  EXPECT_REFUSED("max_pool2d: the horizontal kernel extent is 0; it must be at least 1",
                 backend().max_pool2d(x, {.kernel = {2, 0}}, out, index));
  EXPECT_REFUSED(
      "max_pool2d: out is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 3, 4), as x and geometry say",
      backend().max_pool2d(x, {}, wrong, index));
  EXPECT_REFUSED("max_pool2d: x is f32 (2, 3, 6, 8), out is f16 (2, 3, 3, 4): their dtypes differ",
                 backend().max_pool2d(x, {}, half, index));
  EXPECT_REFUSED("max_pool2d: index is f32 (2, 3, 3, 3); i32 is needed",
                 backend().max_pool2d(x, {}, out, wrong));
  EXPECT_REFUSED(
      "average_pool2d: out is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 3, 4), as x and geometry say",
      backend().average_pool2d(x, {}, wrong));
  EXPECT_REFUSED(
      "average_pool2d_transposed: x is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 1, 2), as out and "
      "geometry say",
      backend().average_pool2d_transposed(wrong, {}, out));
  EXPECT_REFUSED("pool_pick: out is f32 (2, 3, 3, 3), index is i32 (2, 3, 3, 4): their shapes differ",
                 backend().pool_pick(x, index, Layout::nchw, wrong));
  EXPECT_REFUSED(
      "pool_pick: x is f32 (2, 3, 6, 8), out is f32 (2, 3, 3, 4) in NHWC: their images or channels differ",
      backend().pool_pick(x, index, Layout::nhwc, out));
  Tensor flat = output({2, 3, 48}, DType::f32);
  EXPECT_REFUSED("pool_place: out is f32 (2, 3, 48); a 4-d activation in NCHW is needed",
                 backend().pool_place(out, index, Layout::nchw, flat));
}

}  // namespace
}  // namespace fp16lab::engine::test
