// What-if rates: where the values of a histogram land in a format after multiplication by a scale. Pure functions of the
// counters. (What a cast did to the values that it stored: cast_counts.hpp.)
//
// Zones of y = x * scale under round-to-nearest-even (IEEE 754-2019, 4.3.1), with the edges of FP16:
//   lost       0 < |y| <= 2^-25        becomes zero (the tie 2^-25 goes to even, which is zero)
//   subnormal  2^-25 < |y| < 2^-14     keeps fewer than 11 significant bits
//   normal     2^-14 <= |y| < 65520
//   overflow   65520 <= |y|            becomes infinity
// The products are exact: no rounding to FP32 in between. For power-of-two scales `lost` is exact, a whole number of bins,
// in every format. The edges 2^-14 and 65520 cut one bin each, and edges at other scales may cut one: then counts are
// [lower, upper]. A bin counts as cut only if FP32 numbers of that bin lie on both sides of the edge, and none below the
// histogram's smallest or above its greatest value. So *whether* anything overflows, or is lost, is certain at every
// scale: overflow.lower > 0 or overflow.upper == 0. Histograms without extremes (older folders) only bound it.
#pragma once

#include <cstdint>

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

struct CountInterval {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  bool exact() const { return lower == upper; }
  bool operator==(const CountInterval&) const = default;
};

struct RangeCounts {
  std::uint64_t zero = 0;      ///< exact zeros before the cast: not underflow
  std::uint64_t infinite = 0;  ///< already infinite before the cast
  std::uint64_t nan = 0;
  CountInterval lost, subnormal, normal, overflow;
  std::uint64_t total = 0;
};

/// Zones of a format at `scale` (finite, > 0; otherwise std::invalid_argument).
RangeCounts count_ranges(const ExponentHistogram& histogram, const FormatRange& range, double scale);

/// lost / (finite non-zero values), the midpoint where `lost` is an interval; 0 for an empty histogram.
double underflow_rate(const ExponentHistogram& histogram, const FormatRange& range, double scale);

}  // namespace fp16lab
