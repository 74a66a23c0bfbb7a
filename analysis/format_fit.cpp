#include "analysis/format_fit.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {

double FitSums::ratio() const { return plain == 0 ? 1 : std::sqrt(error / plain); }

FitSums fit_sums(const ExponentHistogram& values, const FormatRange& range, double scale) {
  FitSums sums{.overflows = count_ranges(values, range, scale).overflow.upper > 0};
  // Of a scale that is no power of two the error is bounded by that of the next power below, at which no
  // value has more bits.
  const int shift = std::ilogb(scale);
  const auto square_of_power = [](int exponent) { return std::ldexp(1.0, 2 * exponent); };
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
    const std::uint64_t count = values.at(e);
    if (count == 0) continue;
    const double plain = square_of_power(e - range.precision);
    const double kept = std::max(plain, square_of_power(range.tie_to_zero - shift));
    const bool lost = e + 1 + shift <= range.tie_to_zero;
    const auto n = static_cast<double>(count);
    sums.plain += n * plain;
    sums.error += n * (lost ? square_of_power(e + 1) : kept);
    if (lost) sums.lost += n * square_of_power(e + 1);
  }
  return sums;
}

}  // namespace fp16lab::analysis
