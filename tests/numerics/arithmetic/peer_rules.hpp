// What other software documents, or was seen, to do when it narrows FP32: rules restated here, not its code.
// They share nothing with numerics/.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fp16lab::peers {

inline bool is_nan(std::uint32_t x) { return (x & 0x7fffffffu) > 0x7f800000u; }

/// Round to nearest even in FP64, where every step but the one rounding to an integer is exact.
inline std::uint16_t nearest_even_half(std::uint32_t bits) {
  const double x = std::fabs(static_cast<double>(std::bit_cast<float>(bits)));
  const auto sign = static_cast<std::uint32_t>(bits >> 16 & 0x8000u);
  if (x >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00u);
  const int exponent = x < 0x1p-14 ? -14 : std::ilogb(x);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(x, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | ((static_cast<std::uint32_t>(exponent + 14) << 10) + steps));
}

/// F16C, SoftFloat's 8086-SSE specialisation, GCC's and LLVM's run-time library: NaNs keep the sign and the
/// leading payload bits and become quiet.
inline std::uint16_t payload_kept_quiet(std::uint32_t bits) {
  if (!is_nan(bits)) return nearest_even_half(bits);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
}

/// NumPy's portable code: NaNs keep sign and leading payload bits, signalling ones stay so; a NaN whose
/// leading payload bits are all zero gets payload 1.
inline std::uint16_t numpy(std::uint32_t bits) {
  if (!is_nan(bits)) return nearest_even_half(bits);
  const std::uint32_t payload = bits >> 13 & 0x3ffu;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7c00u | (payload == 0 ? 1u : payload));
}

/// PyTorch's portable code and Eigen's: every NaN becomes 0x7e00 with its sign.
inline std::uint16_t pytorch(std::uint32_t bits) {
  if (!is_nan(bits)) return nearest_even_half(bits);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u);
}

/// SoftFloat's ARM-VFPv2-defaultNaN and RISCV specialisations: every NaN becomes 0x7e00.
inline std::uint16_t default_nan(std::uint32_t bits) {
  return is_nan(bits) ? std::uint16_t{0x7e00} : nearest_even_half(bits);
}

/// CPFloat, seen: the last 13 fraction bits are cut off, of NaNs too, so that a NaN with a payload only there
/// becomes an infinity.
inline std::uint16_t cpfloat(std::uint32_t bits) {
  if (!is_nan(bits)) return nearest_even_half(bits);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7c00u | (bits >> 13 & 0x3ffu));
}

/// QPyTorch's float_quantize(exp=5, man=10), seen, as FP32 value of |x| >= 2^-14: ties away from zero; the
/// binade of Inf and NaN holds numbers up to 131008, at which everything larger, Inf and NaN too, ends.
inline float qpytorch(std::uint32_t bits) {
  const float sign = (bits & 0x80000000u) != 0 ? -1.0f : 1.0f;
  const std::uint32_t magnitude = (bits & 0x7fffffffu);
  const std::uint32_t rounded = (magnitude + 0x1000u) & ~0x1fffu;
  const std::uint32_t largest = 0x47ffe000u;  // (2 - 2^-10) 2^16
  return sign * std::bit_cast<float>(rounded > largest ? largest : rounded);
}

/// PyTorch's portable BF16 code: every NaN becomes 0x7fc0; otherwise half a last place less one, plus the
/// last kept bit, is added and 16 bits are cut off.
inline std::uint16_t pytorch_bfloat16(std::uint32_t bits) {
  if (is_nan(bits)) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace fp16lab::peers
