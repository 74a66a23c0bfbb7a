// Conversions between formats, scalar (the definition) and array (fast, same bits).
//
// NaNs: every conversion that yields a NaN yields the target format's canonical NaN, like NVIDIA's cvt and
// unlike F16C, which keeps sign and payload. Infinities and signed zeros are preserved.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/round_pack.hpp"
#include "numerics/rounding.hpp"
#include "numerics/small_float.hpp"

namespace fp16lab {

/// Correctly rounded conversion between any two formats (IEEE 754-2019, 5.4.2 formatOf-convertFormat).
template <class To, class From>
FP16LAB_HD constexpr SmallFloat<To> convert(SmallFloat<From> x, Rounding rounding = Rounding::nearest_even) {
  return round_pack<To>(decode(x), rounding);
}

/// The same for a host/device float, through its bits.
template <class To>
FP16LAB_HD constexpr SmallFloat<To> narrow(float x, Rounding rounding = Rounding::nearest_even) {
  return convert<To>(SmallFloat<Binary32>::from_bits(bits_of(x)), rounding);
}

/// Exact: every Float16/BFloat16 is an FP32 number. NaN becomes 0x7fffffff.
template <class From>
FP16LAB_HD constexpr float widen(SmallFloat<From> x) {
  static_assert(From::precision <= Binary32::precision && From::exponent_bits <= Binary32::exponent_bits);
  return float_from_bits(convert<Binary32>(x).bits());
}

/// Array forms. Sizes must agree and threads be at least 1 (std::invalid_argument); source and destination
/// must not overlap. Vectorised for the CPU at hand; `threads` changes speed, never bits. Element for element
/// equal to the scalar form.
void narrow(std::span<const float> from, std::span<Float16> to, Rounding rounding = Rounding::nearest_even,
            int threads = 1);
void widen(std::span<const Float16> from, std::span<float> to, int threads = 1);

}  // namespace fp16lab
