#pragma once

// Values and histograms of them, for the tests of analysis/.
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/range_report.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::analysis {

inline ExponentHistogram histogram_of(const std::vector<float>& values) {
  ExponentHistogram histogram;
  for (const float value : values) histogram.count(bits_of(value));
  return histogram;
}

inline std::vector<float> times_power_of_two(std::vector<float> values, int exponent) {
  for (float& value : values) value = std::ldexp(value, exponent);
  return values;
}

/// Counted where they are at hand.
inline void add_values(RangeReport& report, const std::string& name, const std::vector<float>& values,
                       double recorded, const std::shared_ptr<const ValueBins>& bins) {
  ValueHistogram counted(bins);
  counted.add(std::span<const float>(values));
  report.add(name, counted, recorded);
}

inline constexpr FormatRange f16 = FormatRange::of<Binary16>();

}  // namespace fp16lab::analysis
