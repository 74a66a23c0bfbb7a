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

/// floor(magnitude / unit) or one more, as the rounding direction says.
inline Integer round_to_multiple(const Rational& magnitude, const Rational& unit, bool negative,
                                 Rounding rounding) {
  const Rational quotient = magnitude / unit;
  const Integer floor = numerator(quotient) / denominator(quotient);
  const Rational rest = quotient - floor;
  const Rational half(1, 2);
  bool up = false;
  switch (rounding) {
    case Rounding::nearest_even:
      up = rest > half || (rest == half && floor % 2 != 0);
      break;
    case Rounding::nearest_away:
      up = rest >= half;
      break;
    case Rounding::toward_zero:
      break;
    case Rounding::upward:
      up = !negative && rest != 0;
      break;
    case Rounding::downward:
      up = negative && rest != 0;
      break;
    case Rounding::stochastic:
      throw std::invalid_argument("oracle: stochastic rounding has no one result");
  }
  return up ? floor + 1 : floor;
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

  /// `magnitude` >= 0, the absolute value of the number to round.
  Rounded round(const Rational& magnitude, bool negative, Rounding rounding) const {
    Rounded result;
    result.magnitude = nearest_code(magnitude, negative, rounding);
    result.inexact = result.magnitude == infinity() || values_[result.magnitude] != magnitude;
    if (magnitude == 0) return result;
    // Overflow and tininess ask what the format would give if its exponent were unbounded.
    int exponent = emin_ - precision_ - 2;  // anything smaller behaves like this one
    while (exponent <= emax_ && power_of_two(exponent + 1) <= magnitude) ++exponent;
    const Rational unit = power_of_two(exponent - precision_ + 1);
    const Rational unbounded = Rational(round_to_multiple(magnitude, unit, negative, rounding)) * unit;
    result.overflow = unbounded > values_[infinity() - 1];
    result.inexact = result.inexact || result.overflow;
    result.underflow = result.inexact && unbounded < power_of_two(emin_);
    result.underflow_before = result.inexact && magnitude < power_of_two(emin_);
    return result;
  }

 private:
  std::uint64_t nearest_code(const Rational& magnitude, bool negative, Rounding rounding) const {
    const auto above =
        std::lower_bound(values_.begin(), values_.end(), magnitude);  // first value >= magnitude
    const std::uint64_t max_finite = infinity() - 1;
    const bool away =
        (rounding == Rounding::upward && !negative) || (rounding == Rounding::downward && negative);
    const bool nearest = rounding == Rounding::nearest_even || rounding == Rounding::nearest_away;
    if (above == values_.end()) return nearest || away ? infinity() : max_finite;
    const auto high = static_cast<std::uint64_t>(above - values_.begin());
    if (*above == magnitude && high < infinity()) return high;
    const std::uint64_t low = *above == magnitude ? max_finite : high - 1;
    if (away) return high;
    if (!nearest) return low;
    const Rational to_low = magnitude - values_[low];
    const Rational to_high = values_[high] - magnitude;
    if (to_low != to_high) return to_low < to_high ? low : high;
    return rounding == Rounding::nearest_away || low % 2 != 0 ? high : low;
  }

  int precision_;
  int emax_;
  int emin_;
  std::vector<Rational> values_;
};

}  // namespace fp16lab::oracle
