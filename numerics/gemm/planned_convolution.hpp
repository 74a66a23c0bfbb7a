// Convolutions in the order of a library's plan: products whose terms the plan lists one by one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "numerics/gemm/library_plan.hpp"

namespace fp16lab {

enum class Convolved : std::uint8_t { output, input_gradient, weight_gradient, bias_gradient };
constexpr std::array<std::string_view, 4> names_of(Convolved) {
  return {"output", "input_gradient", "weight_gradient", "bias_gradient"};
}

/// A convolution as the library sees it: x (n, c, h, w) and a weight (k, c / groups, r, s) give
/// y (n, k, p, q).
struct ConvolutionCall {
  Convolved result = Convolved::output;
  std::int64_t n = 1, c = 1, h = 1, w = 1, k = 1, r = 1, s = 1;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};  // vertical, horizontal
  std::int64_t groups = 1;
  bool channels_last = false;  ///< in memory x is (n, h, w, c) and y (n, p, q, k)
  DType format = DType::bf16;
  int threads = 1;  ///< the library's, not ours

  std::int64_t p() const { return extent(h, r, 0); }
  std::int64_t q() const { return extent(w, s, 1); }

 private:
  std::int64_t extent(std::int64_t input, std::int64_t taps, std::size_t axis) const {
    const std::int64_t steps = input + 2 * padding[axis] - dilation[axis] * (taps - 1) - 1;
    return steps < 0 ? 0 : steps / stride[axis] + 1;
  }
};

/// The order of an output's sum. A term's name is its place in the sum as it is written: for an output (c, r,
/// s), for an input's gradient (k, r, s), each with the channels of its group, and for gradients of weight
/// and bias (n, p, q). `no_term` is a place that the library leaves empty: a product of zeros.
struct PlannedConvolution {
  PlannedProduct product;
  std::vector<std::int64_t> terms;
  bool from_bias = false;  ///< the one chain begins with the bias; else it is added to the sum
};
inline constexpr std::int64_t no_term = -1;

/// x, weight and y, or its gradient, of 16 bits an element, without gaps: those that the result needs. The
/// weight is row-major in every layout. bias: (k), for an output, or null.
struct ConvolutionOperands {
  const std::uint16_t *x = nullptr, *weight = nullptr, *y = nullptr, *bias = nullptr;
};

/// `result`: the FP32 sums with the bias, without gaps: (n, p, q, k) of an output, (n, h, w, c) of an input's
/// gradient, (k, c / groups, r, s) of a weight's, (k) of a bias's. Bits do not depend on `threads`.
/// std::invalid_argument for extents that fit no convolution, terms that are none of its own, and as
/// planned_gemm.
void planned_convolution(const PlannedConvolution& plan, const ConvolutionCall& call,
                         const ConvolutionOperands& operands, float* result, int threads = 1);

}  // namespace fp16lab
