// What-if rates: where the values of a histogram land in a format after multiplication by a scale, by count
// and by magnitude. Pure functions of the counters. (What a cast did to the values that it stored:
// cast_counts.hpp.)
//
// Zones of y = x * scale under round-to-nearest-even (IEEE 754-2019, 4.3.1), with the edges of FP16:
//   lost       0 < |y| <= 2^-25        becomes zero (the tie 2^-25 goes to even, which is zero)
//   subnormal  2^-25 < |y| < 2^-14     keeps fewer than 11 significant bits
//   normal     2^-14 <= |y| < 65520
//   overflow   65520 <= |y|            becomes infinity
// The products are exact: no rounding to FP32 in between. For power-of-two scales `lost` is exact, a whole
// number of bins, in every format. The edges 2^-14 and 65520 cut one bin each, and edges at other scales may
// cut one: then counts are [lower, upper]. A bin counts as cut only if FP32 numbers of that bin are on both
// sides of the edge, and none below the histogram's smallest or above its greatest value. So *whether*
// anything overflows, or is lost, is certain at every scale: overflow.lower > 0 or overflow.upper == 0.
// Histograms without extremes (older folders) only bound it.
//
// By magnitude: how much of the L1 and L2 of the values is in each zone, and how far a format turns a
// gradient at a scale. As in range_mass.hpp, which policies use on the device, all sums are [lower, upper]: a
// bin says about its values only that they are in (2^e, 2^(e+1)], and a bin that an edge cuts may be on
// either side. Ends are moved outward by a relative 2^-40, which covers all rounding; zero stays zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/range_mass.hpp"
#include "numerics/histogram/zone_edges.hpp"

namespace fp16lab {

/// One for each zone.
template <class T>
struct PerZone {
  T lost{}, subnormal{}, normal{}, overflow{};
  /// By Zone::Index, the order of magnitudes.
  T& operator[](std::size_t zone) { return this->*members()[zone]; }
  const T& operator[](std::size_t zone) const { return this->*members()[zone]; }
  bool operator==(const PerZone&) const = default;

 private:
  static constexpr std::array<T PerZone::*, Zone::count> members() {
    return {&PerZone::lost, &PerZone::subnormal, &PerZone::normal, &PerZone::overflow};
  }
};

struct CountInterval {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  bool exact() const { return lower == upper; }
  bool operator==(const CountInterval&) const = default;
};

struct RangeCounts : PerZone<CountInterval> {
  std::uint64_t zero = 0;      ///< exact zeros before the cast: not underflow
  std::uint64_t infinite = 0;  ///< already infinite before the cast
  std::uint64_t nan = 0;
  std::uint64_t total = 0;

  /// The sums over all values together.
  RangeCounts& operator+=(const RangeCounts& other);
};

/// Zones of a format at `scale` (finite, > 0; otherwise std::invalid_argument).
RangeCounts count_ranges(const ExponentHistogram& histogram, const FormatRange& range, double scale);

/// lost / (finite non-zero values), the midpoint where `lost` is an interval; 0 for an empty histogram.
double underflow_rate(const ExponentHistogram& histogram, const FormatRange& range, double scale);

/// Sums over the values of a zone, and over all other finite values.
struct ZoneSum {
  MassInterval inside, outside;
  /// inside / (inside + outside), within [0, 1]; 0 where there is nothing. One number where the sums are
  /// known (both ends the same).
  MassInterval share() const {
    if (inside.lower != inside.upper || outside.lower != outside.upper)
      return mass_detail::share(inside, outside);
    const double part = inside.upper == 0 ? 0 : inside.upper / (inside.upper + outside.upper);
    return {part, part};
  }
  bool operator==(const ZoneSum&) const = default;
};

struct ZoneSums : PerZone<ZoneSum> {
  MassInterval total;
  bool operator==(const ZoneSums&) const = default;
};

/// In units of the recorded values: |x|, and x^2.
struct ZoneMass {
  ZoneSums l1, l2_squared;

  /// The same of values that were divided by `factor` > 0.
  ZoneMass divided_by(double factor) const;
  /// Adds the sums of other values in the same units.
  ZoneMass& operator+=(const ZoneMass& other);
  bool operator==(const ZoneMass&) const = default;
};

/// Zones of a format at `scale` (finite, > 0; otherwise std::invalid_argument). Inf and NaN have no magnitude
/// here.
ZoneMass zone_mass(const ExponentHistogram& histogram, const FormatRange& range, double scale);

/// What rounding to a format at a scale may do to the direction of a gradient, as sums that may be added over
/// histograms.
struct DirectionSums {
  MassInterval lost, kept;   ///< squares of the values that become zero, and of the others
  double error_squared = 0;  ///< at most: the difference between the values and what the format keeps of them
  double norm_squared = 0;   ///< at least, where the error is that large
  bool may_overflow = false, overflows = false;  ///< infinite or NaN before the cast count as overflow

  DirectionSums divided_by(double factor) const;
  DirectionSums& operator+=(const DirectionSums& other);
  /// Between the values x and what is left of them, fl(x * scale) / scale: [lower, upper] within [0, 1].
  ///
  /// Upper: what is left is zero wherever values are lost, so by Cauchy-Schwarz cos <= ||kept|| / ||x||.
  /// Lower: the angle between x and x - d has a sine of at most ||d|| / ||x||; |d| <= |x| where lost, half
  /// the spacing elsewhere (in FP16 2^-25 / scale among subnormals, else 2^-11 |x|). 1 where there is no
  /// finite non-zero value. If a value may overflow nothing may be left of the gradient (its step is
  /// skipped): lower is 0; if one does, both are.
  MassInterval cosine() const;
};

/// `scale` as in zone_mass.
DirectionSums direction_sums(const ExponentHistogram& histogram, const FormatRange& range, double scale);

}  // namespace fp16lab
