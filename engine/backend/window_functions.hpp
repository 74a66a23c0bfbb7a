// Index arithmetic of sliding windows (convolution and pooling), one spatial axis at a time, shared by all
// back ends.
//
// Along an axis of `input` places, window o of `output` touches through tap t the place
//   o * stride - padding + t * dilation,
// which is in the padding where it is outside [0, input).
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

/// How many windows fit: floor((input + 2 padding - dilation (taps - 1) - 1) / stride) + 1; 0 if not even
/// one. All but `input` are at most `largest_size` (engine/tensor/shape.hpp), so that nothing overflows here
/// and in WindowAxis.
FP16LAB_HD constexpr std::int64_t window_count(std::int64_t input, std::int64_t taps, std::int64_t stride,
                                               std::int64_t padding, std::int64_t dilation) {
  const std::int64_t room = input + 2 * padding - dilation * (taps - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

struct WindowAxis {
  std::int64_t input = 1, output = 1, taps = 1;
  std::int64_t stride = 1, padding = 0, dilation = 1;

  /// The place that window `o` touches through tap `t`; -1 if that is padding.
  FP16LAB_HD constexpr std::int64_t input_of(std::int64_t o, std::int64_t t) const {
    const std::int64_t place = o * stride - padding + t * dilation;
    return place >= 0 && place < input ? place : -1;
  }
  /// The window that touches place `i` through tap `t`; -1 where there is none: a stride hole, or beyond the
  /// edge.
  FP16LAB_HD constexpr std::int64_t output_of(std::int64_t i, std::int64_t t) const {
    const std::int64_t distance = i + padding - t * dilation;
    if (distance < 0 || distance % stride != 0 || distance / stride >= output) return -1;
    return distance / stride;
  }
  /// The windows [first, last) that touch no padding through tap `t`.
  FP16LAB_HD constexpr std::int64_t first_inside(std::int64_t t) const {
    const std::int64_t place = t * dilation - padding;  // place in window 0
    return place >= 0 ? 0 : (stride - 1 - place) / stride;
  }
  FP16LAB_HD constexpr std::int64_t last_inside(std::int64_t t) const {
    const std::int64_t place = t * dilation - padding;
    const std::int64_t last = place >= input ? 0 : (input - 1 - place) / stride + 1;
    return last < output ? last : output;
  }
};

/// The extents of a 4-d activation, whatever its layout.
struct ImageExtents {
  std::int64_t images = 0, channels = 0, height = 0, width = 0;

  FP16LAB_HD constexpr std::int64_t plane() const { return height * width; }
};

/// A convolution, for each of its three products.
struct Conv2dPlan {
  std::int64_t images = 0;
  std::int64_t inputs = 0, outputs = 0;  ///< channels of all groups: C and K
  WindowAxis vertical, horizontal;
  std::int64_t groups = 1;  ///< divides both

  FP16LAB_HD constexpr std::int64_t group_inputs() const { return inputs / groups; }
  FP16LAB_HD constexpr std::int64_t group_outputs() const { return outputs / groups; }
};

/// A pooling; its taps are the kernel.
struct Pool2dPlan {
  std::int64_t images = 0, channels = 0;
  WindowAxis vertical, horizontal;

  FP16LAB_HD constexpr std::int64_t places() const { return vertical.input * horizontal.input; }
  FP16LAB_HD constexpr std::int64_t windows() const { return vertical.output * horizontal.output; }
};

}  // namespace fp16lab::engine::functions
