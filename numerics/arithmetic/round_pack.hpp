// The one place that rounds.
//
// Every operation builds an exact value (class, sign, significand, exponent, sticky) and hands it to
// `round_pack`.
#pragma once

#include <cstdint>

#include "numerics/formats/bits.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// A real number, exactly or up to a sticky bit, or a special value.
struct Exact {
  enum class Kind : std::uint8_t { zero, finite, infinite, nan };
  Kind kind = Kind::zero;
  bool sign = false;
  /// finite: value = (-1)^sign * significand * 2^exponent, plus something in (0, 2^exponent) if `sticky`.
  /// significand != 0; it need not be normalised. With `sticky`, significand must have at least precision + 2
  /// bits of the target format.
  std::uint64_t significand = 0;
  int exponent = 0;
  bool sticky = false;
};

/// The exact value of a code of format `f`. Subnormals keep emin and a significand without hidden bit.
template <class F>
FP16LAB_HD constexpr Exact decode_bits(const F& f, std::uint64_t bits) {
  Exact exact;
  exact.sign = (bits & f.sign_mask) != 0;
  const std::uint64_t magnitude = bits & f.magnitude_mask;
  if (magnitude > f.max_finite || (f.encoding == Encoding::fnuz && bits == f.canonical_nan)) {
    exact.kind = f.has_infinity && magnitude == f.infinity ? Exact::Kind::infinite : Exact::Kind::nan;
    return exact;
  }
  if (magnitude == 0 && f.has_zero) return exact;
  const std::uint64_t field = magnitude >> f.fraction_bits;
  const std::uint64_t fraction = magnitude & f.fraction_mask;
  const bool normal = magnitude >= f.min_normal;
  exact.kind = Exact::Kind::finite;
  exact.significand = normal ? fraction | (std::uint64_t{1} << f.fraction_bits) : fraction;
  exact.exponent = (normal ? static_cast<int>(field) : 1) - f.bias - f.fraction_bits;
  return exact;
}

/// The same for a typed code.
template <class F>
FP16LAB_HD constexpr Exact decode(SmallFloat<F> x) {
  return decode_bits(F{}, x.bits());
}

/// A significand cut at a last place 2^shift times its own unit.
struct Truncated {
  std::uint64_t kept = 0;      ///< in units of the new last place
  std::uint64_t fraction = 0;  ///< the discarded part in units of 2^-64 last places, cut
  bool rest = false;           ///< anything below that, or the sticky bit

  FP16LAB_HD constexpr bool exact() const { return fraction == 0 && !rest; }
};

FP16LAB_HD constexpr Truncated truncate(const Exact& x, int shift) {
  // The leading one stays inside 64 bits: a quantum is at most fraction_bits < 64 places below it.
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the analyser does not know bit_width
  if (shift <= 0) return {x.significand << -shift, 0, x.sticky};
  if (shift < 64) return {x.significand >> shift, x.significand << (64 - shift), x.sticky};
  if (shift == 64) return {0, x.significand, x.sticky};
  if (shift < 128) {
    const int below = shift - 64;
    return {0, x.significand >> below, x.sticky || (x.significand << (64 - below)) != 0};
  }
  return {0, 0, true};
}

/// Does the cut magnitude round away from zero?
FP16LAB_HD constexpr bool rounds_away(const Truncated& t, const ArithmeticOptions& options, bool sign) {
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  switch (options.rounding) {
    case Rounding::nearest_even:
      return t.fraction > half || (t.fraction == half && (t.rest || (t.kept & 1) != 0));
    case Rounding::nearest_away:
      return t.fraction >= half;
    case Rounding::toward_zero:
      return false;
    case Rounding::upward:
      return !sign && !t.exact();
    case Rounding::downward:
      return sign && !t.exact();
    case Rounding::stochastic:
      return ((t.fraction >> 32) + options.random_bits) >> 32 != 0;
  }
  return false;
}

FP16LAB_HD constexpr std::uint64_t round_truncated(const Truncated& t, const ArithmeticOptions& options,
                                                   bool sign) {
  return t.kept + (rounds_away(t, options, sign) ? 1 : 0);
}

/// Does overflow in this direction give infinity (IEEE 754-2019, 7.4), or the largest finite number?
FP16LAB_HD constexpr bool overflows_to_infinity(const ArithmeticOptions& options, bool sign) {
  switch (options.rounding) {
    case Rounding::toward_zero:
      return false;
    case Rounding::upward:
      return !sign && !options.saturate;
    case Rounding::downward:
      return sign && !options.saturate;
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::stochastic:
      return !options.saturate;
  }
  return false;
}

/// Rounds to format `f` (IEEE 754-2019, 4.3 and 7.4) and packs. NaN gives the canonical NaN, whatever its
/// sign and payload were. `options.flush_inputs` has no meaning here. Formats without infinities give their
/// NaN (with the sign, where it has one) where others overflow to infinity, and for infinite operands unless
/// `saturate`; formats without NaN give their largest number. A scale is the magnitude's (CUDA's
/// __nv_cvt_float_to_e8m0); without zeros, what is below the smallest number becomes it. What a format cannot
/// say, a NaN or a sign, raises invalid.
template <class F>
FP16LAB_HD constexpr std::uint64_t round_bits(const F& f, const Exact& x, const ArithmeticOptions& options,
                                              ExceptionFlags* flags = nullptr) {
  const bool negative = x.sign && f.has_sign;
  const std::uint64_t sign = negative ? f.sign_mask : 0;
  if (flags != nullptr)
    flags->invalid = flags->invalid || (x.kind == Exact::Kind::nan && !f.has_nan) ||
                     (x.sign && !f.has_sign && x.kind != Exact::Kind::zero && x.kind != Exact::Kind::nan);
  switch (x.kind) {
    case Exact::Kind::zero:
      if (flags != nullptr) flags->inexact = flags->inexact || !f.has_zero;
      return f.encoding == Encoding::fnuz ? 0 : sign;
    case Exact::Kind::infinite:
      return sign | (options.saturate ? f.max_finite : f.infinity);
    case Exact::Kind::nan:
      return f.canonical_nan;
    case Exact::Kind::finite:
      break;
  }

  // The last place of the result is 2^quantum: p bits below the leading one, but never below the subnormals'
  // last place.
  const int leading = x.exponent + bit_width(x.significand) - 1;
  const int min_quantum = f.emin - f.fraction_bits;
  const int quantum = leading - f.fraction_bits > min_quantum ? leading - f.fraction_bits : min_quantum;
  const int shift = quantum - x.exponent;

  const Truncated truncated = truncate(x, shift);
  const std::uint64_t kept = round_truncated(truncated, options, negative);

  // A carry out of the significand moves into the exponent field by itself; a subnormal that reaches 2^emin
  // likewise. Without zeros the smallest number has the code 0, and a `kept` of 0 becomes it.
  const bool too_large = leading > f.emax;
  const std::uint64_t code = (static_cast<std::uint64_t>(quantum - min_quantum) << f.fraction_bits) + kept;
  const std::uint64_t magnitude = too_large                 ? f.max_finite + std::uint64_t{1}
                                  : f.has_zero || code == 0 ? code
                                                            : code - 1;
  const bool overflow = magnitude > f.max_finite;
  const bool flushed = options.flush_results && magnitude != 0 && magnitude < f.min_normal;
  if (flags != nullptr) {
    const bool inexact = !truncated.exact() || overflow || flushed;
    // One binade below 2^emin, rounding to p bits (one more than the subnormals have there) may still reach
    // 2^emin: then the result is tiny before but not after rounding.
    const bool reaches_normal =
        options.tininess == Tininess::after_rounding && leading == f.emin - 1 &&
        round_truncated(truncate(x, shift - 1), options, negative) == std::uint64_t{1} << f.precision;
    const bool tiny = leading < f.emin && !reaches_normal;
    flags->inexact = flags->inexact || inexact;
    flags->overflow = flags->overflow || overflow;
    flags->underflow = flags->underflow || (inexact && tiny);
  }
  if (overflow) return sign | (overflows_to_infinity(options, negative) ? f.infinity : f.max_finite);
  const bool zero = flushed || (magnitude == 0 && f.has_zero);
  return zero && f.encoding == Encoding::fnuz ? 0 : sign | (flushed ? 0 : magnitude);
}

/// The same for a format type.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> round_pack(const Exact& x, const ArithmeticOptions& options,
                                              ExceptionFlags* flags = nullptr) {
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(round_bits(F{}, x, options, flags)));
}

}  // namespace fp16lab
