// Conformance: pooling, with every window walked by plain loops.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

struct PoolingCase {
  std::int64_t images, channels, height, width;
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};

  std::int64_t input(std::size_t axis) const { return axis == 0 ? height : width; }
  std::int64_t output(std::size_t axis) const {
    return (input(axis) + 2 * padding[axis] - kernel[axis]) / stride[axis] + 1;
  }
  /// The place that window `o` touches through tap `t`; the caller skips those outside.
  std::int64_t place(std::size_t axis, std::int64_t o, std::int64_t t) const {
    return o * stride[axis] - padding[axis] + t;
  }
  bool inside(std::int64_t h, std::int64_t w) const { return h >= 0 && h < height && w >= 0 && w < width; }
  Pool2dGeometry geometry(Layout layout) const { return {kernel, stride, padding, layout}; }
};

/// Windows side by side, overlapping and apart; padding; 1 x 1; the whole image; rows longer than any strip; remainders
/// that no window reaches; channels that make whole 16-byte packs.
const std::vector<PoolingCase>& cases() {
  static const std::vector<PoolingCase> all{{1, 1, 1, 1, {1, 1}, {1, 1}},
                                            {2, 3, 4, 6},
                                            {2, 3, 5, 7},
                                            {2, 2, 7, 6, {3, 3}, {2, 2}, {1, 1}},
                                            {1, 3, 5, 9, {3, 2}, {1, 1}, {1, 1}},
                                            {3, 2, 9, 8, {2, 3}, {3, 4}, {1, 0}},
                                            {2, 5, 6, 7, {6, 7}, {1, 1}},
                                            {1, 70, 3, 4, {2, 2}, {1, 2}},
                                            {1, 2, 6, 301},
                                            {1, 1, 5, 700, {3, 3}, {1, 1}, {1, 1}},
                                            {32, 6, 12, 12},
                                            {1, 2, 8, 9, {1, 2}, {3, 3}},
                                            {1, 1, 4, 2, {4, 4}, {1, 1}, {2, 2}},
                                            {2, 16, 5, 6, {3, 2}, {2, 1}, {1, 0}},
                                            {0, 2, 4, 4}};
  return all;
}

/// The extents of an activation in either layout, and where its elements are.
struct Frame {
  std::int64_t images, channels, height, width;
  Layout layout;

  std::int64_t count() const { return images * channels * height * width; }
  Shape shape() const {
    return layout == Layout::nchw ? Shape{images, channels, height, width}
                                  : Shape{images, height, width, channels};
  }
  std::size_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return static_cast<std::size_t>(layout == Layout::nchw ? ((n * channels + c) * height + h) * width + w
                                                           : ((n * height + h) * width + w) * channels + c);
  }
  /// body(n, c, h, w) in logical order.
  template <class Body>
  void for_each(const Body& body) const {
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t h = 0; h < height; ++h)
          for (std::int64_t w = 0; w < width; ++w) body(n, c, h, w);
  }
};

/// Stored: one rounding, canonical NaN.
template <class T>
T stored(float x) {
  return stored_as(canonical(x), T{});
}

class PoolingConformance : public BackendConformance {
 protected:
  /// Runs body(case, frame of x, frame of the windows, element type tag, kind, description).
  template <class Body>
  void for_each_pooling(const Body& body) {
    for (const PoolingCase& c : cases())
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const Kind kind : {Kind::ordinary, Kind::special, Kind::cancelling}) {
          const Frame places{c.images, c.channels, c.height, c.width, layout};
          const Frame windows{c.images, c.channels, c.output(0), c.output(1), layout};
          const std::string what =
              fmt::format("{}, kernel {} {}", places.shape().to_string(), c.kernel[0], c.kernel[1]);
          for_each_float_type([&](auto tag) { body(c, places, windows, tag, kind, what); });
        }
  }
};

/// Is `candidate` a larger maximum than `best`? NaN is above everything, equal values stay.
bool larger(float candidate, float best) {
  if (std::isnan(best)) return false;
  return std::isnan(candidate) || candidate > best;
}

TEST_P(PoolingConformance, MaximumAndItsPlace) {
  for_each_pooling([&](const PoolingCase& c, const Frame& places, const Frame& windows, auto tag, Kind kind,
                       const std::string& what) {
    using T = decltype(tag);
    const std::vector<T> x = random_of<T>(places.count(), kind, 61);
    std::vector<T> expected(static_cast<std::size_t>(windows.count()));
    std::vector<std::int32_t> expected_index(expected.size());
    windows.for_each([&](std::int64_t n, std::int64_t ch, std::int64_t p, std::int64_t q) {
      std::vector<float> values;
      std::vector<std::int64_t> where;
      for (std::int64_t r = 0; r < c.kernel[0]; ++r)
        for (std::int64_t s = 0; s < c.kernel[1]; ++s) {
          const std::int64_t h = c.place(0, p, r), w = c.place(1, q, s);
          if (!c.inside(h, w)) continue;
          values.push_back(wide(x[places.at(n, ch, h, w)]));
          where.push_back(h * c.width + w);
        }
      std::size_t best = 0;
      for (std::size_t i = 1; i < values.size(); ++i)
        if (larger(values[i], values[best])) best = i;
      expected[windows.at(n, ch, p, q)] = stored<T>(values.at(best));
      expected_index[windows.at(n, ch, p, q)] = static_cast<std::int32_t>(where[best]);
    });
    Tensor out = output(windows.shape(), DTypeOf<T>::value), index = output(windows.shape(), DType::i32);
    const Tensor image = tensor(places.shape(), x);
    backend().max_pool2d(image, c.geometry(places.layout), out, index);
    expect_same_bits(values_of<T>(out), expected, "max_pool2d " + what);
    expect_same_bits(values_of<std::int32_t>(index), expected_index, "index of " + what);
    // The places picked from x again are the maxima.
    Tensor picked = output(windows.shape(), DTypeOf<T>::value);
    backend().pool_pick(image, index, places.layout, picked);
    expect_same_bits(values_of<T>(picked), expected, "pool_pick " + what);
  });
}

TEST_P(PoolingConformance, MaximumOfEqualNaNAndInfinityIsTheFirst) {
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

TEST_P(PoolingConformance, PaddingIsNeverTheMaximum) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensor out = output(Shape{1, 1, 2, 2}, DType::f32), index = output(Shape{1, 1, 2, 2}, DType::i32);
  backend().max_pool2d(tensor(Shape{1, 1, 2, 2}, std::vector<float>(4, -inf)), {.padding = {1, 1}}, out,
                       index);
  expect_same_bits(values_of<float>(out), {-inf, -inf, -inf, -inf}, "maximum");
  expect_same_bits(values_of<std::int32_t>(index), {0, 1, 2, 3}, "index");
}

TEST_P(PoolingConformance, PickTakesAnyPlaceOfItsPlane) {
  for_each_pooling([&](const PoolingCase&, const Frame& places, const Frame& windows, auto tag, Kind kind,
                       const std::string& what) {
    using T = decltype(tag);
    const std::vector<T> x = random_of<T>(places.count(), kind, 62);
    const std::int64_t plane = places.height * places.width;
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < windows.count(); ++i)
      index.push_back(static_cast<std::int32_t>(i * 7 % plane));
    std::vector<T> expected(index.size());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      const std::size_t at = windows.at(n, c, p, q);
      expected[at] = stored<T>(wide(x[places.at(n, c, index[at] / places.width, index[at] % places.width)]));
    });
    Tensor out = output(windows.shape(), DTypeOf<T>::value);
    backend().pool_pick(tensor(places.shape(), x), tensor(windows.shape(), index), places.layout, out);
    expect_same_bits(values_of<T>(out), expected, "pool_pick " + what);
  });
}

TEST_P(PoolingConformance, PlaceSumsInAscendingOrderFromTheFirst) {
  for_each_pooling([&](const PoolingCase&, const Frame& places, const Frame& windows, auto tag, Kind kind,
                       const std::string& what) {
    using T = decltype(tag);
    const std::vector<T> x = random_of<T>(windows.count(), kind, 63);
    const std::int64_t plane = places.height * places.width;
    for (const std::int64_t spread : {std::int64_t{3}, plane}) {  // many to a place, and few
      std::vector<std::int32_t> index;
      for (std::int64_t i = 0; i < windows.count(); ++i)
        index.push_back(static_cast<std::int32_t>(i * 5 % std::min(spread, plane)));
      std::vector<std::vector<float>> named(static_cast<std::size_t>(places.count()));
      windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
        const std::size_t at = windows.at(n, c, p, q);
        named[places.at(n, c, index[at] / places.width, index[at] % places.width)].push_back(wide(x[at]));
      });
      std::vector<T> expected;
      for (const std::vector<float>& values : named) {
        float sum = values.empty() ? 0.0f : values[0];
        for (std::size_t i = 1; i < values.size(); ++i) sum += values[i];
        expected.push_back(stored<T>(sum));
      }
      Tensor out = output(places.shape(), DTypeOf<T>::value);
      backend().pool_place(tensor(windows.shape(), x), tensor(windows.shape(), index), places.layout, out);
      expect_same_bits(values_of<T>(out), expected, "pool_place " + what);
    }
  });
}

TEST_P(PoolingConformance, PlaceKeepsALoneNegativeZeroAndZerosTheRest) {
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

TEST_P(PoolingConformance, IndexOutOfItsPlaneIsNamed) {
  const Tensor x = tensor(Shape{1, 1, 2, 3}, std::vector<float>(6, 1.0f));
  Tensor small = output(Shape{1, 1, 1, 2}, DType::f32), large = output(Shape{1, 1, 2, 3}, DType::f32);
  for (const std::int32_t bad : {-1, 6}) {
    const Tensor index = tensor(Shape{1, 1, 1, 2}, std::vector<std::int32_t>{5, bad});
    const auto expect_error = [bad](const std::string& verb, const std::function<void()>& call) {
      try {
        call();
        FAIL() << verb << " accepted an index of " << bad;
      } catch (const std::out_of_range& error) {
        EXPECT_EQ(error.what(), fmt::format("{}: index[1] is {}, which is not in [0, 6)", verb, bad));
      }
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

TEST_P(PoolingConformance, AverageDividesByTheWholeKernel) {
  for_each_pooling([&](const PoolingCase& c, const Frame& places, const Frame& windows, auto tag, Kind kind,
                       const std::string& what) {
    using T = decltype(tag);
    const std::vector<T> x = random_of<T>(places.count(), kind, 64);
    std::vector<T> expected(static_cast<std::size_t>(windows.count()));
    windows.for_each([&](std::int64_t n, std::int64_t ch, std::int64_t p, std::int64_t q) {
      std::vector<float> values;
      for (std::int64_t r = 0; r < c.kernel[0]; ++r)
        for (std::int64_t s = 0; s < c.kernel[1]; ++s)
          if (c.inside(c.place(0, p, r), c.place(1, q, s)))
            values.push_back(wide(x[places.at(n, ch, c.place(0, p, r), c.place(1, q, s))]));
      float sum = values.at(0);
      for (std::size_t i = 1; i < values.size(); ++i) sum += values[i];
      expected[windows.at(n, ch, p, q)] = stored<T>(sum / static_cast<float>(c.kernel[0] * c.kernel[1]));
    });
    Tensor out = output(windows.shape(), DTypeOf<T>::value);
    backend().average_pool2d(tensor(places.shape(), x), c.geometry(places.layout), out);
    expect_same_bits(values_of<T>(out), expected, "average_pool2d " + what);
  });
}

TEST_P(PoolingConformance, TransposedAverageSumsTheWindowsThatHoldAPlace) {
  for_each_pooling([&](const PoolingCase& c, const Frame& places, const Frame& windows, auto tag, Kind kind,
                       const std::string& what) {
    using T = decltype(tag);
    const std::vector<T> x = random_of<T>(windows.count(), kind, 65);
    std::vector<std::vector<float>> held(static_cast<std::size_t>(places.count()));
    windows.for_each([&](std::int64_t n, std::int64_t ch, std::int64_t p, std::int64_t q) {
      for (std::int64_t r = 0; r < c.kernel[0]; ++r)
        for (std::int64_t s = 0; s < c.kernel[1]; ++s)
          if (c.inside(c.place(0, p, r), c.place(1, q, s)))
            held[places.at(n, ch, c.place(0, p, r), c.place(1, q, s))].push_back(
                wide(x[windows.at(n, ch, p, q)]));
    });
    std::vector<T> expected;
    for (const std::vector<float>& values : held) {
      float sum = values.empty() ? 0.0f : values[0];
      for (std::size_t i = 1; i < values.size(); ++i) sum += values[i];
      expected.push_back(stored<T>(sum / static_cast<float>(c.kernel[0] * c.kernel[1])));
    }
    Tensor out = output(places.shape(), DTypeOf<T>::value);
    backend().average_pool2d_transposed(tensor(windows.shape(), x), c.geometry(places.layout), out);
    expect_same_bits(values_of<T>(out), expected, "average_pool2d_transposed " + what);
  });
}

TEST_P(PoolingConformance, AveragesOfNegativeZerosAreNegativeZero) {
  const Pool2dGeometry geometry{.kernel = {1, 2}, .stride = {1, 3}};
  const Tensor zeros = tensor(Shape{1, 1, 1, 6}, std::vector<float>(6, -0.0f));
  Tensor small = output(Shape{1, 1, 1, 2}, DType::f32), large = output(Shape{1, 1, 1, 6}, DType::f32);
  backend().average_pool2d(zeros, geometry, small);
  expect_same_bits(values_of<float>(small), {-0.0f, -0.0f}, "average");
  backend().average_pool2d_transposed(small, geometry, large);
  expect_same_bits(values_of<float>(large), {-0.0f, -0.0f, 0.0f, -0.0f, -0.0f, 0.0f},
                   "places without a window are +0");
}

TEST_P(PoolingConformance, ErrorsNameVerbShapesAndReason) {
  const auto expect_error = [](const std::function<void()>& call, const std::string& what) {
    try {
      call();
      FAIL() << "accepted: " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), what);
    }
  };
  const Tensor x = output({2, 3, 6, 8}, DType::f32);
  Tensor out = output({2, 3, 3, 4}, DType::f32), index = output({2, 3, 3, 4}, DType::i32);
  Tensor wrong = output({2, 3, 3, 3}, DType::f32), half = output({2, 3, 3, 4}, DType::f16);
  EXPECT_NO_THROW(backend().max_pool2d(x, {}, out, index));
  expect_error(
      [&] {
        backend().max_pool2d(x, {.kernel = {7, 1}, .stride = {1, 1}}, out, index);
      },
      "max_pool2d: a kernel of 7 with dilation 1 does not fit into the vertical extent 6 with padding 0: x "
      "is "
      "f32 (2, 3, 6, 8)");
  expect_error(
      [&] {
        backend().max_pool2d(x, {.kernel = {3, 3}, .padding = {1, 2}}, out, index);
      },
      "max_pool2d: the horizontal padding is 2; it must be at most half the kernel's 3");
  expect_error(
      [&] {
        backend().max_pool2d(x, {.kernel = {2, 0}}, out, index);
      },
      "max_pool2d: the horizontal kernel extent is 0; it must be at least 1");
  expect_error([&] { backend().max_pool2d(x, {}, wrong, index); },
               "max_pool2d: out is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 3, 4), as x and geometry say");
  expect_error([&] { backend().max_pool2d(x, {}, half, index); },
               "max_pool2d: x is f32 (2, 3, 6, 8), out is f16 (2, 3, 3, 4): their dtypes differ");
  expect_error([&] { backend().max_pool2d(x, {}, out, wrong); },
               "max_pool2d: index is f32 (2, 3, 3, 3); i32 is needed");
  expect_error(
      [&] { backend().average_pool2d(x, {}, wrong); },
      "average_pool2d: out is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 3, 4), as x and geometry say");
  expect_error([&] { backend().average_pool2d_transposed(wrong, {}, out); },
               "average_pool2d_transposed: x is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 1, 2), as out "
               "and geometry "
               "say");
  expect_error([&] { backend().pool_pick(x, index, Layout::nchw, wrong); },
               "pool_pick: out is f32 (2, 3, 3, 3), index is i32 (2, 3, 3, 4): their shapes differ");
  expect_error(
      [&] { backend().pool_pick(x, index, Layout::nhwc, out); },
      "pool_pick: x is f32 (2, 3, 6, 8), out is f32 (2, 3, 3, 4) in NHWC: their images or channels differ");
  Tensor flat = output({2, 3, 48}, DType::f32);
  expect_error([&] { backend().pool_place(out, index, Layout::nchw, flat); },
               "pool_place: out is f32 (2, 3, 48); a 4-d activation in NCHW is needed");
}

INSTANTIATE_TEST_SUITE_P(All, PoolingConformance, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

}  // namespace
}  // namespace fp16lab::engine::test
