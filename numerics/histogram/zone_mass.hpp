// The zones of range_counts.hpp by magnitude instead of by count: how much of the L1 and L2 of the values lies in each,
// and how far a format turns a gradient at a scale.
//
// As in range_mass.hpp, which policies use on the device, all sums are [lower, upper]: a bin tells of its values only that
// they lie in (2^e, 2^(e+1)], and a bin that an edge cuts may lie on either side. Ends are moved outward by a relative
// 2^-40, which covers all rounding; zero stays zero.
#pragma once

#include <array>

#include "numerics/histogram/range_mass.hpp"

namespace fp16lab {

/// Sums over the values of a zone, and over all other finite values.
struct ZoneSum {
  MassInterval inside, outside;
  /// inside / (inside + outside), within [0, 1]; 0 where there is nothing. Of sums that are known (both ends the same),
  /// one number.
  MassInterval share() const {
    if (inside.lower != inside.upper || outside.lower != outside.upper)
      return mass_detail::share(inside, outside);
    const double part = inside.upper == 0 ? 0 : inside.upper / (inside.upper + outside.upper);
    return {part, part};
  }
  bool operator==(const ZoneSum&) const = default;
};

struct ZoneSums {
  MassInterval total;
  ZoneSum lost, subnormal, normal, overflow;
  bool operator==(const ZoneSums&) const = default;
};

/// In units of the recorded values: |x|, and x^2.
struct ZoneMass {
  ZoneSums l1, l2_squared;

  /// The same of values that were divided by `factor` > 0.
  ZoneMass divided_by(double factor) const;
  /// Of all values together; both in the same units.
  ZoneMass& operator+=(const ZoneMass& other);
  bool operator==(const ZoneMass&) const = default;
};

/// Zones of a format at `scale` (finite, > 0; otherwise std::invalid_argument). Inf and NaN have no magnitude here.
ZoneMass zone_mass(const ExponentHistogram& histogram, const FormatRange& range, double scale);

/// What rounding to a format at a scale may do to the direction of a gradient, as sums that may be added over histograms.
struct DirectionSums {
  MassInterval lost, kept;  ///< squares of the values that become zero, and of the others
  double error_squared =
      0;  ///< at most: of the difference between the values and what the format keeps of them
  double norm_squared = 0;                       ///< at least, where the error is that large
  bool may_overflow = false, overflows = false;  ///< infinite or NaN before the cast count as overflow

  DirectionSums divided_by(double factor) const;
  DirectionSums& operator+=(const DirectionSums& other);
  /// Between the values x and what is left of them, fl(x * scale) / scale: [lower, upper] within [0, 1].
  ///
  /// Upper: what is left is zero wherever values are lost, so by Cauchy-Schwarz cos <= ||kept|| / ||x||. Lower: the
  /// angle between x and x - d has a sine of at most ||d|| / ||x||; |d| <= |x| where lost, half the spacing
  /// elsewhere (in FP16 2^-25 / scale among subnormals, else 2^-11 |x|). 1 where there is no finite non-zero value. If a value
  /// may overflow nothing may be left of the gradient (its step is skipped): lower is 0; if one does, both are.
  MassInterval cosine() const;
};

/// `scale` as in zone_mass.
DirectionSums direction_sums(const ExponentHistogram& histogram, const FormatRange& range, double scale);

}  // namespace fp16lab
