// The one place that rounds.
//
// Every operation builds an exact value (class, sign, significand, exponent, sticky) and hands it to
// `round_pack`.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/portability.hpp"
#include "numerics/rounding.hpp"
#include "numerics/small_float.hpp"

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

/// Exception flags of IEEE 754-2019, 7, that rounding can raise. Underflow: inexact *and* tiny, where tiny
/// means that the value rounded to the format's precision, as if there were no least exponent, lies below
/// 2^emin (7.5, "after rounding").
struct RoundingFlags {
  bool inexact = false;
  bool underflow = false;
  bool overflow = false;
};

/// The exact value of a bit pattern. Subnormals keep the format's emin and a significand without hidden bit.
template <class F>
FP16LAB_HD constexpr Exact decode(SmallFloat<F> x) {
  Exact exact;
  exact.sign = x.sign();
  const std::uint64_t field = static_cast<std::uint64_t>(x.magnitude()) >> F::fraction_bits;
  const std::uint64_t fraction = x.magnitude() & F::fraction_mask;
  if (x.magnitude() == 0) return exact;
  if (!x.is_finite()) {
    exact.kind = x.is_nan() ? Exact::Kind::nan : Exact::Kind::infinite;
    return exact;
  }
  exact.kind = Exact::Kind::finite;
  exact.significand = field == 0 ? fraction : fraction | (std::uint64_t{1} << F::fraction_bits);
  exact.exponent = (field == 0 ? 1 : static_cast<int>(field)) - F::bias - F::fraction_bits;
  return exact;
}

/// Does a magnitude with discarded bits (`guard`: the first one, `rest`: any later one) round away from zero?
FP16LAB_HD constexpr bool rounds_away(Rounding rounding, bool sign, bool odd, bool guard, bool rest) {
  switch (rounding) {
    case Rounding::nearest_even:
      return guard && (rest || odd);
    case Rounding::nearest_away:
      return guard;
    case Rounding::toward_zero:
      return false;
    case Rounding::upward:
      return !sign && (guard || rest);
    case Rounding::downward:
      return sign && (guard || rest);
  }
  return false;
}

/// A significand cut at a last place 2^shift times its own unit.
struct Truncated {
  std::uint64_t kept = 0;  ///< in units of the new last place
  bool guard = false;      ///< the first discarded bit
  bool rest = false;       ///< any later one, or the sticky bit
};

FP16LAB_HD constexpr Truncated truncate(const Exact& x, int shift) {
  if (shift <= 0) return {x.significand << -shift, false, x.sticky};
  if (shift > 64) return {0, false, true};
  return {shift == 64 ? 0 : x.significand >> shift, ((x.significand >> (shift - 1)) & 1) != 0,
          x.sticky || (x.significand & ((std::uint64_t{1} << (shift - 1)) - 1)) != 0};
}

FP16LAB_HD constexpr std::uint64_t round_truncated(const Truncated& t, Rounding rounding, bool sign) {
  return t.kept + (rounds_away(rounding, sign, (t.kept & 1) != 0, t.guard, t.rest) ? 1 : 0);
}

/// Rounds to format `F` (IEEE 754-2019, 4.3 and 7.4 for the result of overflow) and packs. NaN gives the
/// canonical NaN. `flags`, if not null, is or-ed into.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> round_pack(const Exact& x, Rounding rounding,
                                              RoundingFlags* flags = nullptr) {
  using Bits = typename F::Bits;
  const Bits sign = x.sign ? F::sign_mask : Bits{0};
  const auto pack = [sign](Bits magnitude) {
    return SmallFloat<F>::from_bits(static_cast<Bits>(sign | magnitude));
  };
  switch (x.kind) {
    case Exact::Kind::zero:
      return pack(0);
    case Exact::Kind::infinite:
      return pack(F::infinity);
    case Exact::Kind::nan:
      return SmallFloat<F>::from_bits(F::canonical_nan);
    case Exact::Kind::finite:
      break;
  }

  // The last place of the result is 2^quantum: p bits below the leading one, but never below the subnormals'
  // last place.
  const int leading = x.exponent + bit_width(x.significand) - 1;
  const int min_quantum = F::emin - F::fraction_bits;
  const int quantum = leading - F::fraction_bits > min_quantum ? leading - F::fraction_bits : min_quantum;
  const int shift = quantum - x.exponent;

  const Truncated truncated = truncate(x, shift);
  const std::uint64_t kept = round_truncated(truncated, rounding, x.sign);

  // A carry out of the significand moves into the exponent field by itself; a subnormal that reaches 2^emin
  // likewise.
  const bool too_large = leading > F::emax;
  const std::uint64_t magnitude =
      too_large ? F::infinity
                : (static_cast<std::uint64_t>(quantum - min_quantum) << F::fraction_bits) + kept;
  const bool overflow = magnitude >= F::infinity;
  if (flags != nullptr) {
    const bool inexact = truncated.guard || truncated.rest || overflow;
    // One binade below 2^emin, rounding to p bits (one more than the subnormals have there) may still reach
    // 2^emin.
    const bool tiny = leading < F::emin &&
                      !(leading == F::emin - 1 && round_truncated(truncate(x, shift - 1), rounding, x.sign) ==
                                                      std::uint64_t{1} << F::precision);
    flags->inexact = flags->inexact || inexact;
    flags->overflow = flags->overflow || overflow;
    flags->underflow = flags->underflow || (inexact && tiny);
  }
  if (overflow) {
    const bool to_infinity = rounding == Rounding::nearest_even || rounding == Rounding::nearest_away ||
                             (rounding == Rounding::upward && !x.sign) ||
                             (rounding == Rounding::downward && x.sign);
    return pack(to_infinity ? F::infinity : F::max_finite);
  }
  return pack(static_cast<Bits>(magnitude));
}

}  // namespace fp16lab
