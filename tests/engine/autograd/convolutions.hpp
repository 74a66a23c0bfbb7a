// What the tests of convolution and of its transpose share: the loops of a case against its op, and finite
// differences of first and second order. Both are polynomials of short numbers, so that FP32 makes no
// rounding and every comparison is exact.
//
// A case has x(), weight() and y(), the shapes, a geometry, and for_each_product(case, visit), which visits
// every product x[i] * w[j] that goes into y[o] as visit(i, j, o).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/engine/autograd/planes.hpp"

namespace fp16lab::engine::test {

struct ConvolutionCase {
  std::string name;
  std::int64_t n, c, h, w, k, r, s;
  Conv2dGeometry geometry;

  Shape x() const { return activation(geometry.layout, n, c, h, w); }
  Shape weight() const { return {k, c / geometry.groups, r, s}; }
  Shape y() const {
    return activation(geometry.layout, n, k,
                      extent_after(h, r, geometry.stride[0], geometry.padding[0], geometry.dilation[0]),
                      extent_after(w, s, geometry.stride[1], geometry.padding[1], geometry.dilation[1]));
  }
};

inline void PrintTo(const ConvolutionCase& conv, std::ostream* out) { *out << conv.name; }

/// Visits every product x[i] * w[j] that goes into y[o].
template <class Visit>
void for_each_product(const ConvolutionCase& conv, const Visit& visit) {
  const Conv2dGeometry& geometry = conv.geometry;
  const Plane x(conv.x(), geometry.layout), y(conv.y(), geometry.layout);
  const std::int64_t channels = x.c / geometry.groups, filters = y.c / geometry.groups;
  for (std::int64_t n = 0; n < y.n; ++n)
    for (std::int64_t k = 0; k < y.c; ++k)
      for (std::int64_t p = 0; p < y.h; ++p)
        for (std::int64_t q = 0; q < y.w; ++q)
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < conv.r; ++r)
              for (std::int64_t s = 0; s < conv.s; ++s) {
                const std::int64_t ih =
                    p * geometry.stride[0] - geometry.padding[0] + r * geometry.dilation[0];
                const std::int64_t iw =
                    q * geometry.stride[1] - geometry.padding[1] + s * geometry.dilation[1];
                if (ih < 0 || ih >= x.h || iw < 0 || iw >= x.w) continue;
                visit(x.at(n, k / filters * channels + c, ih, iw),
                      static_cast<std::size_t>(((k * channels + c) * conv.r + r) * conv.s + s),
                      y.at(n, k, p, q));
              }
}

/// The op on x, w and b; without a bias b is undefined.
using Convolve = std::function<Variable(const Variable& x, const Variable& w, const Variable& b)>;

template <class Case>
std::vector<HostTensor> operands_of(const Case& conv) {
  const std::int64_t channels = Plane(conv.y(), conv.geometry.layout).c;
  return {short_numbers(conv.x(), 1), short_numbers(conv.weight(), 2), short_numbers({channels}, 3)};
}

template <class Case>
void expect_naive_loops(const Case& conv, const Convolve& convolve) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const std::vector<HostTensor> operands = operands_of(conv);
  const std::vector<float>&x = operands[0].values, &w = operands[1].values, &b = operands[2].values;
  std::vector<float> expected(count_of(conv.y()), 0.0f);
  for_each_product(conv, [&](std::size_t i, std::size_t j, std::size_t o) { expected[o] += x[i] * w[j]; });
  const std::vector<Variable> inputs = inputs_on(tape, operands);
  const Variable y = convolve(inputs[0], inputs[1], {});
  EXPECT_EQ(y.shape(), conv.y());
  EXPECT_EQ(values_of(*backend, y.tensor()), expected);
  const Plane plane(conv.y(), conv.geometry.layout);
  for (std::int64_t n = 0; n < plane.n; ++n)
    for (std::int64_t k = 0; k < plane.c; ++k)
      for (std::int64_t p = 0; p < plane.h; ++p)
        for (std::int64_t q = 0; q < plane.w; ++q)
          expected[plane.at(n, k, p, q)] += b[static_cast<std::size_t>(k)];
  EXPECT_EQ(values_of(*backend, convolve(inputs[0], inputs[1], inputs[2]).tensor()), expected);
}

template <class Case>
void expect_exact_differences(const Case& conv, const Convolve& convolve) {
  const auto backend = hopper_backend();
  const Function with_bias = [&](Tape&, const std::vector<Variable>& v) {
    return convolve(v[0], v[1], v[2]);
  };
  const Function without = [&](Tape&, const std::vector<Variable>& v) { return convolve(v[0], v[1], {}); };
  const std::vector<HostTensor> operands = operands_of(conv);
  const DifferenceBounds exact{.magnitude = 0};
  expect_gradients(*backend, with_bias, operands, exact);
  expect_gradients(*backend, without, {operands[0], operands[1]}, exact);
  expect_gradients(*backend, gradient_function(with_bias), operands, exact);
}

}  // namespace fp16lab::engine::test
