#include "tests/engine/backend/twin_backend.hpp"

#include "tests/engine/backend/twin_optimizers.hpp"

namespace fp16lab::engine::test {
namespace {

float sum_of(const std::vector<float>& values) {
  float sum = values.empty() ? 0.0f : values[0];
  for (std::size_t i = 1; i < values.size(); ++i) sum += values[i];
  return sum;
}

/// The extents of a 4-d activation, and where its elements are.
struct Frame {
  std::int64_t images, channels, height, width;
  Layout layout;

  Frame(const Shape& shape, Layout order)
      : images(shape[0]),
        channels(shape[order == Layout::nchw ? 1 : 3]),
        height(shape[order == Layout::nchw ? 2 : 1]),
        width(shape[order == Layout::nchw ? 3 : 2]),
        layout(order) {}
  std::size_t count() const { return static_cast<std::size_t>(images * channels * height * width); }
  bool inside(std::int64_t h, std::int64_t w) const { return h >= 0 && h < height && w >= 0 && w < width; }
  std::size_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return static_cast<std::size_t>(layout == Layout::nchw ? ((n * channels + c) * height + h) * width + w
                                                           : ((n * height + h) * width + w) * channels + c);
  }
  /// The element, +0 outside.
  template <class T>
  T element(const std::vector<T>& values, std::int64_t n, std::int64_t c, std::int64_t h,
            std::int64_t w) const {
    return inside(h, w) ? values[at(n, c, h, w)] : T{};
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

/// t = t + bias of the channel, one rounding; no bias: t stays.
void add_bias(const Tensor* bias, const Frame& frame, std::vector<float>& t) {
  if (bias == nullptr) return;
  const std::vector<float> added = floats_of(*bias);
  frame.for_each([&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    float& value = t[frame.at(n, c, h, w)];
    value = canonical(value + added[static_cast<std::size_t>(c)]);
  });
}

/// Index of each axis at row-major position `at`.
std::vector<std::int64_t> indices_of(const Shape& shape, std::int64_t at) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices[static_cast<std::size_t>(axis)] = at % shape[axis];
    at /= shape[axis];
  }
  return indices;
}
std::size_t position_of(const Shape& shape, const std::vector<std::int64_t>& indices) {
  std::int64_t at = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    at = at * shape[axis] + indices[static_cast<std::size_t>(axis)];
  return static_cast<std::size_t>(at);
}

/// Where element `at` of a part that begins at `begin` on an axis is in the whole.
std::size_t place_in_whole(const Shape& whole, int axis, std::int64_t begin, const Shape& part,
                           std::int64_t at) {
  std::vector<std::int64_t> indices = indices_of(part, at);
  indices[static_cast<std::size_t>(axis < 0 ? axis + part.rank() : axis)] += begin;
  return position_of(whole, indices);
}

/// Copies element `from` of x, of whatever type, to element `to` of out.
void copy_element(const Tensor& x, std::size_t from, const Tensor& out, std::size_t to) {
  const std::size_t size = size_of(x.dtype());
  std::copy_n(x.data() + from * size, size, out.data() + to * size);
}

class TwinBackend final : public TwinOptimizers {
 public:
  /// The accumulator of a product; in TF32, of operands rounded by the exact conversion.
  template <class T>
  float accumulated(const std::vector<T>& a, const std::vector<T>& b, bool tf32) const {
    if constexpr (std::is_same_v<T, float>)
      if (tf32) return accumulate_tf32(model_, a, b);
    return accumulate(model_, a, b);
  }

  explicit TwinBackend(const TensorCoreModel& model) : TwinOptimizers(model, 1), model_(model) {}

  void do_permute(const Tensor& x, std::span<const int> axes, Tensor& out, const Permutation&) override {
    for (std::int64_t i = 0; i < out.element_count(); ++i) {
      const std::vector<std::int64_t> indices = indices_of(out.shape(), i);
      std::vector<std::int64_t> source(indices.size());
      for (std::size_t axis = 0; axis < axes.size(); ++axis)
        source[static_cast<std::size_t>(axes[axis])] = indices[axis];
      copy_element(x, position_of(x.shape(), source), out, static_cast<std::size_t>(i));
    }
  }

  void do_slice(const Tensor& x, int axis, std::int64_t begin, Tensor& out,
                const checks::SlicePlan&) override {
    for (std::int64_t i = 0; i < out.element_count(); ++i)
      copy_element(x, place_in_whole(x.shape(), axis, begin, out.shape(), i), out,
                   static_cast<std::size_t>(i));
  }

  void do_insert(const Tensor& x, int axis, std::int64_t begin, Tensor& out,
                 const checks::SlicePlan&) override {
    for (std::int64_t i = 0; i < x.element_count(); ++i)
      copy_element(x, static_cast<std::size_t>(i), out,
                   place_in_whole(out.shape(), axis, begin, x.shape(), i));
  }

  void do_gemm(const GemmCall& call, const checks::GemmPlan& plan) override {
    if (call.a_format.any()) return EmulatedBackend::do_gemm(call, plan);
    const std::int64_t m = call.out.shape()[-2], n = call.out.shape()[-1],
                       depth = call.a.shape()[call.transpose_a ? -2 : -1];
    const std::int64_t products = call.out.shape().rank() == 3 ? call.out.shape()[0] : 1;
    std::vector<float> t;
    with_type(call.a.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> a = values_of<T>(call.a), b = values_of<T>(call.b);
      for (std::int64_t index = 0; index < products; ++index)
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            std::vector<T> row, column;
            for (std::int64_t k = 0; k < depth; ++k) {
              const std::int64_t in_a = call.transpose_a ? k * m + i : i * depth + k;
              const std::int64_t in_b = call.transpose_b ? j * depth + k : k * n + j;
              row.push_back(a[static_cast<std::size_t>(index * m * depth + in_a)]);
              column.push_back(b[static_cast<std::size_t>(index * depth * n + in_b)]);
            }
            t.push_back(accumulated(row, column, call.tf32));
          }
    });
    const auto add = [&](const Tensor* addend) {
      if (addend == nullptr) return;
      const std::vector<float> values = floats_of(*addend);
      for (std::size_t i = 0; i < t.size(); ++i) t[i] = canonical(t[i] + values[i % values.size()]);
    };
    add(call.bias);
    add(call.addend);
    store_rounded(t, call.out, call.probe);
  }

  void do_lstm_cell(const LstmCellCall& call, const checks::LstmPlan&) override {
    const std::int64_t batch = call.hidden.shape()[0], units = call.hidden.shape()[1];
    const std::vector<float> products = floats_of(call.products), recurrent = floats_of(call.recurrent);
    const std::vector<float> cells = floats_of(call.cells);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t j = 0; j < units; ++j) {
        const std::int64_t row = call.step * batch + b;
        float activated[4];
        for (std::int64_t gate = 0; gate < 4; ++gate) {
          const std::int64_t column = gate * units + j;
          const float sum = products[static_cast<std::size_t>(row * 4 * units + column)] +
                            recurrent[static_cast<std::size_t>(b * 4 * units + column)];
          activated[gate] = gate == 2 ? tanh_f32(sum) : sigmoid_f32(sum);
          put(call.gates, row * 4 * units + column, activated[gate]);
        }
        const std::size_t before = static_cast<std::size_t>((row - batch) * units + j);
        const float kept = activated[1] * (call.step == 0 ? 0.0f : cells[before]);
        const float added = activated[0] * activated[2];
        const float c = kept + added;
        const float h = activated[3] * tanh_f32(c);
        put(call.cells, row * units + j, c);
        put(call.outputs, row * units + j, h);
        put(call.hidden, b * units + j, h);
      }
  }

  void do_lstm_cell_gradient(const LstmCellGradientCall& call, const checks::LstmPlan&) override {
    const std::int64_t batch = call.step_gradients.shape()[0], units = call.cells.shape()[1];
    const std::vector<float> gates = floats_of(call.gates), cells = floats_of(call.cells);
    const std::vector<float> gradient = floats_of(call.gradient);
    std::vector<float> of_hidden, of_cell, results, previous;
    if (call.hidden_gradient != nullptr) of_hidden = floats_of(*call.hidden_gradient);
    if (call.cell_gradient != nullptr) of_cell = floats_of(*call.cell_gradient);
    results.resize(static_cast<std::size_t>(batch * 4 * units));
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t j = 0; j < units; ++j) {
        const std::int64_t row = call.step * batch + b;
        const auto unit = static_cast<std::size_t>(b * units + j),
                   at = static_cast<std::size_t>(row * units + j);
        const auto gate = [&](std::int64_t which) {
          return gates[static_cast<std::size_t>((row * 4 + which) * units + j)];
        };
        const float i = gate(0), f = gate(1), g = gate(2), o = gate(3), s = tanh_f32(cells[at]);
        const float before = call.step == 0 ? 0.0f : cells[at - static_cast<std::size_t>(batch * units)];
        float dh = gradient[at];
        if (!of_hidden.empty()) dh = dh + of_hidden[unit];
        const float slope = (1.0f - s) * (1.0f + s);
        float dc = (dh * o) * slope;
        if (!of_cell.empty()) dc = dc + of_cell[unit];
        const auto put_result = [&](std::int64_t which, float value) {
          results[static_cast<std::size_t>((b * 4 + which) * units + j)] = value;
        };
        const float rest_i = i * (1.0f - i), rest_f = f * (1.0f - f), rest_o = o * (1.0f - o);
        put_result(0, (dc * g) * rest_i);
        put_result(1, (dc * before) * rest_f);
        put_result(2, (dc * i) * ((1.0f - g) * (1.0f + g)));
        put_result(3, (dh * s) * rest_o);
        previous.push_back(canonical(dc * f));
      }
    results = mapped(results, [](float x) { return canonical(x); });
    store_rounded(results, call.step_gradients, call.probe);
    for (std::int64_t k = 0; k < batch * 4 * units; ++k)
      copy_element(call.step_gradients, static_cast<std::size_t>(k), call.gate_gradients,
                   static_cast<std::size_t>(call.step * batch * 4 * units + k));
    if (call.previous_cell_gradient != nullptr)
      store_rounded(previous, *call.previous_cell_gradient, call.cell_probe);
  }

  void do_conv2d(const Conv2dCall& call, const functions::Conv2dPlan&) override {
    if (call.product == Conv2dProduct::output) return convolve(call);
    if (call.product == Conv2dProduct::input_gradient) return convolve_input_gradient(call);
    convolve_weight_gradient(call);
  }

  void convolve(const Conv2dCall& call) {
    const auto& [product, x, weight, geometry, bias, out, probe] = call;
    const Frame in(x.shape(), geometry.layout), y(out.shape(), geometry.layout);
    const std::int64_t channels = weight.shape()[1], rows = weight.shape()[2], columns = weight.shape()[3];
    std::vector<float> t(y.count());
    with_type(x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> inputs = values_of<T>(x), filters = values_of<T>(weight);
      y.for_each([&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
        std::vector<T> a, b;
        const auto take = [&](std::int64_t c, std::int64_t r, std::int64_t s) {
          const std::int64_t channel = k / (y.channels / geometry.groups) * channels + c;
          a.push_back(
              in.element(inputs, n, channel, input_place(geometry, 0, p, r), input_place(geometry, 1, q, s)));
          b.push_back(filters[tap(weight, k, c, r, s)]);
        };
        if (geometry.layout == Layout::nchw) {
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t s = 0; s < columns; ++s) take(c, r, s);
        } else {
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t s = 0; s < columns; ++s)
              for (std::int64_t c = 0; c < channels; ++c) take(c, r, s);
        }
        t[y.at(n, k, p, q)] = accumulated(a, b, geometry.tf32);
      });
    });
    add_bias(bias, y, t);
    store_rounded(t, out, probe);
  }

  void convolve_input_gradient(const Conv2dCall& call) {
    const auto& [product, gradient, weight, geometry, bias, out, probe] = call;
    const Frame y(gradient.shape(), geometry.layout), x(out.shape(), geometry.layout);
    /// The output along an axis whose tap touches the place; -1 if none does.
    const auto output_of = [&](std::size_t axis, std::int64_t place, std::int64_t tap_of_axis) {
      for (std::int64_t o = 0; o < (axis == 0 ? y.height : y.width); ++o)
        if (input_place(geometry, axis, o, tap_of_axis) == place) return o;
      return std::int64_t{-1};
    };
    std::vector<float> t(x.count());
    with_type(gradient.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> gradients = values_of<T>(gradient), filters = values_of<T>(weight);
      x.for_each([&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
        std::vector<T> a, b;
        const std::int64_t channels = weight.shape()[1], filters_of_group = y.channels / geometry.groups;
        const std::int64_t first = c / channels * filters_of_group;
        for (std::int64_t k = first; k < first + filters_of_group; ++k)
          for (std::int64_t r = 0; r < weight.shape()[2]; ++r)
            for (std::int64_t s = 0; s < weight.shape()[3]; ++s) {
              a.push_back(y.element(gradients, n, k, output_of(0, h, r), output_of(1, w, s)));
              b.push_back(filters[tap(weight, k, c % channels, r, s)]);
            }
        t[x.at(n, c, h, w)] = accumulated(a, b, geometry.tf32);
      });
    });
    add_bias(bias, x, t);
    store_rounded(t, out, probe);
  }

  void convolve_weight_gradient(const Conv2dCall& call) {
    const auto& [product, x, gradient, geometry, bias, out, probe] = call;
    const Frame in(x.shape(), geometry.layout), y(gradient.shape(), geometry.layout);
    const Frame taps(out.shape(), Layout::nchw);  // (K, C, R, S)
    std::vector<float> t(taps.count());
    with_type(x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> inputs = values_of<T>(x), gradients = values_of<T>(gradient);
      taps.for_each([&](std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) {
        std::vector<T> a, b;
        const std::int64_t channel = k / (y.channels / geometry.groups) * taps.channels + c;
        for (std::int64_t n = 0; n < y.images; ++n)
          for (std::int64_t p = 0; p < y.height; ++p)
            for (std::int64_t q = 0; q < y.width; ++q) {
              a.push_back(in.element(inputs, n, channel, input_place(geometry, 0, p, r),
                                     input_place(geometry, 1, q, s)));
              b.push_back(gradients[y.at(n, k, p, q)]);
            }
        t[taps.at(k, c, r, s)] = accumulated(a, b, geometry.tf32);
      });
    });
    store_rounded(t, out, probe);
  }

  void do_max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out, Tensor& index,
                     const functions::Pool2dPlan&) override {
    const Frame windows(out.shape(), geometry.layout), places(x.shape(), geometry.layout);
    const std::vector<float> values = floats_of(x);
    std::vector<float> maxima(windows.count());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      bool first = true;
      float& best = maxima[windows.at(n, c, p, q)];
      for_each_in_window(geometry, places, p, q, [&](std::int64_t h, std::int64_t w) {
        // NaN is above everything, equal values stay.
        const float value = values[places.at(n, c, h, w)];
        if (!first && (std::isnan(best) || !(std::isnan(value) || value > best))) return;
        first = false;
        best = value;
        index.host<std::int32_t>()[windows.at(n, c, p, q)] = static_cast<std::int32_t>(h * places.width + w);
      });
    });
    store_rounded(maxima, out);
  }

  void do_pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                    const checks::PoolIndexPlan&) override {
    const Frame windows(out.shape(), layout), places(x.shape(), layout);
    const std::vector<float> values = floats_of(x);
    const std::vector<std::int32_t> where = values_of<std::int32_t>(index);
    std::vector<float> picked(windows.count());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      const std::size_t at = windows.at(n, c, p, q);
      picked[at] = values[places.at(n, c, where[at] / places.width, where[at] % places.width)];
    });
    store_rounded(picked, out);
  }

  void do_pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                     const checks::PoolIndexPlan&) override {
    const Frame windows(x.shape(), layout), places(out.shape(), layout);
    const std::vector<float> values = floats_of(x);
    const std::vector<std::int32_t> where = values_of<std::int32_t>(index);
    std::vector<std::vector<float>> named(places.count());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      const std::size_t at = windows.at(n, c, p, q);
      named[places.at(n, c, where[at] / places.width, where[at] % places.width)].push_back(values[at]);
    });
    store_rounded(mapped(named, sum_of), out);
  }

  void do_average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                         const functions::Pool2dPlan&) override {
    const Frame windows(out.shape(), geometry.layout), places(x.shape(), geometry.layout);
    const std::vector<float> values = floats_of(x);
    std::vector<std::vector<float>> held(windows.count());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      for_each_in_window(geometry, places, p, q, [&](std::int64_t h, std::int64_t w) {
        held[windows.at(n, c, p, q)].push_back(values[places.at(n, c, h, w)]);
      });
    });
    store_averages(held, geometry, out);
  }

  void do_average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                                    const functions::Pool2dPlan&) override {
    const Frame windows(x.shape(), geometry.layout), places(out.shape(), geometry.layout);
    const std::vector<float> values = floats_of(x);
    std::vector<std::vector<float>> held(places.count());
    windows.for_each([&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      for_each_in_window(geometry, places, p, q, [&](std::int64_t h, std::int64_t w) {
        held[places.at(n, c, h, w)].push_back(values[windows.at(n, c, p, q)]);
      });
    });
    store_averages(held, geometry, out);
  }

 private:
  /// Element `at` of x: `value`, rounded once, a NaN canonical.
  static void put(Tensor& x, std::int64_t at, float value) {
    with_type(x.dtype(), [&](auto tag) {
      x.host<decltype(tag)>()[static_cast<std::size_t>(at)] = stored_as(canonical(value), tag);
    });
  }
  /// The place along an axis that output `o` reads through a tap; the caller skips, or takes as +0, those
  /// outside.
  static std::int64_t input_place(const Conv2dGeometry& geometry, std::size_t axis, std::int64_t o,
                                  std::int64_t tap_of_axis) {
    return o * geometry.stride[axis] - geometry.padding[axis] + tap_of_axis * geometry.dilation[axis];
  }
  static std::size_t tap(const Tensor& weight, std::int64_t k, std::int64_t c, std::int64_t r,
                         std::int64_t s) {
    const Shape& shape = weight.shape();
    return static_cast<std::size_t>(((k * shape[1] + c) * shape[2] + r) * shape[3] + s);
  }
  /// body(h, w) for the places of window (p, q), in (r, s) order.
  template <class Body>
  static void for_each_in_window(const Pool2dGeometry& geometry, const Frame& places, std::int64_t p,
                                 std::int64_t q, const Body& body) {
    for (std::int64_t r = 0; r < geometry.kernel[0]; ++r)
      for (std::int64_t s = 0; s < geometry.kernel[1]; ++s) {
        const std::int64_t h = p * geometry.stride[0] - geometry.padding[0] + r,
                           w = q * geometry.stride[1] - geometry.padding[1] + s;
        if (places.inside(h, w)) body(h, w);
      }
  }
  static void store_averages(const std::vector<std::vector<float>>& held, const Pool2dGeometry& geometry,
                             Tensor& out) {
    const auto count = static_cast<float>(geometry.kernel[0] * geometry.kernel[1]);
    store_rounded(mapped(held, [count](const std::vector<float>& values) { return sum_of(values) / count; }),
                  out);
  }

  TensorCoreModel model_;
};

}  // namespace

std::unique_ptr<Backend> make_twin_backend(const TensorCoreModel& model) {
  return std::make_unique<TwinBackend>(model);
}

}  // namespace fp16lab::engine::test
