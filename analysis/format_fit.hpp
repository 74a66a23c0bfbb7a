// Does a tensor fit into a format at a scale?
#pragma once

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/value_histogram.hpp"

namespace fp16lab::analysis {

/// It does if nothing overflows, and rounding it there has at most this many times the relative L2 error that
/// the same precision would have with an unlimited exponent. (Plain rounding costs FP16 0.02 %, BF16 0.17 %,
/// E4M3 2.7 % and E5M2 5.3 %: no error in percent would suit all.)
inline constexpr double fit_limit = 1.1;

/// Squares of rounding errors. They are exact for given values, but for `plain`, which is at least what
/// precision is expected to cost (RoundingErrors): a BF16 dump, exact in FP16, may lose a little there, too.
/// From counts `plain` is what is expected, and `error` adds to it at most half the spacing of subnormal
/// numbers for each of them, and the value itself (the top of its bin) where it becomes zero: so what fits by
/// counts fits by its values. Additive.
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
  /// In units of values that are `factor` times as small.
  FitSums divided_by(double factor) const;
  /// How many times the error that precision alone costs; 1 without values.
  double ratio() const;
  bool is_precise() const { return ratio() <= fit_limit; }
  bool fits() const { return !overflows && is_precise(); }
  /// Would what becomes zero alone be too much, and what is rounded as a subnormal alone?
  bool loses_too_much() const { return lost + plain > fit_limit * fit_limit * plain; }
  bool is_distorted() const { return error - lost > fit_limit * fit_limit * plain; }
};

/// Takes values that are multiplied by `scale` > 0; the sums are in units of the values before that.
FitSums fit_sums(const ExponentHistogram& values, const FormatRange& range, double scale);
/// Exact if `scale` is a power of two, and the format has FP16's precision at most; else bounds as of their
/// counts.
FitSums fit_sums(const ValueHistogram& values, const FormatRange& range, double scale);

}  // namespace fp16lab::analysis
