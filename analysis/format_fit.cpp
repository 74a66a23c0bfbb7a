#include "analysis/format_fit.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {

double FitSums::ratio() const { return plain == 0 ? 1 : std::sqrt(error / plain); }

FitSums FitSums::divided_by(double factor) const {
  const double square = factor * factor;
  return {.error = error / square, .lost = lost / square, .plain = plain / square, .overflows = overflows};
}

FitSums fit_sums(const ExponentHistogram& values, const FormatRange& range, double scale) {
  FitSums sums{.overflows = count_ranges(values, range, scale).overflow.upper > 0};
  // For a scale that is no power of two, the error at the next lower power bounds the error: no value has
  // more bits there.
  const int shift = std::ilogb(scale);
  const ZoneEdges<Binary32> edges(range, std::ldexp(1.0, shift));
  const auto square_of_power = [](int exponent) { return std::ldexp(1.0, 2 * exponent); };
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = values.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const int e = bin + ExponentHistogram::min_exponent;
    const auto n = static_cast<double>(count);
    const double plain = n * square_of_power(e + 1 - range.precision) / 12;
    const bool lost = edges.zone_of(ExponentHistogram::greatest_of_bin(bin)) == Zone::lost;
    const bool subnormal = edges.zone_of(ExponentHistogram::smallest_of_bin(bin)) <= Zone::subnormal;
    const double more = lost        ? n * square_of_power(e + 1)
                        : subnormal ? n * square_of_power(range.tie_to_zero - shift)
                                    : 0;
    sums.plain += plain;
    sums.error += plain + more;
    if (lost) sums.lost += more;
  }
  return sums;
}

FitSums fit_sums(const ValueHistogram& values, const FormatRange& range, double scale) {
  const int log2_scale = std::ilogb(scale);
  const bool exact = std::scalbn(1.0, log2_scale) == scale && range.precision <= RoundingErrors::most_bits;
  FitSums sums = exact ? FitSums{} : fit_sums(values.exponents(), range, scale);
  if (exact) {
    const RoundingErrors::Squares squares = values.rounding_errors().squares(range, log2_scale);
    sums.error = squares.error;
    sums.lost = squares.lost;
    sums.plain = std::max(squares.plain, squares.expected_plain);
  }
  sums.overflows = range.overflows(values.greatest() * scale);
  return sums;
}

}  // namespace fp16lab::analysis
