// How much of a gradient a format loses at a loss scale, by magnitude: bounds on L1 and L2 read from the
// counts of a histogram. Counts alone mislead: half of all non-zero values may vanish and carry a millionth
// of the gradient.
//
// A bin says about each of its n values only that it is in (2^e, 2^(e+1)], so sums come as intervals: L1 in
// (n 2^e, n 2^(e+1)], the sum of squares in (n 4^e, n 4^(e+1)]. (Where the histogram's extremes are not
// known, the bin (2^-127, 2^-126] may hold everything below.) Which bins round to zero at a scale is decided
// exactly (zone_edges.hpp): for power-of-two scales whole bins; otherwise one bin may be cut, and then its
// values are lost each or kept each. The extremes narrow nothing here: policies decide by these sums.
//
// Host and device, no allocation, no exceptions. Every sum is an FP64 sum of at most 278 non-negative terms
// in ascending order of the bins, each term within 2^-52 of its value (the count is rounded once, n *
// threshold / scale twice), so its relative error is below 278 * 2^-53 + 2^-51 < 2^-44; ends are moved
// outward by a relative 2^-40, which covers the quotients and roots formed from them too. Zero stays zero: an
// upper end of 0 says that there is nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/zone_edges.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

struct MassInterval {
  double lower = 0;
  double upper = 0;
  FP16LAB_HD constexpr double middle() const { return 0.5 * (lower + upper); }
  bool operator==(const MassInterval&) const = default;
};

/// In units of the recorded values: sums over |x| and over x^2 of the finite values x. Lost are those with
/// 0 < |x| * scale <= 2^tie_to_zero, kept all others (also what overflows).
struct RangeMass {
  MassInterval total_l1, lost_l1, total_l2_squared, lost_l2_squared;
  MassInterval kept_l1, kept_l2_squared;  ///< for ratios: lost / (lost + kept) is narrower than lost / total
};

namespace mass_detail {

/// 2^k for -1022 <= k <= 1023.
FP16LAB_HD constexpr double power_of_two(int k) {
  return double_from_bits(static_cast<std::uint64_t>(k + 1023) << 52);
}

inline constexpr double outward = 0x1p-40;
FP16LAB_HD constexpr MassInterval widened(double lower, double upper) {
  return {lower * (1.0 - outward), upper * (1.0 + outward)};
}

/// The ends of bin e as reals: above `low_end`, at most `high_end`. Where the extremes are unknown, the bin
/// (2^-127, 2^-126] has all that is smaller too (smallest_in_bin of zone_edges.hpp).
FP16LAB_HD constexpr double low_end(int e, bool extremes) {
  constexpr int shared = ExponentHistogram::min_exponent + ExponentHistogram::subnormal_bins;
  return e == shared && !extremes ? 0.0 : power_of_two(e);
}
FP16LAB_HD constexpr double high_end(int e) { return power_of_two(e + 1); }

FP16LAB_HD constexpr bool usable(double scale) { return scale > 0.0 && scale <= 0x1.fffffffffffffp1023; }

/// part / (part + rest), each end with the ends that make it extreme; 0 for nothing at all.
FP16LAB_HD constexpr MassInterval share(MassInterval part, MassInterval rest) {
  if (part.upper == 0.0) return {0.0, 0.0};
  if (rest.upper == 0.0) return {1.0, 1.0};
  MassInterval result =
      widened(part.lower / (part.lower + rest.upper), part.upper / (part.upper + rest.lower));
  if (result.upper > 1.0) result.upper = 1.0;
  return result;
}

}  // namespace mass_detail

/// `scale` finite and above zero; otherwise every end is NaN.
FP16LAB_HD constexpr RangeMass range_mass(const ExponentHistogram& histogram, const FormatRange& range,
                                          double scale) {
  if (!mass_detail::usable(scale)) {
    const double nan = double_from_bits(Binary64::canonical_nan);
    const MassInterval none{nan, nan};
    return {none, none, none, none, none, none};
  }
  // The largest magnitude that is lost. Infinite for scales so small that everything is; then it is not used.
  const double threshold = mass_detail::power_of_two(range.tie_to_zero) / scale;
  const std::uint32_t last_lost = last_within<Binary32>(Zone::lost, range, scale);
  const bool extremes = histogram.greatest != 0;
  double total1[2] = {0, 0}, total2[2] = {0, 0}, lost1[2] = {0, 0}, lost2[2] = {0, 0};
  double kept1[2] = {0, 0}, kept2[2] = {0, 0};
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const int e = bin + ExponentHistogram::min_exponent;
    const double n = static_cast<double>(count);
    const double low = mass_detail::low_end(e, extremes), high = mass_detail::high_end(e);
    total1[0] += n * low;
    total1[1] += n * high;
    total2[0] += n * (low * low);
    total2[1] += n * (high * high);
    const bool all = ExponentHistogram::greatest_of_bin(bin) <= last_lost;
    const bool some = smallest_in_bin(bin, extremes) <= last_lost;
    if (some) {
      const double top = all || high < threshold ? high : threshold;
      lost1[1] += n * top;
      lost2[1] += n * (top * top);
      if (all) {
        lost1[0] += n * low;
        lost2[0] += n * (low * low);
      }
    }
    if (!all) {
      kept1[1] += n * high;
      kept2[1] += n * (high * high);
      if (!some) {
        kept1[0] += n * low;
        kept2[0] += n * (low * low);
      }
    }
  }
  RangeMass mass;
  mass.total_l1 = mass_detail::widened(total1[0], total1[1]);
  mass.lost_l1 = mass_detail::widened(lost1[0], lost1[1]);
  mass.total_l2_squared = mass_detail::widened(total2[0], total2[1]);
  mass.lost_l2_squared = mass_detail::widened(lost2[0], lost2[1]);
  mass.kept_l1 = mass_detail::widened(kept1[0], kept1[1]);
  mass.kept_l2_squared = mass_detail::widened(kept2[0], kept2[1]);
  return mass;
}

/// Sums two masses in the same units, e.g. those of several tensors.
FP16LAB_HD constexpr MassInterval operator+(MassInterval a, MassInterval b) {
  return {a.lower + b.lower, a.upper + b.upper};
}
FP16LAB_HD constexpr RangeMass operator+(const RangeMass& a, const RangeMass& b) {
  return {a.total_l1 + b.total_l1,
          a.lost_l1 + b.lost_l1,
          a.total_l2_squared + b.total_l2_squared,
          a.lost_l2_squared + b.lost_l2_squared,
          a.kept_l1 + b.kept_l1,
          a.kept_l2_squared + b.kept_l2_squared};
}

/// What part of the L1 norm is lost, in [0, 1]; 0 where there is no finite non-zero value.
FP16LAB_HD constexpr MassInterval lost_l1_share(const RangeMass& mass) {
  return mass_detail::share(mass.lost_l1, mass.kept_l1);
}
/// The share of the sum of squares: ||lost||^2 / ||x||^2.
FP16LAB_HD constexpr MassInterval lost_l2_squared_share(const RangeMass& mass) {
  return mass_detail::share(mass.lost_l2_squared, mass.kept_l2_squared);
}
/// The share of the L2 norm: ||lost|| / ||x||, the sine of the angle that flushing to zero turns a gradient
/// by.
FP16LAB_HD inline MassInterval lost_l2_share(const RangeMass& mass) {
  const MassInterval squared = lost_l2_squared_share(mass);
  return {std::sqrt(squared.lower), std::sqrt(squared.upper)};
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
