// Correctly rounded scalar arithmetic of any format, with IEEE exception flags: the definition that every
// fast kernel is tested against.
//
// Source: IEEE 754-2019, 5.3 to 5.4, 6.2, 6.3 and 7. Every operation builds the exact result (or as many
// leading bits of it as any rounding needs, and a sticky bit) and calls round_pack once. Integer instructions
// only: the bits are the same on every host and device, whatever its floating-point mode.
//
// Signatures are (operands..., options, flags). All operands and the result have one format. NaN results are
// the canonical NaN; signalling NaN operands raise invalid. In formats without infinities (E4M3) dividing by
// zero raises divide_by_zero and gives what overflow gives: NaN with the sign, or with `saturate` the largest
// finite number.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "numerics/arithmetic/operands.hpp"
#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab {

__extension__ using UInt128 = unsigned __int128;

FP16LAB_HD constexpr int width_of(UInt128 x) {
  const auto high = static_cast<std::uint64_t>(x >> 64);
  return high != 0 ? 64 + bit_width(high) : bit_width(static_cast<std::uint64_t>(x));
}

/// A finite or special value on its way through an operation, with room for the exact product of two
/// significands. If finite, `significand` has its leading one in bit 126, which leaves a bit for the carry of
/// an addition, and value = (-1)^sign * significand * 2^exponent exactly.
struct Wide {
  Exact::Kind kind = Exact::Kind::zero;
  bool sign = false;
  UInt128 significand = 0;
  int exponent = 0;

  FP16LAB_HD static constexpr Wide normalized(bool sign, UInt128 significand, int exponent) {
    const int shift = 127 - width_of(significand);
    return {Exact::Kind::finite, sign, significand << shift, exponent - shift};
  }
};

template <class F>
FP16LAB_HD constexpr Wide wide(SmallFloat<F> x, const ArithmeticOptions& options) {
  const Exact exact = decode(operand(x, options));
  if (exact.kind != Exact::Kind::finite) return {exact.kind, exact.sign};
  return Wide::normalized(exact.sign, exact.significand, exact.exponent);
}

/// The leading 64 bits and a sticky bit: all that any rounding to a format needs.
FP16LAB_HD constexpr Exact leading_bits(bool sign, UInt128 significand, int exponent, bool sticky) {
  const int shift = 128 - width_of(significand);
  significand <<= shift;  // NOLINT(clang-analyzer-core*): never 0, as finite values have a significand
  return {Exact::Kind::finite, sign, static_cast<std::uint64_t>(significand >> 64), exponent - shift + 64,
          sticky || static_cast<std::uint64_t>(significand) != 0};
}

FP16LAB_HD constexpr Exact invalid_operation(ExceptionFlags* flags) {
  raise_invalid(flags);
  return {Exact::Kind::nan};
}

/// The product of two operands, exactly (6.3: the sign is the exclusive or). 0 * Inf is invalid.
template <class F>
FP16LAB_HD constexpr Wide exact_product(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options,
                                        ExceptionFlags* flags) {
  using Kind = Exact::Kind;
  const Exact x = decode(operand(a, options));
  const Exact y = decode(operand(b, options));
  const bool sign = x.sign != y.sign;
  if (x.kind == Kind::finite && y.kind == Kind::finite)
    return Wide::normalized(sign, UInt128{x.significand} * y.significand, x.exponent + y.exponent);
  if (x.kind == Kind::nan || y.kind == Kind::nan) return {Kind::nan};
  if (x.kind == Kind::infinite || y.kind == Kind::infinite) {
    if (x.kind != Kind::zero && y.kind != Kind::zero) return {Kind::infinite, sign};
    raise_invalid(flags);
    return {Kind::nan};
  }
  return {Kind::zero, sign};
}

/// The sum of two values, to the leading bits. Inf - Inf is invalid; an exact zero from operands of unlike
/// sign is +0, under `downward` -0 (6.3).
FP16LAB_HD constexpr Exact exact_sum(Wide a, Wide b, const ArithmeticOptions& options,
                                     ExceptionFlags* flags) {
  using Kind = Exact::Kind;
  if (a.kind == Kind::nan || b.kind == Kind::nan) return {Kind::nan};
  if (a.kind == Kind::infinite && b.kind == Kind::infinite && a.sign != b.sign)
    return invalid_operation(flags);
  if (a.kind == Kind::infinite) return {Kind::infinite, a.sign};
  if (b.kind == Kind::infinite) return {Kind::infinite, b.sign};
  const bool sign_of_cancelled = options.rounding == Rounding::downward;
  if (a.kind == Kind::zero && b.kind == Kind::zero)
    return {Kind::zero, a.sign == b.sign ? a.sign : sign_of_cancelled};
  if (a.kind == Kind::zero) return leading_bits(b.sign, b.significand, b.exponent, false);
  if (b.kind == Kind::zero) return leading_bits(a.sign, a.significand, a.exponent, false);

  // Align the smaller one to the larger. Both have at most 124 significant bits from bit 126 down (precision
  // is at most 62), so a shift by up to three places loses nothing; after a longer one at most one leading
  // bit cancels.
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand)) {
    const Wide larger = b;
    b = a;
    a = larger;
  }
  const int distance = a.exponent - b.exponent;
  const UInt128 aligned = distance < 128 ? b.significand >> distance : 0;
  const bool sticky = distance >= 128 || (aligned << distance) != b.significand;
  if (a.sign == b.sign) return leading_bits(a.sign, a.significand + aligned, a.exponent, sticky);
  // a - (aligned + something below one unit) = (a - aligned - 1) + something below one unit.
  const UInt128 difference = a.significand - aligned - (sticky ? 1 : 0);
  if (difference == 0) return {Kind::zero, sign_of_cancelled};
  return leading_bits(a.sign, difference, a.exponent, sticky);
}

template <class F>
FP16LAB_HD constexpr SmallFloat<F> add(SmallFloat<F> a, SmallFloat<F> b,
                                       const ArithmeticOptions& options = {},
                                       ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  return round_pack<F>(exact_sum(wide(a, options), wide(b, options), options, flags), options, flags);
}

template <class F>
FP16LAB_HD constexpr SmallFloat<F> sub(SmallFloat<F> a, SmallFloat<F> b,
                                       const ArithmeticOptions& options = {},
                                       ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  Wide subtrahend = wide(b, options);
  subtrahend.sign = !subtrahend.sign;
  return round_pack<F>(exact_sum(wide(a, options), subtrahend, options, flags), options, flags);
}

template <class F>
FP16LAB_HD constexpr SmallFloat<F> mul(SmallFloat<F> a, SmallFloat<F> b,
                                       const ArithmeticOptions& options = {},
                                       ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  const Wide product = exact_product(a, b, options, flags);
  if (product.kind != Exact::Kind::finite) return round_pack<F>({product.kind, product.sign}, options, flags);
  return round_pack<F>(leading_bits(product.sign, product.significand, product.exponent, false), options,
                       flags);
}

/// a * b + c with one rounding. fma(0, Inf, c) and fma(Inf, 0, c) raise invalid for every c, a quiet NaN
/// included, which 7.2 c) leaves open: Berkeley TestFloat expects it so; x86's FMA stays silent there.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> fma(SmallFloat<F> a, SmallFloat<F> b, SmallFloat<F> c,
                                       const ArithmeticOptions& options = {},
                                       ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b, c);
  const Wide product = exact_product(a, b, options, flags);
  return round_pack<F>(exact_sum(product, wide(c, options), options, flags), options, flags);
}

template <class F>
FP16LAB_HD constexpr SmallFloat<F> div(SmallFloat<F> a, SmallFloat<F> b,
                                       const ArithmeticOptions& options = {},
                                       ExceptionFlags* flags = nullptr) {
  using Kind = Exact::Kind;
  signal_nans(flags, a, b);
  const Exact x = decode(operand(a, options));
  const Exact y = decode(operand(b, options));
  const bool sign = x.sign != y.sign;
  const auto special = [&](Kind kind) { return round_pack<F>({kind, sign}, options, flags); };
  if (x.kind == Kind::nan || y.kind == Kind::nan) return special(Kind::nan);
  if (x.kind == y.kind && x.kind != Kind::finite)  // 0 / 0 or Inf / Inf
    return round_pack<F>(invalid_operation(flags), options, flags);
  if (x.kind == Kind::infinite) return special(Kind::infinite);
  if (x.kind == Kind::zero || y.kind == Kind::infinite) return special(Kind::zero);
  if (y.kind == Kind::zero) {
    if (flags != nullptr) flags->divide_by_zero = true;
    return special(Kind::infinite);
  }
  // Both significands with exactly p bits; the quotient with exactly p + 2.
  constexpr int p = F::precision;
  using Dividend = std::conditional_t<(2 * p + 2 <= 64), std::uint64_t, UInt128>;
  const int x_shift = p - bit_width(x.significand);
  const int y_shift = p - bit_width(y.significand);
  const std::uint64_t divisor = y.significand << y_shift;
  const std::uint64_t dividend = x.significand << x_shift;
  const int places = dividend < divisor ? p + 2 : p + 1;
  const Dividend shifted = Dividend{dividend} << places;
  // NOLINTNEXTLINE(clang-analyzer-core*): never 0, as finite values have a significand
  const auto quotient = static_cast<std::uint64_t>(shifted / divisor);
  const bool sticky = shifted % divisor != 0;
  const int exponent = (x.exponent - x_shift) - (y.exponent - y_shift) - places;
  return round_pack<F>({Kind::finite, sign, quotient, exponent, sticky}, options, flags);
}

/// floor(sqrt(x)), digit by digit; the remainder shows whether it is exact.
template <class Integer>
FP16LAB_HD constexpr Integer integer_sqrt(Integer x, Integer& remainder) {
  Integer root = 0;
  Integer bit = Integer{1} << (static_cast<int>(sizeof(Integer)) * 8 - 2);
  while (bit > x) bit >>= 2;
  for (; bit != 0; bit >>= 2) {
    if (x >= root + bit) {
      x -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  remainder = x;
  return root;
}

/// sqrt(-0) is -0; other negative operands are invalid.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> sqrt(SmallFloat<F> x, const ArithmeticOptions& options = {},
                                        ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  const Exact exact = decode(operand(x, options));
  if (exact.kind == Exact::Kind::zero || exact.kind == Exact::Kind::nan)
    return round_pack<F>(exact, options, flags);
  if (exact.sign) return round_pack<F>(invalid_operation(flags), options, flags);
  if (exact.kind == Exact::Kind::infinite) return round_pack<F>(exact, options, flags);
  // A radicand of 2p + 3 or 2p + 4 bits with an even exponent has a root of p + 2.
  constexpr int p = F::precision;
  using Radicand = std::conditional_t<(2 * p + 4 <= 64), std::uint64_t, UInt128>;
  int shift = 2 * p + 3 - bit_width(exact.significand);
  if ((exact.exponent - shift) % 2 != 0) ++shift;
  Radicand remainder = 0;
  const Radicand root = integer_sqrt(Radicand{exact.significand} << shift, remainder);
  return round_pack<F>({Exact::Kind::finite, false, static_cast<std::uint64_t>(root),
                        (exact.exponent - shift) / 2, remainder != 0},
                       options, flags);
}

/// IEEE remainder: a - n * b with n the integer nearest a / b, the even one of two (5.3.1). Always exact; a
/// zero has the sign of a. Invalid for infinite a and for b = 0.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> remainder(SmallFloat<F> a, SmallFloat<F> b,
                                             const ArithmeticOptions& options = {},
                                             ExceptionFlags* flags = nullptr) {
  using Kind = Exact::Kind;
  signal_nans(flags, a, b);
  const Exact x = decode(operand(a, options));
  const Exact y = decode(operand(b, options));
  if (x.kind == Kind::nan || y.kind == Kind::nan) return round_pack<F>({Kind::nan}, options, flags);
  if (x.kind == Kind::infinite || y.kind == Kind::zero)
    return round_pack<F>(invalid_operation(flags), options, flags);
  // Two places below b's, |a| < |b| / 2 and nothing is taken off: b, not of the least exponent, has all p
  // bits.
  if (x.kind == Kind::zero || y.kind == Kind::infinite || x.exponent < y.exponent - 1)
    return round_pack<F>(x, options, flags);

  // |a| modulo 2 |b|, in units of the smaller exponent: what is left of the quotient then is its parity.
  const int exponent = x.exponent < y.exponent ? x.exponent : y.exponent;
  const std::uint64_t divisor = y.significand << (y.exponent - exponent);
  std::uint64_t rest = x.significand % (2 * divisor);
  constexpr int step = 63 - F::precision;  // bits of the quotient a turn: rest < 2^(precision + 1)
  for (int left = x.exponent - exponent; left > 0; left -= step)
    rest = (rest << (left < step ? left : step)) % (2 * divisor);

  // rest / |b| in [0, 2): at most 1/2 keeps n even; at least 3/2 makes it the next even one; between, n is
  // odd.
  bool sign = x.sign;
  if (2 * rest > divisor) {
    const std::uint64_t multiple = 2 * rest - divisor >= 2 * divisor ? 2 * divisor : divisor;
    if (rest < multiple) sign = !sign;
    rest = rest < multiple ? multiple - rest : rest - multiple;
  }
  if (rest == 0) return round_pack<F>({Kind::zero, x.sign}, options, flags);
  return round_pack<F>({Kind::finite, sign, rest, exponent}, options, flags);
}

/// roundToIntegralExact: the integral value that the rounding direction chooses, with the operand's sign even
/// if zero; raises inexact if that is another value.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> round_to_integral_exact(SmallFloat<F> x,
                                                           const ArithmeticOptions& options = {},
                                                           ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  Exact exact = decode(operand(x, options));
  if (exact.kind == Exact::Kind::finite && exact.exponent < 0) {
    const Truncated truncated = truncate(exact, -exact.exponent);
    exact.significand = round_truncated(truncated, options, exact.sign);
    exact.exponent = 0;
    if (exact.significand == 0) exact.kind = Exact::Kind::zero;
    if (flags != nullptr && !truncated.exact()) flags->inexact = true;
  }
  return round_pack<F>(exact, options, flags);
}

/// roundToIntegral...: the same value; never raises inexact.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> round_to_integral(SmallFloat<F> x, const ArithmeticOptions& options = {},
                                                     ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  return round_to_integral_exact(x, options);
}

/// scaleB: x * 2^n with one rounding.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> scale_b(SmallFloat<F> x, int n, const ArithmeticOptions& options = {},
                                           ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  constexpr int beyond = (1 << F::exponent_bits) + 2 * F::precision;  // past both ends from anywhere
  Exact exact = decode(operand(x, options));
  exact.exponent += n > beyond ? beyond : n < -beyond ? -beyond : n;
  return round_pack<F>(exact, options, flags);
}

/// logB: the exponent e of a finite x = +-m * 2^e, 1 <= m < 2, also for subnormals. 0 gives the least int,
/// Inf and NaN the largest; all three raise invalid (5.3.3, integer format).
template <class F>
FP16LAB_HD constexpr int log_b(SmallFloat<F> x, const ArithmeticOptions& options = {},
                               ExceptionFlags* flags = nullptr) {
  const Exact exact = decode(operand(x, options));
  if (exact.kind == Exact::Kind::finite) return exact.exponent + bit_width(exact.significand) - 1;
  raise_invalid(flags);
  return exact.kind == Exact::Kind::zero ? std::numeric_limits<int>::min() : std::numeric_limits<int>::max();
}

}  // namespace fp16lab
