// One lane of the operations that are longer than an expression (PTX ISA 9.7.1 to 9.7.9).
//
// NaN. FP32: "Single-precision instructions return an unspecified NaN": here the canonical one, 7fffffff.
// FP64 supports payloads, and leaves open which of two NaNs wins and which one is made: here the host's rule,
// the first operand's, quiet, and fff8000000000000. min and max give the other operand for a NaN, the
// canonical NaN for two, and take -0 for less than +0. No instruction here flushes subnormals.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "numerics/formats/bits.hpp"

namespace fp16lab::engine::ptx {

// ---- integers ----

/// Widens to twice the width.
constexpr std::int32_t widened(std::int16_t x) { return x; }
constexpr std::uint32_t widened(std::uint16_t x) { return x; }
constexpr std::int64_t widened(std::int32_t x) { return x; }
constexpr std::uint64_t widened(std::uint32_t x) { return x; }
__extension__ constexpr __int128 widened(std::int64_t x) { return x; }
__extension__ constexpr unsigned __int128 widened(std::uint64_t x) { return x; }

/// Without a sign, and wide enough that no product of 16-bit numbers overflows an int.
template <class T>
constexpr auto modular(T x) {
  return static_cast<std::common_type_t<std::make_unsigned_t<T>, unsigned>>(x);
}

/// Division by zero gives an unspecified value (9.7.1.8): all ones. The least number by -1 overflows to
/// itself.
inline constexpr auto quotient = []<class T>(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return static_cast<T>(0 - modular(a));
  return static_cast<T>(a / b);
};
inline constexpr auto remainder = []<class T>(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return T(0);
  return static_cast<T>(a % b);
};

/// Amounts beyond the width are clamped to it (9.7.8.7, 9.7.8.8); an arithmetic shift then leaves the sign.
inline constexpr auto shifted_left = []<class T>(T a, std::uint32_t by) {
  return by >= 8 * sizeof(T) ? T(0) : static_cast<T>(a << by);
};
inline constexpr auto shifted_right = []<class T>(T a, std::uint32_t by) {
  constexpr std::uint32_t width = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (by < width ? by : width - 1));
  return by >= width ? T(0) : static_cast<T>(a >> by);
};
inline constexpr auto bits_reversed = []<class T>(T a) {
  T result = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i) result |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
  return result;
};
/// 9.7.1.20: the low `length` bits of a go into b from bit `position` on; both count modulo 256.
inline constexpr auto field_inserted = []<class T>(T a, T b, std::uint32_t position, std::uint32_t length) {
  position &= 0xff;
  length &= 0xff;
  for (std::uint32_t i = 0; i < length && position + i < 8 * sizeof(T); ++i)
    b = (b & ~(T(1) << (position + i))) | (a >> i & 1) << (position + i);
  return b;
};
/// 9.7.1.23, .clamp: `count` ones from bit `position` on.
inline constexpr auto ones = [](std::uint32_t position, std::uint32_t count) {
  if (position >= 32) return 0u;
  const std::uint32_t width = count < 32 - position ? count : 32 - position;
  return static_cast<std::uint32_t>(((std::uint64_t{1} << width) - 1) << position);
};
/// 9.7.9.7: each of four selectors of 4 bits takes a byte of {b, a}; its high bit takes the byte's sign.
inline constexpr auto bytes_permuted = [](std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t selector = selectors >> (4 * i) & 0xf;
    auto byte = static_cast<std::uint32_t>(both >> (8 * (selector & 7)) & 0xff);
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
};

// ---- floating point ----

/// What a lane computed, in its register: a NaN of FP32 is the canonical one. A floating-point number that
/// becomes an integer is whole; it is clamped to what the type holds, and a NaN gives 0 (9.7.9.21).
template <class Result, class T>
constexpr Result as_result(T x) {
  if constexpr (std::is_integral_v<Result> && std::is_floating_point_v<T>) {
    if (x != x) return 0;
    if (x >= std::ldexp(T(1), std::numeric_limits<Result>::digits)) return std::numeric_limits<Result>::max();
    if (x <= static_cast<T>(std::numeric_limits<Result>::min())) return std::numeric_limits<Result>::min();
    return static_cast<Result>(x);
  } else if constexpr (std::is_same_v<Result, float>) {
    return canonicalize(static_cast<float>(x));
  } else {
    return static_cast<Result>(x);
  }
}

template <bool is_min>
inline constexpr auto extreme = []<class T>(T a, T b) {
  if (a != a) return b != b ? canonicalize(b) : b;
  if (b != b) return a;
  const bool first_is_less = a < b || (a == b && std::signbit(a));
  return first_is_less == is_min ? a : b;
};

}  // namespace fp16lab::engine::ptx
