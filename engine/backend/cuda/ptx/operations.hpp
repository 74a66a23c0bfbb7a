// One lane of the operations that are longer than an expression (PTX ISA 9.7.1 to 9.7.9).
//
// NaN. FP32: "Single-precision instructions return an unspecified NaN": here the canonical one, 7fffffff.
// FP64 supports payloads, and leaves open which of two NaNs wins and which one is made: here the host's rule,
// the first operand's, quiet, and fff8000000000000. min and max give the other operand for a NaN, the
// canonical NaN for two, and take -0 for less than +0. No instruction here flushes subnormals.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace fp16lab::engine::ptx {

// ---- integers ----

template <class T>
struct Same {
  using type = T;
};
template <class T>
struct TwiceOf;
template <>
struct TwiceOf<std::int16_t> : Same<std::int32_t> {};
template <>
struct TwiceOf<std::uint16_t> : Same<std::uint32_t> {};
template <>
struct TwiceOf<std::int32_t> : Same<std::int64_t> {};
template <>
struct TwiceOf<std::uint32_t> : Same<std::uint64_t> {};
template <>
struct TwiceOf<std::int64_t> {
  __extension__ using type = __int128;
};
template <>
struct TwiceOf<std::uint64_t> {
  __extension__ using type = unsigned __int128;
};
template <class T>
constexpr typename TwiceOf<T>::type widened(T x) {
  return x;
}

/// Without a sign, and wide enough that no product of 16-bit numbers overflows an int.
template <class T>
using Modular = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
template <class T>
constexpr Modular<T> modular(T x) {
  return static_cast<Modular<T>>(x);
}

/// Division by zero gives an unspecified value (9.7.1.8): all ones. The least number by -1 overflows to
/// itself.
template <class T>
constexpr T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return static_cast<T>(0 - modular(a));
  return static_cast<T>(a / b);
}
template <class T>
constexpr T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return 0;
  return static_cast<T>(a % b);
}

/// Amounts beyond the width are clamped to it (9.7.8.7, 9.7.8.8); an arithmetic shift then leaves the sign.
template <class T>
constexpr T shifted_left(T a, std::uint32_t by) {
  return by >= 8 * sizeof(T) ? T(0) : static_cast<T>(a << by);
}
template <class T>
constexpr T shifted_right(T a, std::uint32_t by) {
  constexpr std::uint32_t width = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (by < width ? by : width - 1));
  return by >= width ? T(0) : static_cast<T>(a >> by);
}
template <class T>
constexpr T bits_reversed(T a) {
  T result = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i)
    result = static_cast<T>(result | ((a >> i & 1) << (8 * sizeof(T) - 1 - i)));
  return result;
}
/// 9.7.1.20: the low `length` bits of a go into b from bit `position` on; both count modulo 256.
template <class T>
constexpr T field_inserted(T a, T b, std::uint32_t position, std::uint32_t length) {
  position &= 0xff;
  length &= 0xff;
  for (std::uint32_t i = 0; i < length && position + i < 8 * sizeof(T); ++i) {
    const T bit = static_cast<T>(T(1) << (position + i));
    b = static_cast<T>((b & ~bit) | ((a >> i & 1) != 0 ? bit : T(0)));
  }
  return b;
}
/// 9.7.1.23, .clamp: `count` ones from bit `position` on.
constexpr std::uint32_t ones(std::uint32_t position, std::uint32_t count) {
  if (position >= 32) return 0;
  const std::uint32_t width = count < 32 - position ? count : 32 - position;
  return static_cast<std::uint32_t>(((std::uint64_t{1} << width) - 1) << position);
}
/// 9.7.9.7: each of four selectors of 4 bits takes a byte of {b, a}; its high bit takes the byte's sign.
constexpr std::uint32_t bytes_permuted(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t selector = selectors >> (4 * i) & 0xf;
    auto byte = static_cast<std::uint32_t>(both >> (8 * (selector & 7)) & 0xff);
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// ---- floating point ----

template <class T>
constexpr T canonical_nan() {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<float>(0x7fffffffu);
  else
    return std::bit_cast<double>(0x7fffffffffffffffu);
}
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
    const auto result = static_cast<float>(x);
    return result == result ? result : canonical_nan<float>();
  } else {
    return static_cast<Result>(x);
  }
}

/// min or max.
template <bool is_min, class T>
T extreme(T a, T b) {
  if (a != a) return b != b ? canonical_nan<T>() : b;
  if (b != b) return a;
  const bool first_is_less = a < b || (a == b && std::signbit(a));
  return first_is_less == is_min ? a : b;
}

/// FP32 rounded to nearest even to a format of 16 bits, by its definition: the significand as an integer
/// loses bits below the format's last place. Overflow gives infinity, a NaN 7fff.
template <int exponent_bits>
std::uint16_t rounded(float x) {
  constexpr int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  constexpr std::uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude == 0x7f800000) return static_cast<std::uint16_t>(sign | infinity);
  const int biased = static_cast<int>(magnitude >> 23);
  const std::uint32_t significand = (magnitude & 0x7fffff) | (biased != 0 ? 0x800000 : 0);
  const int exponent = (biased != 0 ? biased : 1) - 127;
  // The number is significand * 2^(exponent - 23). What the format's unit at this exponent drops of it:
  const int least = 1 - bias, dropped = 23 - fraction_bits + (exponent < least ? least - exponent : 0);
  if (dropped > 25) return static_cast<std::uint16_t>(sign);
  const std::uint32_t unit = 1u << dropped, rest = significand & (unit - 1), half = unit / 2;
  std::uint32_t kept = significand >> dropped;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // A carry goes on into the exponent; a subnormal's is 0.
  const int field = exponent < least ? 0 : exponent + bias;
  const std::uint32_t result =
      field == 0 ? kept : (static_cast<std::uint32_t>(field - 1) << fraction_bits) + kept;
  return static_cast<std::uint16_t>(sign | (result < infinity ? result : infinity));
}

/// A format of 16 bits as FP32: exact.
template <int exponent_bits>
float expanded(std::uint16_t x) {
  constexpr int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int field = x >> fraction_bits & ((1 << exponent_bits) - 1),
            fraction = x & ((1 << fraction_bits) - 1);
  float result = 0;
  if (field == (1 << exponent_bits) - 1)
    result = fraction != 0 ? canonical_nan<float>() : std::numeric_limits<float>::infinity();
  else if (field == 0)
    result = std::ldexp(static_cast<float>(fraction), 1 - bias - fraction_bits);
  else
    result = std::ldexp(static_cast<float>(fraction | 1 << fraction_bits), field - bias - fraction_bits);
  return (x & 0x8000) != 0 && result == result ? -result : result;
}

}  // namespace fp16lab::engine::ptx
