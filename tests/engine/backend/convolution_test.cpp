// Conformance: the three products of a convolution, every output gathered by plain loops and accumulated in the order
// that backend.hpp states.
#include <fmt/format.h>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

struct ConvolutionCase {
  std::int64_t images, channels, height, width;  ///< N, C, H, W
  std::int64_t filters, rows, columns;           ///< K, R, S
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};

  std::int64_t output(std::size_t axis) const {
    const std::int64_t extent = axis == 0 ? height : width, taps = axis == 0 ? rows : columns;
    return (extent + 2 * padding[axis] - dilation[axis] * (taps - 1) - 1) / stride[axis] + 1;
  }
  std::int64_t multiply_adds() const {
    return images * channels * filters * rows * columns * output(0) * output(1);
  }
  Conv2dGeometry geometry(Layout layout) const { return {stride, padding, dilation, layout}; }
  std::string describe(Layout layout) const {
    return fmt::format(
        "x ({}, {}, {}, {}), weight ({}, {}, {}), stride {} {}, padding {} {}, dilation {} {}, {}", images,
        channels, height, width, filters, rows, columns, stride[0], stride[1], padding[0], padding[1],
        dilation[0], dilation[1], layout == Layout::nchw ? "NCHW" : "NHWC");
  }
};

/// Every stride, padding and dilation on odd sizes; 1 x 1; the kernel as large as the image; more padding than
/// kernel; several blocks of positions that end inside images; a stride that skips places altogether;
/// channels and planes that make whole 16-byte runs; more rows of taps than a word has bits.
const std::vector<ConvolutionCase>& cases() {
  static const std::vector<ConvolutionCase> all{
      {1, 1, 1, 1, 1, 1, 1},
      {2, 3, 5, 7, 4, 3, 3},
      {2, 3, 5, 7, 4, 3, 3, {1, 1}, {1, 1}},
      {1, 2, 9, 8, 3, 3, 2, {2, 3}, {1, 0}},
      {3, 2, 7, 9, 5, 2, 3, {1, 2}, {2, 1}, {2, 3}},
      {2, 2, 8, 8, 3, 2, 2, {3, 3}, {0, 0}},
      {2, 4, 6, 5, 70, 1, 1},
      {2, 4, 6, 5, 3, 1, 1, {2, 2}},
      {3, 2, 6, 5, 4, 6, 5},
      {2, 1, 3, 3, 2, 2, 2, {1, 1}, {3, 2}},
      {1, 2, 4, 4, 2, 2, 2, {5, 4}, {1, 2}},
      {1, 6, 14, 14, 5, 5, 5},
      {4, 1, 28, 31, 3, 3, 3, {1, 1}, {1, 1}},
      {130, 2, 5, 5, 2, 3, 3, {1, 1}, {1, 1}},
      {2, 40, 6, 6, 5, 3, 3, {1, 1}, {1, 1}},
      {3, 1, 53, 59, 2, 2, 2, {1, 1}, {1, 0}},
      {2, 8, 6, 4, 16, 3, 3, {1, 1}, {1, 1}},
      {1, 16, 4, 6, 8, 1, 1},
      {2, 8, 5, 5, 8, 1, 1, {2, 2}, {1, 0}},
      {1, 2, 34, 4, 2, 33, 2, {1, 2}, {1, 0}},
      {0, 2, 4, 4, 3, 3, 3},
      {2, 0, 4, 4, 3, 3, 3},
  };
  return all;
}

/// A 4-d activation in either layout.
template <class T>
struct Images {
  std::int64_t images, channels, height, width;
  Layout layout;
  std::vector<T> values;

  std::int64_t count() const { return images * channels * height * width; }
  Shape shape() const {
    return layout == Layout::nchw ? Shape{images, channels, height, width}
                                  : Shape{images, height, width, channels};
  }
  std::size_t place(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return static_cast<std::size_t>(layout == Layout::nchw ? ((n * channels + c) * height + h) * width + w
                                                           : ((n * height + h) * width + w) * channels + c);
  }
  /// +0 outside.
  T at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    if (h < 0 || h >= height || w < 0 || w >= width) return T{};
    return values[place(n, c, h, w)];
  }
};

/// Random numbers of a kind; `sprinkled` is ordinary with few special values, so that most chains stay finite.
enum class Data { ordinary, wide, special, sprinkled };

template <class T>
std::vector<T> random_values(std::int64_t count, Data data, std::uint64_t seed) {
  const auto draw = [&](Kind kind, std::uint64_t s) { return random_of<T>(count, kind, s); };
  if (data == Data::wide) return draw(Kind::wide, seed);
  if (data == Data::special) return draw(Kind::special, seed);
  std::vector<T> values = draw(Kind::ordinary, seed);
  const std::vector<T> special = draw(Kind::special, seed + 1000);
  if (data == Data::sprinkled)
    for (std::size_t i = seed % 7; i < values.size(); i += 41) values[i] = special[i];
  return values;
}

/// A product's operands and, in the order of the chain, what each output multiplies.
template <class T>
struct Convolution {
  ConvolutionCase c;
  Layout layout;
  Images<T> x, dy;
  std::vector<T> weight;

  Convolution(const ConvolutionCase& parameters, Layout order, Data data)
      : c(parameters),
        layout(order),
        x{c.images, c.channels, c.height, c.width, order, {}},
        dy{c.images, c.filters, c.output(0), c.output(1), order, {}},
        weight(random_values<T>(c.filters * c.channels * c.rows * c.columns, data, 51)) {
    x.values = random_values<T>(x.count(), data, 52);
    dy.values = random_values<T>(dy.count(), data, 53);
  }
  Shape weight_shape() const { return {c.filters, c.channels, c.rows, c.columns}; }
  T filter(std::int64_t k, std::int64_t ch, std::int64_t r, std::int64_t s) const {
    return weight[static_cast<std::size_t>(((k * c.channels + ch) * c.rows + r) * c.columns + s)];
  }

  /// The accumulators of y.
  std::vector<float> forward(const TensorCoreModel& model) const {
    std::vector<float> result(dy.values.size());
    for (std::int64_t n = 0; n < c.images; ++n)
      for (std::int64_t k = 0; k < c.filters; ++k)
        for (std::int64_t p = 0; p < dy.height; ++p)
          for (std::int64_t q = 0; q < dy.width; ++q) {
            std::vector<T> a, b;
            const auto take = [&](std::int64_t ch, std::int64_t r, std::int64_t s) {
              a.push_back(x.at(n, ch, p * c.stride[0] - c.padding[0] + r * c.dilation[0],
                               q * c.stride[1] - c.padding[1] + s * c.dilation[1]));
              b.push_back(filter(k, ch, r, s));
            };
            if (layout == Layout::nchw) {
              for (std::int64_t ch = 0; ch < c.channels; ++ch)
                for (std::int64_t r = 0; r < c.rows; ++r)
                  for (std::int64_t s = 0; s < c.columns; ++s) take(ch, r, s);
            } else {
              for (std::int64_t r = 0; r < c.rows; ++r)
                for (std::int64_t s = 0; s < c.columns; ++s)
                  for (std::int64_t ch = 0; ch < c.channels; ++ch) take(ch, r, s);
            }
            result[dy.place(n, k, p, q)] = accumulate(model, a, b);
          }
    return result;
  }

  /// The output along an axis whose tap `t` touches place `i`; -1 if none does.
  std::int64_t output_of(std::size_t axis, std::int64_t i, std::int64_t t) const {
    for (std::int64_t o = 0; o < c.output(axis); ++o)
      if (o * c.stride[axis] - c.padding[axis] + t * c.dilation[axis] == i) return o;
    return -1;
  }

  /// The accumulators of dX.
  std::vector<float> input_gradient(const TensorCoreModel& model) const {
    std::vector<float> result(x.values.size());
    for (std::int64_t n = 0; n < c.images; ++n)
      for (std::int64_t ch = 0; ch < c.channels; ++ch)
        for (std::int64_t h = 0; h < c.height; ++h)
          for (std::int64_t w = 0; w < c.width; ++w) {
            std::vector<T> a, b;
            for (std::int64_t k = 0; k < c.filters; ++k)
              for (std::int64_t r = 0; r < c.rows; ++r)
                for (std::int64_t s = 0; s < c.columns; ++s) {
                  a.push_back(dy.at(n, k, output_of(0, h, r), output_of(1, w, s)));
                  b.push_back(filter(k, ch, r, s));
                }
            result[x.place(n, ch, h, w)] = accumulate(model, a, b);
          }
    return result;
  }

  /// The accumulators of dW.
  std::vector<float> weight_gradient(const TensorCoreModel& model) const {
    std::vector<float> result;
    for (std::int64_t k = 0; k < c.filters; ++k)
      for (std::int64_t ch = 0; ch < c.channels; ++ch)
        for (std::int64_t r = 0; r < c.rows; ++r)
          for (std::int64_t s = 0; s < c.columns; ++s) {
            std::vector<T> a, b;
            for (std::int64_t n = 0; n < c.images; ++n)
              for (std::int64_t p = 0; p < dy.height; ++p)
                for (std::int64_t q = 0; q < dy.width; ++q) {
                  a.push_back(x.at(n, ch, p * c.stride[0] - c.padding[0] + r * c.dilation[0],
                                   q * c.stride[1] - c.padding[1] + s * c.dilation[1]));
                  b.push_back(dy.at(n, k, p, q));
                }
            result.push_back(accumulate(model, a, b));
          }
    return result;
  }
};

template <class T>
constexpr DType dtype_of = DTypeOf<T>::value;

/// Runs body(output tag) for what operands of type T may give.
template <class T, class Body>
void for_each_output_type(const Body& body) {
  if constexpr (!std::is_same_v<T, float>) body(T{});
  body(0.0f);
}

/// Bits and counts of a product with accumulators `t`.
template <class Out>
void expect_product(const std::vector<Out>& actual, const CastProbe& probe, const std::vector<float>& t,
                    const std::string& what) {
  std::vector<Out> expected;
  expected.reserve(t.size());
  for (const float value : t) expected.push_back(stored_as(value, Out{}));
  expect_same_bits(actual, expected, what);
  EXPECT_EQ(probe.before, naive_histogram(t)) << what;
  EXPECT_EQ(probe.after, naive_histogram(expected)) << what;
}

class ConvolutionConformance : public BackendConformance {
 protected:
  /// Runs body(convolution, description) for all cases, layouts, data and operand types. Where the twin takes long, two
  /// kinds of data are enough.
  template <class Body>
  void for_each_convolution(const Body& body) {
    for (const ConvolutionCase& c : cases())
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const Data data : {Data::sprinkled, Data::wide, Data::special, Data::ordinary}) {
          if (c.multiply_adds() > 50000 && (data == Data::special || data == Data::ordinary)) continue;
          if (HasFatalFailure()) return;
          body(Convolution<Float16>(c, layout, data), c.describe(layout));
          body(Convolution<float>(c, layout, data), c.describe(layout));
          // The paths of 16-bit operands differ in their conversions only: the short cases are enough.
          if (multiplies<BFloat16>() && c.multiply_adds() <= 10000)
            body(Convolution<BFloat16>(c, layout, data), c.describe(layout));
        }
  }
  const TensorCoreModel& model() { return tensor_core_model(backend().tensor_core()); }
};

TEST_P(ConvolutionConformance, ForwardIsOneChainPerOutputThenTheBias) {
  for_each_convolution([&](const auto& conv, const std::string& what) {
    using T = typename std::decay_t<decltype(conv.weight)>::value_type;
    const std::vector<float> accumulators = conv.forward(model());
    const auto check = [&](const auto& bias) {
      std::vector<float> t = accumulators;
      if (!bias.empty())
        for (std::int64_t n = 0; n < conv.dy.images; ++n)
          for (std::int64_t k = 0; k < conv.dy.channels; ++k)
            for (std::int64_t p = 0; p < conv.dy.height; ++p)
              for (std::int64_t q = 0; q < conv.dy.width; ++q) {
                float& value = t[conv.dy.place(n, k, p, q)];
                value = canonical(value + wide(bias[static_cast<std::size_t>(k)]));
              }
      for_each_output_type<T>([&](auto tag) {
        using Out = decltype(tag);
        Tensor out = output(conv.dy.shape(), dtype_of<Out>);
        const Tensor bias_tensor = bias.empty() ? Tensor() : tensor(bias);
        CastProbe probe;
        backend().conv2d(tensor(conv.x.shape(), conv.x.values), tensor(conv.weight_shape(), conv.weight),
                         conv.c.geometry(conv.layout), bias.empty() ? nullptr : &bias_tensor, out, &probe);
        expect_product(values_of<Out>(out), settled(probe), t, what);
      });
    };
    check(std::vector<float>{});
    check(random_values<float>(conv.c.filters, Data::sprinkled, 54));
    check(random_values<T>(conv.c.filters, Data::sprinkled, 55));
  });
}

TEST_P(ConvolutionConformance, InputGradientGathersWithZerosInStrideHoles) {
  for_each_convolution([&](const auto& conv, const std::string& what) {
    using T = typename std::decay_t<decltype(conv.weight)>::value_type;
    const std::vector<float> accumulators = conv.input_gradient(model());
    for_each_output_type<T>([&](auto tag) {
      using Out = decltype(tag);
      Tensor out = output(conv.x.shape(), dtype_of<Out>);
      CastProbe probe;
      backend().conv2d_input_gradient(tensor(conv.dy.shape(), conv.dy.values),
                                      tensor(conv.weight_shape(), conv.weight), conv.c.geometry(conv.layout),
                                      out, &probe);
      expect_product(values_of<Out>(out), settled(probe), accumulators, what);
    });
  });
}

TEST_P(ConvolutionConformance, WeightGradientIsOneChainOverImagesAndPositions) {
  for_each_convolution([&](const auto& conv, const std::string& what) {
    using T = typename std::decay_t<decltype(conv.weight)>::value_type;
    const std::vector<float> accumulators = conv.weight_gradient(model());
    for_each_output_type<T>([&](auto tag) {
      using Out = decltype(tag);
      Tensor out = output(conv.weight_shape(), dtype_of<Out>);
      CastProbe probe;
      backend().conv2d_weight_gradient(tensor(conv.x.shape(), conv.x.values),
                                       tensor(conv.dy.shape(), conv.dy.values), conv.c.geometry(conv.layout),
                                       out, &probe);
      expect_product(values_of<Out>(out), settled(probe), accumulators, what);
    });
  });
}

TEST_P(ConvolutionConformance, LargeProductsAreTheSameChains) {
  // Large enough to be worth sharing among threads: by positions, by channels, by the filters of a single channel.
  const auto check = [&](const auto& conv, bool weight_only) {
    const Tensor x = tensor(conv.x.shape(), conv.x.values), dy = tensor(conv.dy.shape(), conv.dy.values),
                 weight = tensor(conv.weight_shape(), conv.weight);
    const Conv2dGeometry geometry = conv.c.geometry(conv.layout);
    const std::string what = conv.c.describe(conv.layout);
    Tensor dw = output(conv.weight_shape(), DType::f32);
    backend().conv2d_weight_gradient(x, dy, geometry, dw);
    expect_same_bits(values_of<float>(dw), conv.weight_gradient(model()), "weight gradient, " + what);
    if (weight_only) return;
    Tensor y = output(conv.dy.shape(), DType::f32), dx = output(conv.x.shape(), DType::f32);
    backend().conv2d(x, weight, geometry, nullptr, y);
    expect_same_bits(values_of<float>(y), conv.forward(model()), "forward, " + what);
    backend().conv2d_input_gradient(dy, weight, geometry, dx);
    expect_same_bits(values_of<float>(dx), conv.input_gradient(model()), "input gradient, " + what);
  };
  const ConvolutionCase wide{3, 5, 23, 21, 30, 3, 3, {1, 1}, {1, 1}},
      narrow{40, 1, 29, 27, 7, 3, 3, {1, 1}, {1, 1}};
  check(Convolution<Float16>(wide, Layout::nchw, Data::wide), false);
  check(Convolution<float>(wide, Layout::nhwc, Data::ordinary), false);
  check(Convolution<Float16>(narrow, Layout::nhwc, Data::wide), true);
  if (multiplies<BFloat16>()) check(Convolution<BFloat16>(narrow, Layout::nchw, Data::wide), true);
  check(Convolution<float>(narrow, Layout::nchw, Data::ordinary), true);
  // Few positions and many channels: threads share the inside of each product.
  const ConvolutionCase deep{1, 160, 5, 6, 40, 3, 3, {1, 1}, {1, 1}};
  check(Convolution<Float16>(deep, Layout::nchw, Data::wide), false);
  check(Convolution<float>(deep, Layout::nhwc, Data::ordinary), false);
}

TEST_P(ConvolutionConformance, WithoutAProbeTheBitsAreTheSame) {
  const Convolution<Float16> conv({4, 3, 9, 9, 5, 3, 3, {1, 1}, {1, 1}}, Layout::nchw, Data::ordinary);
  Tensor out = output(conv.dy.shape(), DType::f16);
  backend().conv2d(tensor(conv.x.shape(), conv.x.values), tensor(conv.weight_shape(), conv.weight),
                   conv.c.geometry(conv.layout), nullptr, out);
  expect_same_bits(values_of<Float16>(out), mapped(conv.forward(model()), [](float t) { return half_of(t); }),
                   "no probe");
}

TEST_P(ConvolutionConformance, PaddingIsAnOperandSoInfiniteWeightsMakeItNaN) {
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
    // Backward, place w reads window w + 1 - s through tap s: the left tap reads a window beyond the right edge from
    // place 1.
    backend().conv2d_input_gradient(x, weight, {.padding = {0, 1}, .layout = layout}, out);
    expect_same_bits(values_of<float>(out), {inf, nan}, "input gradient");
  }
}

TEST_P(ConvolutionConformance, LongWeightGradientChainsHaveNoSeams) {
  // Every partial sum counts: 1 first, then halves of the last place, which all vanish in a chain from 1 but would
  // add up in a partial sum of their own. Positions: 3 images of 47 * 47.
  const std::int64_t images = 3, side = 47;
  std::vector<float> x(static_cast<std::size_t>(images * side * side), 0x1p-24f);
  x[0] = 1.0f;
  const Shape shape{images, 1, side, side};
  Tensor out = output(Shape{1, 1, 1, 1}, DType::f32);
  backend().conv2d_weight_gradient(tensor(shape, x), tensor(shape, std::vector<float>(x.size(), 1.0f)), {},
                                   out);
  expect_same_bits(values_of<float>(out), {1.0f}, "f32");
}

TEST_P(ConvolutionConformance, ScratchIsPooled) {
  const Convolution<Float16> conv({8, 5, 23, 21, 6, 3, 3, {2, 1}, {1, 1}}, Layout::nhwc, Data::ordinary);
  const Conv2dGeometry geometry = conv.c.geometry(conv.layout);
  const Tensor x = tensor(conv.x.shape(), conv.x.values), dy = tensor(conv.dy.shape(), conv.dy.values),
               weight = tensor(conv.weight_shape(), conv.weight);
  Tensor y = output(conv.dy.shape(), DType::f16), dx = output(conv.x.shape(), DType::f16),
         dw = output(conv.weight_shape(), DType::f16), index = output(conv.x.shape(), DType::i32);
  const auto run = [&] {
    backend().conv2d(x, weight, geometry, nullptr, y);
    backend().conv2d_input_gradient(dy, weight, geometry, dx);
    backend().conv2d_weight_gradient(x, dy, geometry, dw);
    const Pool2dGeometry pool{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .layout = conv.layout};
    backend().max_pool2d(x, pool, dx, index);
    backend().pool_place(x, index, conv.layout, dx);
    backend().average_pool2d(x, pool, dx);
  };
  run();
  const PoolStatistics warm = backend().memory_statistics();
  for (int i = 0; i < 3; ++i) run();
  EXPECT_GT(backend().memory_statistics().allocations, warm.allocations);
  EXPECT_EQ(backend().memory_statistics().system_allocations, warm.system_allocations);
  EXPECT_EQ(backend().memory_statistics().bytes_in_use, warm.bytes_in_use);
}

INSTANTIATE_TEST_SUITE_P(All, ConvolutionConformance, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

}  // namespace
}  // namespace fp16lab::engine::test
