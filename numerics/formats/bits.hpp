// Bit views of the hardware types, usable in constant expressions, on the host and on the device.
#pragma once

#include <cstdint>

#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

FP16LAB_HD constexpr std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
FP16LAB_HD constexpr std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
FP16LAB_HD constexpr float float_from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
FP16LAB_HD constexpr double double_from_bits(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }

FP16LAB_HD constexpr bool is_nan(float x) {
  return (bits_of(x) & Binary32::magnitude_mask) > Binary32::infinity;
}
FP16LAB_HD constexpr bool is_nan(double x) {
  return (bits_of(x) & Binary64::magnitude_mask) > Binary64::infinity;
}

/// What every verb that stores an FP32 or FP64 value does to NaN: the one canonical pattern instead of
/// whatever sign and payload this machine's arithmetic produced (x86 makes ffc00000, NVIDIA 7fffffff).
FP16LAB_HD constexpr float canonicalize(float x) {
  return is_nan(x) ? float_from_bits(Binary32::canonical_nan) : x;
}
FP16LAB_HD constexpr double canonicalize(double x) {
  return is_nan(x) ? double_from_bits(Binary64::canonical_nan) : x;
}

/// Position of the leading one plus one: 0 for 0, 64 for 2^63.
FP16LAB_HD constexpr int bit_width(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return 64 - __clzll(static_cast<long long>(x));
#else
  return x == 0 ? 0 : 64 - __builtin_clzll(x);
#endif
}

}  // namespace fp16lab
