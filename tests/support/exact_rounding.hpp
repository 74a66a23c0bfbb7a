// The slow twin of round_pack: rounding written from the definition in exact rational arithmetic.
//
// A format is described by two numbers and its encoding, its values are listed one by one from IEEE 754-2019,
// 3.4, or OCP's specifications, and a real number is rounded by looking at its two neighbours in that list. Nothing here comes from numerics/ but the
// names of formats and rounding directions.
#pragma once

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "numerics/formats/format.hpp"
#include "numerics/formats/rounding.hpp"

namespace fp16lab::oracle {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

inline Rational power_of_two(int exponent) {
  return exponent >= 0 ? Rational(Integer(1) << exponent) : Rational(Integer(1), Integer(1) << -exponent);
}

/// Exact value of a finite float or double, through the C library's frexp.
template <class T>
Rational rational(T x) {
  int exponent = 0;
  const T fraction = std::frexp(x, &exponent);  // x = fraction * 2^exponent, exactly
  return Rational(static_cast<std::int64_t>(std::ldexp(fraction, 53))) * power_of_two(exponent - 53);
}

struct Rounded {
  std::uint64_t magnitude = 0;  ///< bits without sign
  bool inexact = false;
  bool overflow = false;
  bool underflow = false;         ///< tininess after rounding
  bool underflow_before = false;  ///< tininess before rounding
};

/// The place of a number >= 0 between the multiples of a unit.
struct Multiples {
  Integer below;        ///< floor(number / unit)
  int half = 0;         ///< how the rest compares to half a unit
  bool is_one = false;  ///< there is no rest

  Multiples(const Rational& number, const Rational& unit) {  // integers: no common divisors are looked for
    const Integer divisor = denominator(number) * numerator(unit);
    const Integer dividend = numerator(number) * denominator(unit);
    Integer rest;
    divide_qr(dividend, divisor, below, rest);
    half = Integer(2 * rest).compare(divisor);
    is_one = rest == 0;
  }
  /// Does the direction take the multiple above?
  bool goes_up(bool negative, Rounding rounding) const {
    switch (rounding) {
      case Rounding::nearest_even:
        return half > 0 || (half == 0 && below % 2 != 0);
      case Rounding::nearest_away:
        return half >= 0;
      case Rounding::toward_zero:
        return false;
      case Rounding::upward:
        return !negative && !is_one;
      case Rounding::downward:
        return negative && !is_one;
      case Rounding::stochastic:
        break;
    }
    throw std::invalid_argument("oracle: stochastic rounding has no one result");
  }
};

/// floor(magnitude / unit) or one more, as the rounding direction says.
inline Integer round_to_multiple(const Rational& magnitude, const Rational& unit, bool negative,
                                 Rounding rounding) {
  const Multiples multiples(magnitude, unit);
  return multiples.below + (multiples.goes_up(negative, rounding) ? 1 : 0);
}

/// Every non-negative finite value of a format, ascending; the index of a value is its code.
class ValueTable {
 public:
  ValueTable(int exponent_bits, int precision, Encoding encoding = Encoding::ieee)
      : precision_(precision),
        encoding_(encoding),
        sign_(encoding == Encoding::scale ? 0 : std::uint64_t{1} << (exponent_bits + precision - 1)) {
    const int bias = (1 << (exponent_bits - 1)) - (encoding == Encoding::fnuz ? 0 : 1);
    const int fractions = 1 << (precision - 1), fields = 1 << exponent_bits;
    emin_ = precision == 1 ? -bias : 1 - bias;
    const auto value = [&](int code) {
      const int field = code / fractions;
      const Rational fraction(code % fractions, fractions);
      if (field == 0 && precision > 1) return Rational(power_of_two(emin_) * fraction);
      return Rational(power_of_two(field - bias) * (1 + fraction));
    };
    int count = fields * fractions - 1;  // the last code is a NaN
    if (encoding == Encoding::ieee) count = (fields - 1) * fractions;
    if (encoding == Encoding::finite || encoding == Encoding::fnuz) count = fields * fractions;
    // The last entry is not in the format: the neighbour of the largest number if it had more codes.
    for (int code = 0; code <= count; ++code) values_.push_back(value(code));
    emax_ = (count - 1) / fractions - bias;
  }
  template <class F>
  static ValueTable of() {
    return ValueTable(F::exponent_bits, F::precision, F::encoding);
  }

  /// The code that a rounded magnitude has with its sign.
  std::uint64_t code(std::uint64_t magnitude, bool negative) const {
    const std::uint64_t sign = negative ? sign_ : 0;
    if (encoding_ == Encoding::fnuz && (magnitude == 0 || magnitude == infinity())) return magnitude;
    return sign | (encoding_ == Encoding::finite ? std::min(magnitude, infinity() - 1) : magnitude);
  }

  std::uint64_t infinity() const { return values_.size() - 1; }
  const Rational& value(std::uint64_t magnitude) const { return values_[magnitude]; }

  /// What all roundings of a number >= 0 have in common.
  struct Place {
    std::uint64_t high = 0;  ///< the first code whose value is not less; infinity() + 1 if there is none
    bool is_value = false;   ///< the number is the value of `high`
    int middle = 0;          ///< how it compares to the middle of that value and the one before
    Multiples unbounded;     ///< of the last place that an unbounded exponent would give
    bool overflows[2] = {}, is_tiny[2] = {};  ///< would the multiple below, and the one above?
    bool is_zero = false, is_tiny_before = false;
  };
  Place place(const Rational& magnitude) const {
    int exponent = emin_ - precision_ - 2;  // anything smaller behaves like this one
    while (exponent <= emax_ && power_of_two(exponent + 1) <= magnitude) ++exponent;
    const Rational unit = power_of_two(exponent - precision_ + 1);
    Place result{.unbounded = Multiples(magnitude, unit)};
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    result.high = static_cast<std::uint64_t>(above - values_.begin());
    result.is_value = above != values_.end() && *above == magnitude;
    if (above != values_.end() && above != values_.begin())
      result.middle = Rational(2 * magnitude).compare(Rational(*above + above[-1]));
    for (const int up : {0, 1}) {
      const Rational multiple = Rational(Integer(result.unbounded.below + up)) * unit;
      result.overflows[up] = multiple > values_[infinity() - 1];
      result.is_tiny[up] = multiple < power_of_two(emin_);
    }
    result.is_zero = magnitude == 0;
    result.is_tiny_before = magnitude < power_of_two(emin_);
    return result;
  }

  Rounded round(const Place& x, bool negative, Rounding rounding) const {
    Rounded result;
    result.magnitude = nearest_code(x, negative, rounding);
    result.inexact = result.magnitude == infinity() || !(x.is_value && result.magnitude == x.high);
    if (x.is_zero) return result;
    // Overflow and tininess ask what the format would give if its exponent were unbounded.
    const bool up = x.unbounded.goes_up(negative, rounding);
    result.overflow = x.overflows[up];
    result.inexact = result.inexact || result.overflow;
    result.underflow = result.inexact && x.is_tiny[up];
    result.underflow_before = result.inexact && x.is_tiny_before;
    return result;
  }
  /// `magnitude` >= 0, the absolute value of the number to round.
  Rounded round(const Rational& magnitude, bool negative, Rounding rounding) const {
    return round(place(magnitude), negative, rounding);
  }

 private:
  std::uint64_t nearest_code(const Place& x, bool negative, Rounding rounding) const {
    const std::uint64_t max_finite = infinity() - 1;
    const bool away =
        (rounding == Rounding::upward && !negative) || (rounding == Rounding::downward && negative);
    const bool nearest = rounding == Rounding::nearest_even || rounding == Rounding::nearest_away;
    if (x.high > infinity()) return nearest || away ? infinity() : max_finite;
    if ((x.is_value && x.high < infinity()) || x.high == 0) return x.high;
    const std::uint64_t low = x.high - 1;
    if (away) return x.high;
    if (!nearest) return low;
    if (x.middle != 0) return x.middle < 0 ? low : x.high;
    // With one digit no significand is even, and the tie goes to the larger one (IEEE 754-2019, 4.3.1).
    return rounding == Rounding::nearest_away || low % 2 != 0 || precision_ == 1 ? x.high : low;
  }

  int precision_;
  Encoding encoding_;
  std::uint64_t sign_;
  int emax_ = 0;
  int emin_ = 0;
  std::vector<Rational> values_;
};

}  // namespace fp16lab::oracle
