// Which real numbers FP32 holds, for options that are given in FP64 and computed with in FP32.
#pragma once

#include <cmath>
#include <limits>

namespace fp16lab {

/// Does rounding `value` to FP32 give a finite number, and 0 only of 0? False for NaN and infinities.
inline bool fp32_holds(double value) {
  constexpr double rounds_to_infinity = 0x1.ffffffp127, rounds_to_zero = 0x1p-150;
  const double magnitude = std::abs(value);
  return magnitude < rounds_to_infinity && (value == 0 || magnitude > rounds_to_zero);
}

/// The FP32 numbers on both sides of `value`, which FP32 holds; the same one twice if it is one.
struct Fp32Neighbours {
  float below, above;
};
inline Fp32Neighbours fp32_neighbours(double value) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto nearest = static_cast<float>(value);
  const auto rounded = static_cast<double>(nearest);
  return {rounded > value ? std::nextafter(nearest, -infinity) : nearest,
          rounded < value ? std::nextafter(nearest, infinity) : nearest};
}

}  // namespace fp16lab
