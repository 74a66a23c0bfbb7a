// Conversions between formats and 32/64-bit integers, signed and unsigned.
//
// Source: IEEE 754-2019, 5.4.1 (convertFromInt), 5.8 (convertToInteger) and 7.2 j).
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "numerics/arithmetic/operands.hpp"
#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab {

/// The integers that IEEE conversions produce here.
template <class Int>
concept ConvertibleInteger = std::same_as<Int, std::int32_t> || std::same_as<Int, std::uint32_t> ||
    std::same_as<Int, std::int64_t> || std::same_as<Int, std::uint64_t>;

/// convertFromInt, correctly rounded. 0 gives +0.
template <class F, ConvertibleInteger Int>
FP16LAB_HD constexpr SmallFloat<F> from_integer(Int n, const ArithmeticOptions& options = {},
                                                ExceptionFlags* flags = nullptr) {
  Exact exact;
  if (n != 0) {
    exact.kind = Exact::Kind::finite;
    exact.sign = n < 0;
    exact.significand = exact.sign ? -static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
  }
  return round_pack<F>(exact, options, flags);
}

/// convertToIntegerExact...: rounds to an integer in the direction of `options`; raises inexact if that is
/// another value. A value that rounds to none of the type's integers raises invalid alone and gives the
/// nearest of them; NaN raises invalid and gives 0. So do ARM and, but for 64-bit types, PTX; x86 gives the
/// least integer instead.
template <ConvertibleInteger Int, class F>
FP16LAB_HD constexpr Int to_integer_exact(SmallFloat<F> x, const ArithmeticOptions& options = {},
                                          ExceptionFlags* flags = nullptr) {
  constexpr Int least = std::numeric_limits<Int>::min();
  constexpr Int largest = std::numeric_limits<Int>::max();
  const Exact exact = decode(operand(x, options));
  const auto out_of_range = [&] {
    raise_invalid(flags);
    return exact.kind == Exact::Kind::nan ? Int{0} : exact.sign ? least : largest;
  };
  if (exact.kind == Exact::Kind::zero) return 0;
  if (exact.kind != Exact::Kind::finite || exact.exponent + bit_width(exact.significand) > 64)
    return out_of_range();

  const Truncated truncated = truncate(exact, -exact.exponent);
  const std::uint64_t magnitude = round_truncated(truncated, options, exact.sign);
  // |least| is largest + 1 in a signed type and 0 in an unsigned one. A carry out of 64 bits leaves 0: only
  // fractions carry, and only formats of 62 bits of precision and less exist, so there is none.
  const std::uint64_t limit = exact.sign ? -static_cast<std::uint64_t>(least) : std::uint64_t{largest};
  if (magnitude > limit) return out_of_range();
  if (flags != nullptr && !truncated.exact()) flags->inexact = true;
  return static_cast<Int>(exact.sign ? -magnitude : magnitude);
}

/// convertToInteger...: the same value; raises invalid as above, never inexact.
template <ConvertibleInteger Int, class F>
FP16LAB_HD constexpr Int to_integer(SmallFloat<F> x, const ArithmeticOptions& options = {},
                                    ExceptionFlags* flags = nullptr) {
  ExceptionFlags raised;
  const Int result = to_integer_exact<Int>(x, options, &raised);
  if (raised.invalid) raise_invalid(flags);
  return result;
}

}  // namespace fp16lab
