// The slow twin of round_pack: rounding written from the definition in exact rational arithmetic.
//
// A format is described by two numbers, its values are listed one by one from IEEE 754-2019, 3.4, and a real
// number is rounded by looking at its two neighbours in that list. Nothing here comes from numerics/ but the
// names of formats and rounding directions.
#pragma once

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

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

/// Every non-negative finite value of a format, ascending; the index of a value is its code. With
/// `top_is_numbers` the largest exponent field holds numbers too, but for its last code (OFP8 E4M3).
class ValueTable {
 public:
  ValueTable(int exponent_bits, int precision, bool top_is_numbers = false)
      : precision_(precision),
        emax_((1 << (exponent_bits - 1)) - (top_is_numbers ? 0 : 1)),
        emin_(2 - (1 << (exponent_bits - 1))) {
    const std::uint32_t fractions = 1u << (precision - 1);
    for (std::uint32_t fraction = 0; fraction < fractions; ++fraction)  // subnormals
      values_.push_back(power_of_two(emin_) * Rational(fraction, fractions));
    for (int exponent = emin_; exponent <= emax_; ++exponent)
      for (std::uint32_t fraction = 0; fraction < fractions; ++fraction)
        values_.push_back(power_of_two(exponent) * (1 + Rational(fraction, fractions)));
    // The last entry is not in the format: the neighbour of max_finite if it had more codes.
    if (!top_is_numbers) values_.push_back(power_of_two(emax_ + 1));
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
    if (x.is_value && x.high < infinity()) return x.high;
    const std::uint64_t low = x.high - 1;
    if (away) return x.high;
    if (!nearest) return low;
    if (x.middle != 0) return x.middle < 0 ? low : x.high;
    return rounding == Rounding::nearest_away || low % 2 != 0 ? x.high : low;
  }

  int precision_;
  int emax_;
  int emin_;
  std::vector<Rational> values_;
};

}  // namespace fp16lab::oracle
