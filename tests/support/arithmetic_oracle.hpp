// The slow twin of scalar arithmetic: IEEE 754-2019 written from the definition, in exact rationals and,
// where many cases count, in the host's FP64 with its rounding error.
//
// Shares nothing with numerics/ but the names of rounding directions, of tininess and of flags. A number is a
// sign and significand * 2^exponent; special operands are a table (`special`); finite ones are computed as a
// real number, whose rounding looks for the multiple of the last place that the direction asks for.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "numerics/formats/rounding.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab::oracle {

/// A format by its sizes; its limits follow from 3.3 and 3.4 (and OFP8, table 1, if the top binade holds
/// numbers).
struct Sizes {
  int exponent_bits;
  int precision;
  bool has_infinity = true;

  int emin() const { return 2 - (1 << (exponent_bits - 1)); }
  std::uint64_t sign_mask() const { return std::uint64_t{1} << (exponent_bits + precision - 1); }
  std::uint64_t nan() const { return sign_mask() - 1; }
  /// The first code that is no number.
  std::uint64_t overflow_code() const {
    return has_infinity ? ((std::uint64_t{1} << exponent_bits) - 1) << (precision - 1) : nan();
  }
};

template <class F>
constexpr Sizes sizes_of() {
  return {F::exponent_bits, F::precision, F::has_infinity};
}

struct Number {
  enum class Kind { finite, infinite, quiet_nan, signaling_nan };
  Kind kind = Kind::finite;
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  std::uint64_t bits = 0;

  bool is_nan() const { return kind == Kind::quiet_nan || kind == Kind::signaling_nan; }
  bool is_infinite() const { return kind == Kind::infinite; }
  bool is_zero() const { return kind == Kind::finite && significand == 0; }

  /// Over 2^unit, which is not above 2^exponent.
  Integer multiple(int unit) const {
    const Integer magnitude = Integer(significand) << (exponent - unit);
    return negative ? Integer(-magnitude) : magnitude;
  }
  Rational rational() const { return multiple(exponent) * power_of_two(exponent); }
  double real() const {
    const double magnitude = std::ldexp(static_cast<double>(significand), exponent);
    return negative ? -magnitude : magnitude;
  }
};

inline Number number(const Sizes& sizes, std::uint64_t bits) {
  Number x;
  x.bits = bits;
  x.negative = (bits & sizes.sign_mask()) != 0;
  const std::uint64_t magnitude = bits % sizes.sign_mask();
  const std::uint64_t hidden = std::uint64_t{1} << (sizes.precision - 1);
  if (magnitude >= sizes.overflow_code()) {
    const std::uint64_t payload = magnitude % hidden;
    x.kind = !sizes.has_infinity     ? Number::Kind::quiet_nan
             : payload == 0          ? Number::Kind::infinite
             : payload >= hidden / 2 ? Number::Kind::quiet_nan
                                     : Number::Kind::signaling_nan;
    return x;
  }
  const std::uint64_t field = magnitude / hidden;
  x.significand = magnitude % hidden + (field > 0 ? hidden : 0);
  x.exponent = sizes.emin() + static_cast<int>(field > 0 ? field - 1 : 0) - (sizes.precision - 1);
  return x;
}

struct Outcome {
  std::uint64_t bits = 0;
  ExceptionFlags flags;
  bool operator==(const Outcome&) const = default;
};

enum class Operation { add, sub, mul, div, remainder, sqrt, fma };

/// Results that are not the rounding of a real number: NaN and infinite operands, and what 7.2 and 7.3 name.
inline std::optional<Outcome> special(Operation operation, const Sizes& sizes, Number a, Number b, Number c) {
  Outcome outcome;
  const auto not_a_number = [&](bool invalid) {
    outcome.bits = sizes.nan();
    outcome.flags.invalid = invalid;
    return outcome;
  };
  const auto infinity = [&](bool negative) {
    outcome.bits = sizes.overflow_code() + (negative ? sizes.sign_mask() : 0);
    return outcome;
  };
  const auto zero = [&](bool negative) {
    outcome.bits = negative ? sizes.sign_mask() : 0;
    return outcome;
  };
  const bool signaling = a.kind == Number::Kind::signaling_nan || b.kind == Number::Kind::signaling_nan ||
                         c.kind == Number::Kind::signaling_nan;
  const bool sign = a.negative != b.negative;
  const bool zero_times_infinity = (a.is_zero() && b.is_infinite()) || (a.is_infinite() && b.is_zero());
  if (operation == Operation::fma && zero_times_infinity) return not_a_number(true);
  if (a.is_nan() || b.is_nan() || c.is_nan()) return not_a_number(signaling);
  switch (operation) {
    case Operation::sub:
      b.negative = !b.negative;
      [[fallthrough]];
    case Operation::add:
      if (a.is_infinite() && b.is_infinite() && a.negative != b.negative) return not_a_number(true);
      if (a.is_infinite()) return infinity(a.negative);
      if (b.is_infinite()) return infinity(b.negative);
      break;
    case Operation::mul:
      if (zero_times_infinity) return not_a_number(true);
      if (a.is_infinite() || b.is_infinite()) return infinity(sign);
      break;
    case Operation::fma:
      if (a.is_infinite() || b.is_infinite()) {
        if (c.is_infinite() && c.negative != sign) return not_a_number(true);
        return infinity(sign);
      }
      if (c.is_infinite()) return infinity(c.negative);
      break;
    case Operation::div:
      if ((a.is_infinite() && b.is_infinite()) || (a.is_zero() && b.is_zero())) return not_a_number(true);
      if (a.is_infinite()) return infinity(sign);
      if (b.is_infinite()) return zero(sign);
      if (b.is_zero()) {
        outcome.flags.divide_by_zero = true;
        return infinity(sign);
      }
      break;
    case Operation::remainder:
      if (a.is_infinite() || b.is_zero()) return not_a_number(true);
      if (b.is_infinite()) {
        outcome.bits = a.bits;
        return outcome;
      }
      break;
    case Operation::sqrt:
      if (a.negative && !a.is_zero()) return not_a_number(true);
      if (a.is_infinite()) return infinity(false);
      break;
  }
  return std::nullopt;
}

/// The sign of a result that is exactly zero (6.3).
inline bool sign_of_zero(Operation operation, const Number& a, const Number& b, const Number& c,
                         Rounding rounding) {
  const auto of_sum = [&](bool first, bool second) {
    return first == second ? first : rounding == Rounding::downward;
  };
  switch (operation) {
    case Operation::add:
      return of_sum(a.negative, b.negative);
    case Operation::sub:
      return of_sum(a.negative, !b.negative);
    case Operation::fma:
      return of_sum(a.negative != b.negative, c.negative);
    case Operation::mul:
    case Operation::div:
      return a.negative != b.negative;
    case Operation::remainder:
    case Operation::sqrt:
      return a.negative;
  }
  return false;
}

/// The integer that a direction makes of quotient = floor + fraction; `half`: how the fraction compares to
/// 1/2.
inline bool goes_up(Rounding rounding, bool negative, bool inexact, int half, bool odd) {
  switch (rounding) {
    case Rounding::nearest_even:
      return half > 0 || (half == 0 && odd);
    case Rounding::nearest_away:
      return half >= 0;
    case Rounding::upward:
      return inexact && !negative;
    case Rounding::downward:
      return inexact && negative;
    case Rounding::toward_zero:
    case Rounding::stochastic:
      break;
  }
  return false;
}

/// A magnitude > 0 whose leading bit weighs 2^leading, rounded to a multiple of 2^quantum.
struct Multiple {
  std::uint64_t count;
  bool inexact;
};

/// Packs and finds the flags; `round(quantum)` gives the Multiple.
template <class Round>
Outcome pack(const Sizes& sizes, int leading, bool negative, Rounding rounding, Tininess tininess,
             const Round& round) {
  const int fraction_bits = sizes.precision - 1;
  const int binade = leading > sizes.emin() ? leading : sizes.emin();
  const Multiple multiple = round(binade - fraction_bits);
  // Codes ascend with their values, 2^fraction_bits of them a binade.
  const int binades = binade - sizes.emin();
  const bool huge = binades > (1 << sizes.exponent_bits);
  const std::uint64_t code =
      huge ? sizes.overflow_code() : (static_cast<std::uint64_t>(binades) << fraction_bits) + multiple.count;
  Outcome outcome;
  const bool overflow = code >= sizes.overflow_code();
  outcome.flags.overflow = overflow;
  outcome.flags.inexact = multiple.inexact || overflow;
  // 7.5: below 2^emin, as the exact number or rounded as if the exponent were unbounded.
  bool tiny = leading < sizes.emin();
  if (tininess == Tininess::after_rounding && leading == sizes.emin() - 1)
    tiny = round(leading - fraction_bits).count < std::uint64_t{1} << sizes.precision;
  outcome.flags.underflow = tiny && outcome.flags.inexact;
  const bool to_largest = overflow && !goes_up(rounding, negative, true, 1, false);  // 7.4
  outcome.bits = overflow ? sizes.overflow_code() - (to_largest ? 1 : 0) : code;
  if (negative) outcome.bits |= sizes.sign_mask();
  return outcome;
}

/// x * 2^exponent, x != 0.
inline Outcome rounded(const Sizes& sizes, const Rational& x, Rounding rounding, Tininess tininess,
                       int exponent = 0) {
  const bool negative = x < 0;
  const Rational magnitude = negative ? Rational(-x) : x;
  int leading = static_cast<int>(msb(numerator(magnitude))) - static_cast<int>(msb(denominator(magnitude)));
  if (power_of_two(leading) > magnitude) --leading;
  return pack(sizes, leading + exponent, negative, rounding, tininess, [&](int quantum) {
    const Multiples multiples(magnitude, power_of_two(quantum - exponent));
    const bool up = multiples.goes_up(negative, rounding);
    return Multiple{static_cast<std::uint64_t>(multiples.below) + (up ? 1 : 0), !multiples.is_one};
  });
}

/// The integer nearest to a / b, ties to even.
inline Integer nearest_quotient(const Integer& a, const Integer& b) {
  const Integer n = round_to_multiple(Rational(abs(a)), Rational(abs(b)), false, Rounding::nearest_even);
  return (a < 0) != (b < 0) ? Integer(-n) : n;
}

/// sqrt(x) if it is a multiple of 2^-k, k = 2p + 70 places below its leading bit; else the middle of the two
/// multiples beside it, which no rounding to p bits can distinguish from it.
inline Rational square_root(const Rational& x, int precision) {
  int places = 2 * precision + 70;
  const int leading = static_cast<int>(msb(numerator(x))) - static_cast<int>(msb(denominator(x)));
  places -= leading / 2;
  const Rational scaled = x * power_of_two(2 * places);
  const Integer whole = numerator(scaled) / denominator(scaled);
  const Integer root = sqrt(whole);
  const bool exact = Rational(root * root) == scaled;
  return (Rational(2 * root + (exact ? 0 : 1)) / 2) * power_of_two(-places);
}

/// The operation by exact rationals, any format. They are x * 2^unit with a unit that keeps operands
/// integers: a denominator of 2^16000 is slow.
inline Outcome exact_outcome(Operation operation, const Sizes& sizes, const Number& a, const Number& b,
                             const Number& c, Rounding rounding, Tininess tininess) {
  if (const std::optional<Outcome> outcome = special(operation, sizes, a, b, c)) return *outcome;
  Rational x;
  int unit = std::min(a.exponent, b.exponent);
  switch (operation) {
    case Operation::add:
      x = a.multiple(unit) + b.multiple(unit);
      break;
    case Operation::sub:
      x = a.multiple(unit) - b.multiple(unit);
      break;
    case Operation::mul:
      unit = a.exponent + b.exponent;
      x = a.multiple(a.exponent) * b.multiple(b.exponent);
      break;
    case Operation::fma: {
      const int of_product = a.exponent + b.exponent;
      unit = std::min(of_product, c.exponent);
      const Integer product = a.multiple(a.exponent) * b.multiple(b.exponent);
      x = Integer(product << (of_product - unit)) + c.multiple(unit);
      break;
    }
    case Operation::div:
      unit = a.exponent - b.exponent;
      x = Rational(a.multiple(a.exponent)) / Rational(b.multiple(b.exponent));
      break;
    case Operation::remainder:
      x = a.multiple(unit) - b.multiple(unit) * nearest_quotient(a.multiple(unit), b.multiple(unit));
      break;
    case Operation::sqrt: {
      const int even = a.exponent % 2 == 0 ? a.exponent : a.exponent - 1;
      unit = even / 2;
      if (!a.is_zero()) x = square_root(a.multiple(even), sizes.precision);
      break;
    }
  }
  if (x != 0) return rounded(sizes, x, rounding, tininess, unit);
  Outcome zero;
  if (sign_of_zero(operation, a, b, c, rounding)) zero.bits = sizes.sign_mask();
  return zero;
}

/// head + tail with |tail| below half an ulp of head; only the tail's sign is known.
struct HeadTail {
  double head;
  int tail;
};

inline int sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/// Knuth's TwoSum: the rounding error of an addition is a double.
inline HeadTail two_sum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  return {sum, sign_of((a - (sum - of_b)) + (b - of_b))};
}

/// 2^exponent for normal exponents.
inline double power(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);  // 3.4
}

inline Outcome rounded(const Sizes& sizes, HeadTail x, Rounding rounding, Tininess tininess) {
  const bool negative = x.head < 0;
  const double magnitude = std::fabs(x.head);
  const int tail = negative ? -x.tail : x.tail;
  int leading = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;  // it is normal
  if (tail < 0 && power(leading) == magnitude) --leading;  // just below the power of two
  return pack(sizes, leading, negative, rounding, tininess, [&](int quantum) {
    const double quotient = magnitude * power(-quantum);  // exact: a power of two
    double floor = std::floor(quotient);
    int half = sign_of((quotient - floor) - 0.5);  // exact: the fraction has the quotient's last place
    bool inexact = quotient != floor || tail != 0;
    if (half == 0) half = tail;
    if (quotient == floor && tail < 0) {
      floor -= 1;
      half = 1;
    }
    const auto count = static_cast<std::uint64_t>(floor);
    return Multiple{count + (goes_up(rounding, negative, inexact, half, count % 2 != 0) ? 1 : 0), inexact};
  });
}

/// The finite part of the operation in FP64 (round to nearest), with the sign of its error. Formats of at
/// most 24 bits of precision and 8 exponent bits: products are exact, and nothing leaves FP64's normal range.
/// Results and the midpoints between them are doubles, so a double beside one of them shows on which side the
/// real number is, and a double on it shows this by its tail.
inline HeadTail head_tail(Operation operation, double a, double b, double c) {
  switch (operation) {
    case Operation::add:
      return two_sum(a, b);
    case Operation::sub:
      return two_sum(a, -b);
    case Operation::mul:
      return {a * b, 0};
    case Operation::fma:
      return two_sum(a * b, c);
    case Operation::div: {
      const double quotient = a / b;
      const int rest = sign_of(std::fma(-quotient, b, a));  // exact
      return {quotient, b < 0 ? -rest : rest};
    }
    case Operation::sqrt: {
      const double root = std::sqrt(a);
      return {root, sign_of(std::fma(-root, root, a))};  // exact
    }
    case Operation::remainder:
      return {std::remainder(a, b), 0};  // exact by definition
  }
  return {};
}

/// The operation by FP64; see head_tail for the formats it serves.
inline Outcome fp64_outcome(Operation operation, const Sizes& sizes, const Number& a, const Number& b,
                            const Number& c, Rounding rounding, Tininess tininess) {
  if (const std::optional<Outcome> outcome = special(operation, sizes, a, b, c)) return *outcome;
  const HeadTail x = head_tail(operation, a.real(), b.real(), c.real());
  if (x.head != 0) return rounded(sizes, x, rounding, tininess);
  Outcome zero;
  if (sign_of_zero(operation, a, b, c, rounding)) zero.bits = sizes.sign_mask();
  return zero;
}

}  // namespace fp16lab::oracle
