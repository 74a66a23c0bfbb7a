#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"

#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "tests/engine/backend/cuda/ptx/proof/product_contract.hpp"

namespace fp16lab::engine::ptx::test {

namespace {

DType in_memory(DType multiplied) { return multiplied == DType::tf32 ? DType::f32 : multiplied; }

/// One call of a verb on tags.
class Call {
 public:
  Call(SymbolicDevice& device, DType multiplied, std::string text)
      : device_(device), multiplied_(multiplied), text_(std::move(text)) {
    device_.begin();
  }

  const Tagged& operand(const std::string& name, const Shape& shape) {
    return tags_.make(name, shape, in_memory(multiplied_), multiplied_ == DType::tf32);
  }
  const Tagged& addend(const std::string& name, const Shape& shape, DType dtype) {
    return tags_.make(name, shape, dtype);
  }
  Tensor uploaded(const Tagged& tags) {
    Tensor tensor = device_.backend().empty(tags.shape, tags.dtype);
    device_.backend().upload(tags.bytes(), tensor);
    return tensor;
  }

  /// `verb(out)` makes the outputs, `expect(place, expected)` fills in what the one at a place (an index of
  /// each axis) is.
  Proof judge(const Shape& shape, DType dtype, const std::function<void(Tensor&)>& verb,
              const std::function<void(const std::vector<std::int64_t>&, ExpectedOutput&)>& expect) {
    Proof proof;
    std::vector<std::byte> stored(static_cast<std::size_t>(shape.element_count()) * size_of(dtype));
    try {
      Tensor out = device_.backend().empty(shape, dtype);
      verb(out);
      device_.backend().download(out, stored);
    } catch (const std::exception& error) {
      proof.difference = text_ + ": " + (device_.fault().empty() ? error.what() : device_.fault());
    }
    proof.kernels = device_.products_launched();
    if (!proof.difference.empty()) return proof;

    const OutputJudge judge(device_.terms(), tags_, chain_rule(device_.architecture(), multiplied_), dtype);
    std::vector<std::int64_t> place(static_cast<std::size_t>(shape.rank()), 0);
    ExpectedOutput expected;
    for (std::int64_t i = 0; i < shape.element_count(); ++i) {
      std::uint32_t pattern = 0;
      std::memcpy(&pattern, stored.data() + static_cast<std::size_t>(i) * size_of(dtype), size_of(dtype));
      expected.products.clear();
      expected.addends.clear();
      expect(place, expected);
      const std::string difference = judge.difference(pattern, expected);
      if (!difference.empty()) {
        proof.difference =
            fmt::format("{}: kernel {}: output ({}): {}", text_,
                        proof.kernels.empty() ? "(none was launched)" : short_name(proof.kernels.back()),
                        fmt::join(place, ", "), difference);
        return proof;
      }
      ++proof.outputs;
      proof.products += static_cast<std::int64_t>(expected.products.size());
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        if (++place[static_cast<std::size_t>(axis)] < shape[axis]) break;
        place[static_cast<std::size_t>(axis)] = 0;
      }
    }
    return proof;
  }

 private:
  SymbolicDevice& device_;
  DType multiplied_;
  std::string text_;
  Tags tags_;
};

std::string epilogue_text(std::optional<DType> bias, std::optional<DType> addend = std::nullopt) {
  return (bias ? fmt::format(", bias {}", name_of(*bias)) : "") +
         (addend ? fmt::format(", addend {}", name_of(*addend)) : "");
}

/// Element (place...) of a row-major tensor.
std::uint32_t tag_at(const Tagged& x, std::initializer_list<std::int64_t> place) {
  std::int64_t index = 0;
  int axis = 0;
  for (const std::int64_t i : place) index = index * x.shape[axis++] + i;
  return x.patterns[static_cast<std::size_t>(index)];
}

}  // namespace

std::string GemmCase::text() const {
  return fmt::format("gemm {} -> {} {}{} {} x {} x {} (m x n x k){}{}", name_of(multiplied), name_of(out),
                     transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                     batch == 1 ? "" : fmt::format(", {} of them", batch), epilogue_text(bias, addend));
}

Proof prove(SymbolicDevice& device, const GemmCase& c) {
  Call call(device, c.multiplied, c.text());
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return c.batch == 1 ? Shape{rows, columns} : Shape{c.batch, rows, columns};
  };
  const Tagged& a = call.operand("a", c.transpose_a ? matrix(c.k, c.m) : matrix(c.m, c.k));
  const Tagged& b = call.operand("b", c.transpose_b ? matrix(c.n, c.k) : matrix(c.k, c.n));
  const Tagged* const bias = c.bias ? &call.addend("bias", {c.n}, *c.bias) : nullptr;
  const Tagged* const addend = c.addend ? &call.addend("addend", matrix(c.m, c.n), *c.addend) : nullptr;
  const auto element = [](const Tagged& x, std::int64_t batch, std::int64_t row, std::int64_t column) {
    return x.shape.rank() == 2 ? tag_at(x, {row, column}) : tag_at(x, {batch, row, column});
  };
  const auto verb = [&](Tensor& out) {
    const Tensor on_a = call.uploaded(a), on_b = call.uploaded(b);
    const Tensor on_bias = bias != nullptr ? call.uploaded(*bias) : Tensor();
    const Tensor on_addend = addend != nullptr ? call.uploaded(*addend) : Tensor();
    device.backend().gemm({.a = on_a,
                           .b = on_b,
                           .out = out,
                           .transpose_a = c.transpose_a,
                           .transpose_b = c.transpose_b,
                           .bias = bias != nullptr ? &on_bias : nullptr,
                           .addend = addend != nullptr ? &on_addend : nullptr,
                           .tf32 = c.multiplied == DType::tf32});
  };
  // acc = +0 + sum over ascending k of op(a)(i, k) op(b)(k, j); then the bias of column j; then the addend.
  return call.judge(
      matrix(c.m, c.n), c.out, verb, [&](const std::vector<std::int64_t>& place, ExpectedOutput& expected) {
        const std::int64_t batch = place.size() == 3 ? place[0] : 0, i = place[place.size() - 2],
                           j = place.back();
        for (std::int64_t k = 0; k < c.k; ++k)
          expected.products.push_back({c.transpose_a ? element(a, batch, k, i) : element(a, batch, i, k),
                                       c.transpose_b ? element(b, batch, j, k) : element(b, batch, k, j)});
        if (bias != nullptr) expected.addends.push_back({tag_at(*bias, {j}), bias->dtype});
        if (addend != nullptr) expected.addends.push_back({element(*addend, batch, i, j), addend->dtype});
      });
}

// ---- convolutions ----

std::int64_t ConvolutionCase::windows(int axis) const {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t room =
      (axis == 0 ? height : width) + 2 * geometry.padding[i] - geometry.dilation[i] * (taps[i] - 1) - 1;
  return room < 0 ? 0 : room / geometry.stride[i] + 1;
}

std::int64_t ConvolutionCase::depth() const {
  if (verb == ConvolutionVerb::weight_gradient) return images * windows(0) * windows(1);
  return (verb == ConvolutionVerb::forward ? inputs : outputs) / geometry.groups * taps[0] * taps[1];
}

std::string ConvolutionCase::text() const {
  constexpr const char* names[] = {"conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"};
  const auto pair = [](const std::array<std::int64_t, 2>& x) { return fmt::format("({}, {})", x[0], x[1]); };
  return fmt::format(
      "{} {} -> {} {} x {} x {} x {} x {} (images, channels, height, width), {} filters {}, stride {}, "
      "padding {}, dilation {}, {} groups{}",
      names[static_cast<std::size_t>(verb)], name_of(multiplied), name_of(out),
      geometry.layout == Layout::nchw ? "NCHW" : "NHWC", images, inputs, height, width, outputs, pair(taps),
      pair(geometry.stride), pair(geometry.padding), pair(geometry.dilation), geometry.groups,
      epilogue_text(bias));
}

namespace {

/// The three tensors of a convolution, and which elements meet.
struct Images {
  const ConvolutionCase& c;

  bool nchw() const { return c.geometry.layout == Layout::nchw; }
  Shape activation(std::int64_t channels, std::int64_t height, std::int64_t width) const {
    return nchw() ? Shape{c.images, channels, height, width} : Shape{c.images, height, width, channels};
  }
  Shape x() const { return activation(c.inputs, c.height, c.width); }
  Shape y() const { return activation(c.outputs, c.windows(0), c.windows(1)); }
  Shape weight() const { return {c.outputs, group_inputs(), c.taps[0], c.taps[1]}; }
  std::int64_t group_inputs() const { return c.inputs / c.geometry.groups; }
  std::int64_t group_outputs() const { return c.outputs / c.geometry.groups; }

  std::uint32_t at(const Tagged& t, std::int64_t n, std::int64_t channel, std::int64_t row,
                   std::int64_t column) const {
    return nchw() ? tag_at(t, {n, channel, row, column}) : tag_at(t, {n, row, column, channel});
  }
  /// The element of x that window (p, q) reads through tap (r, s); 0 in the padding.
  std::uint32_t read(const Tagged& t, std::int64_t n, std::int64_t channel, std::int64_t p, std::int64_t q,
                     std::int64_t r, std::int64_t s) const {
    const Conv2dGeometry& g = c.geometry;
    const std::int64_t row = p * g.stride[0] - g.padding[0] + r * g.dilation[0],
                       column = q * g.stride[1] - g.padding[1] + s * g.dilation[1];
    return row < 0 || row >= c.height || column < 0 || column >= c.width ? 0 : at(t, n, channel, row, column);
  }
  /// The element of y whose window reads place (h, w) through tap (r, s); 0 where there is none.
  std::uint32_t reader(const Tagged& t, std::int64_t n, std::int64_t channel, std::int64_t h, std::int64_t w,
                       std::int64_t r, std::int64_t s) const {
    const Conv2dGeometry& g = c.geometry;
    const std::int64_t row = h + g.padding[0] - r * g.dilation[0],
                       column = w + g.padding[1] - s * g.dilation[1];
    if (row < 0 || column < 0 || row % g.stride[0] != 0 || column % g.stride[1] != 0) return 0;
    const std::int64_t p = row / g.stride[0], q = column / g.stride[1];
    return p >= c.windows(0) || q >= c.windows(1) ? 0 : at(t, n, channel, p, q);
  }

  /// y: (c, r, s) in NCHW, (r, s, c) in NHWC.
  void forward(const Tagged& of_x, const Tagged& of_weight, std::int64_t n, std::int64_t out, std::int64_t p,
               std::int64_t q, ExpectedOutput& expected) const {
    const std::int64_t first = out / group_outputs() * group_inputs();
    const auto add = [&](std::int64_t channel, std::int64_t r, std::int64_t s) {
      expected.products.push_back(
          {read(of_x, n, first + channel, p, q, r, s), tag_at(of_weight, {out, channel, r, s})});
    };
    if (nchw()) {
      for (std::int64_t channel = 0; channel < group_inputs(); ++channel)
        for (std::int64_t r = 0; r < c.taps[0]; ++r)
          for (std::int64_t s = 0; s < c.taps[1]; ++s) add(channel, r, s);
    } else {
      for (std::int64_t r = 0; r < c.taps[0]; ++r)
        for (std::int64_t s = 0; s < c.taps[1]; ++s)
          for (std::int64_t channel = 0; channel < group_inputs(); ++channel) add(channel, r, s);
    }
  }
  /// dX: (k_out, r, s) in both layouts.
  void input_gradient(const Tagged& of_y, const Tagged& of_weight, std::int64_t n, std::int64_t channel,
                      std::int64_t h, std::int64_t w, ExpectedOutput& expected) const {
    const std::int64_t group = channel / group_inputs(), within = channel % group_inputs();
    for (std::int64_t out = group * group_outputs(); out < (group + 1) * group_outputs(); ++out)
      for (std::int64_t r = 0; r < c.taps[0]; ++r)
        for (std::int64_t s = 0; s < c.taps[1]; ++s)
          expected.products.push_back(
              {reader(of_y, n, out, h, w, r, s), tag_at(of_weight, {out, within, r, s})});
  }
  /// dW: (n, p, q).
  void weight_gradient(const Tagged& of_x, const Tagged& of_y, std::int64_t out, std::int64_t channel,
                       std::int64_t r, std::int64_t s, ExpectedOutput& expected) const {
    const std::int64_t first = out / group_outputs() * group_inputs();
    for (std::int64_t n = 0; n < c.images; ++n)
      for (std::int64_t p = 0; p < c.windows(0); ++p)
        for (std::int64_t q = 0; q < c.windows(1); ++q)
          expected.products.push_back({read(of_x, n, first + channel, p, q, r, s), at(of_y, n, out, p, q)});
  }
};

}  // namespace

Proof prove(SymbolicDevice& device, const ConvolutionCase& c) {
  Call call(device, c.multiplied, c.text());
  const Images images{c};
  const bool forward = c.verb == ConvolutionVerb::forward,
             weights = c.verb == ConvolutionVerb::weight_gradient;
  Conv2dGeometry geometry = c.geometry;
  geometry.tf32 = c.multiplied == DType::tf32;
  const Tagged& first = c.verb == ConvolutionVerb::input_gradient ? call.operand("dy", images.y())
                                                                  : call.operand("x", images.x());
  const Tagged& second = weights ? call.operand("dy", images.y()) : call.operand("w", images.weight());
  const Tagged* const bias =
      c.bias ? &call.addend("bias", {forward ? c.outputs : c.inputs}, *c.bias) : nullptr;
  const auto verb = [&](Tensor& out) {
    const Tensor on_first = call.uploaded(first), on_second = call.uploaded(second);
    const Tensor on_bias = bias != nullptr ? call.uploaded(*bias) : Tensor();
    const Tensor* const given = bias != nullptr ? &on_bias : nullptr;
    if (forward)
      device.backend().conv2d(on_first, on_second, geometry, given, out);
    else if (weights)
      device.backend().conv2d_weight_gradient(on_first, on_second, geometry, out);
    else
      device.backend().conv2d_input_gradient(on_first, on_second, geometry, given, out);
  };
  return call.judge(forward   ? images.y()
                    : weights ? images.weight()
                              : images.x(),
                    c.out, verb, [&](const std::vector<std::int64_t>& at, ExpectedOutput& expected) {
                      if (weights)
                        return images.weight_gradient(first, second, at[0], at[1], at[2], at[3], expected);
                      const std::int64_t channel = images.nchw() ? at[1] : at[3],
                                         row = images.nchw() ? at[2] : at[1],
                                         column = images.nchw() ? at[3] : at[2];
                      if (forward)
                        images.forward(first, second, at[0], channel, row, column, expected);
                      else
                        images.input_gradient(first, second, at[0], channel, row, column, expected);
                      if (bias != nullptr)
                        expected.addends.push_back({tag_at(*bias, {channel}), bias->dtype});
                    });
}

}  // namespace fp16lab::engine::ptx::test
