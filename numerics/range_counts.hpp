// Where the values of a histogram land in FP16 after multiplication by a scale: pure functions of the
// counters.
//
// Zones of y = x * scale under round-to-nearest-even (IEEE 754-2019, 4.3.1), F = Binary16:
//   lost       0 < |y| <= 2^-25        becomes zero (the tie 2^-25 goes to even, which is zero)
//   subnormal  2^-25 < |y| < 2^-14     keeps fewer than 11 significant bits
//   normal     2^-14 <= |y| < 65520
//   overflow   65520 <= |y|            becomes infinity
// The products are exact: no rounding to FP32 in between. For power-of-two scales up to 2^101 `lost` is
// exact, a whole number of bins (beyond, 2^-25 cuts the lowest bin, which holds all FP32 subnormals); the
// edges 2^-14 and 65520 cut one bin each, so the other three come as [lower, upper]. For other scales every
// edge may cut a bin and every count is an interval. A bin counts as cut only if FP32 numbers of that bin lie
// on both sides of the edge.
#pragma once

#include <cstdint>

#include "numerics/exponent_histogram.hpp"

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

/// Zones at `scale` (finite, > 0; otherwise std::invalid_argument).
RangeCounts count_ranges(const ExponentHistogram& histogram, double scale);

/// lost / (finite non-zero values), the midpoint where `lost` is an interval; 0 for an empty histogram.
double underflow_rate(const ExponentHistogram& histogram, double scale);

}  // namespace fp16lab
