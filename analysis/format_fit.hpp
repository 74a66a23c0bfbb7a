// Does a tensor fit into a format at a scale?
#pragma once

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::analysis {

/// It does if nothing overflows, and rounding it there has at most this many times the relative L2 error that
/// the same precision would have with an unlimited exponent. (Plain rounding costs FP16 0.02 %, BF16 0.17 %,
/// E4M3 2.7 % and E5M2 5.3 %: no error in percent would suit all.)
inline constexpr double fit_limit = 1.1;

/// Squares of rounding errors, bounded from counts: half the spacing of the format's numbers for each value
/// that rounding keeps, the value itself (the top of its bin) where it becomes zero. Additive.
struct FitSums {
  double error = 0;  ///< in the format
  double lost = 0;   ///< the part of it that becomes zero
  double plain = 0;  ///< with an unlimited exponent: never 0 where there is a finite non-zero value
  bool overflows = false;

  FitSums& operator+=(const FitSums& other) {
    error += other.error;
    lost += other.lost;
    plain += other.plain;
    overflows = overflows || other.overflows;
    return *this;
  }
  /// How many times the error that precision alone costs; 1 without values.
  double ratio() const;
  bool fits() const { return !overflows && ratio() <= fit_limit; }
  /// Would what becomes zero alone be too much, and what is rounded as a subnormal alone?
  bool loses_too_much() const { return lost + plain > fit_limit * fit_limit * plain; }
  bool is_distorted() const { return error - lost > fit_limit * fit_limit * plain; }
};

/// Of values that are multiplied by `scale` > 0; the sums are in units of the values before that.
FitSums fit_sums(const ExponentHistogram& values, const FormatRange& range, double scale);

}  // namespace fp16lab::analysis
