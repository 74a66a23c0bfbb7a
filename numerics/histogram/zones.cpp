#include "numerics/histogram/zones.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace fp16lab {
void zone_detail::check_scale(const char* function, double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw std::invalid_argument(
        fmt::format("{}: scale is {}; a finite number above zero is needed", function, scale));
}

namespace {

ZoneEdges<Binary32> edges_of(const char* function, const FormatRange& range, double scale) {
  zone_detail::check_scale(function, scale);
  return {range, scale};
}

/// The edge between two zones, as an upper bound of the magnitudes below it, in units of the recorded values.
double upper_edge(Zone::Index zone, const FormatRange& range, double scale) {
  switch (zone) {
    case Zone::lost:
      return std::ldexp(1.0, range.tie_to_zero) / scale;
    case Zone::subnormal:
      return std::ldexp(1.0, range.smallest_normal) / scale;
    case Zone::normal:
      return range.overflow_threshold() / scale;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

void add(MassInterval& sum, double lower, double upper) {
  sum.lower += lower;
  sum.upper += upper;
}

void widen_outward(MassInterval& sum) { sum = mass_detail::widened(sum.lower, sum.upper); }

/// n values in (low, high], squared already where squares are summed; edges likewise.
void add_bin(ZoneSums& sums, double n, double low, double high, const BinZones& zones,
             const std::array<double, Zone::count>& edges) {
  add(sums.total, n * low, n * high);
  for (std::size_t z = 0; z < Zone::count; ++z) {
    ZoneSum& zone = sums[z];
    if (z < zones.first || z > zones.last)
      add(zone.outside, n * low, n * high);
    else if (zones.first == zones.last)
      add(zone.inside, n * low, n * high);
    else {
      add(zone.inside, 0, n * std::min(high, edges[z]));
      add(zone.outside, 0, n * high);
    }
  }
}

template <class Change>
void for_each_interval(ZoneSums& sums, const Change& change) {
  change(sums.total);
  for (ZoneSum* const zone : {&sums.lost, &sums.subnormal, &sums.normal, &sums.overflow}) {
    change(zone->inside);
    change(zone->outside);
  }
}

}  // namespace

RangeCounts count_ranges(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  const ZoneEdges<Binary32> edges = edges_of("count_ranges", range, scale);
  RangeCounts zones;
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const BinZones of = zones_of_bin(histogram, bin, edges);
    if (of.first == of.last) {
      zones[of.first].lower += count;
      zones[of.first].upper += count;
      continue;
    }
    for (std::size_t zone = of.first; zone <= of.last; ++zone)
      zones[zone].upper += count - of.at_first - of.at_last;
    zones[of.first].lower += of.at_first;
    zones[of.first].upper += of.at_first;
    zones[of.last].lower += of.at_last;
    zones[of.last].upper += of.at_last;
  }
  zones.zero = histogram.zero;
  zones.infinite = histogram.infinite;
  zones.nan = histogram.nan;
  zones.total = histogram.total();
  return zones;
}

RangeCounts& RangeCounts::operator+=(const RangeCounts& other) {
  zero += other.zero;
  infinite += other.infinite;
  nan += other.nan;
  total += other.total;
  for (std::size_t zone = 0; zone < Zone::count; ++zone) {
    (*this)[zone].lower += other[zone].lower;
    (*this)[zone].upper += other[zone].upper;
  }
  return *this;
}

double underflow_rate(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  const CountInterval lost = count_ranges(histogram, range, scale).lost;
  const std::uint64_t values = histogram.finite_nonzero();
  if (values == 0) return 0.0;
  return 0.5 * (static_cast<double>(lost.lower) + static_cast<double>(lost.upper)) /
         static_cast<double>(values);
}

ZoneMass zone_mass(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  const ZoneEdges<Binary32> format_edges = edges_of("zone_mass", range, scale);
  std::array<double, Zone::count> edges{}, squared_edges{};
  for (std::size_t z = 0; z < edges.size(); ++z) {
    edges[z] = upper_edge(static_cast<Zone::Index>(z), range, scale);
    squared_edges[z] = edges[z] * edges[z];
  }
  ZoneMass mass;
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    const int e = bin + ExponentHistogram::min_exponent;
    const double low = mass_detail::low_end(e, histogram.greatest != 0), high = mass_detail::high_end(e);
    const BinZones zones = zones_of_bin(histogram, bin, format_edges);
    add_bin(mass.l1, n, low, high, zones, edges);
    add_bin(mass.l2_squared, n, low * low, high * high, zones, squared_edges);
  }
  for_each_interval(mass.l1, widen_outward);
  for_each_interval(mass.l2_squared, widen_outward);
  return mass;
}

ZoneMass ZoneMass::divided_by(double factor) const {
  ZoneMass result = *this;
  for_each_interval(result.l1, [factor](MassInterval& sum) {
    sum = {sum.lower / factor, sum.upper / factor};
  });
  for_each_interval(result.l2_squared, [factor](MassInterval& sum) {
    sum = {sum.lower / factor / factor, sum.upper / factor / factor};
  });
  return result;
}

ZoneMass& ZoneMass::operator+=(const ZoneMass& other) {
  const auto add_sums = [](ZoneSums& sums, const ZoneSums& more) {
    sums.total = sums.total + more.total;
    for (std::size_t z = 0; z < Zone::count; ++z) {
      sums[z].inside = sums[z].inside + more[z].inside;
      sums[z].outside = sums[z].outside + more[z].outside;
    }
  };
  add_sums(l1, other.l1);
  add_sums(l2_squared, other.l2_squared);
  return *this;
}

DirectionSums direction_sums(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  const ZoneEdges<Binary32> format_edges = edges_of("direction_sums", range, scale);
  const double half_spacing = upper_edge(Zone::lost, range, scale);  // for subnormals, in recorded units
  const double unit_roundoff = std::ldexp(1.0, -range.precision);
  DirectionSums sums;
  sums.overflows = histogram.infinite + histogram.nan > 0;
  sums.may_overflow = sums.overflows;
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    const int e = bin + ExponentHistogram::min_exponent;
    const double low = mass_detail::low_end(e, histogram.greatest != 0), high = mass_detail::high_end(e);
    const auto [first, last, at_first, at_last] = zones_of_bin(histogram, bin, format_edges);
    sums.may_overflow = sums.may_overflow || last == Zone::overflow;
    sums.overflows = sums.overflows || first == Zone::overflow || (last == Zone::overflow && at_last > 0);
    const bool all_lost = last == Zone::lost, some_lost = first == Zone::lost;
    const double lost_top = std::min(high, half_spacing);
    if (some_lost) add(sums.lost, all_lost ? n * (low * low) : 0, n * (lost_top * lost_top));
    if (!all_lost) add(sums.kept, some_lost ? 0 : n * (low * low), n * (high * high));
    // The largest error of a value of this bin. It grows with the magnitude: x itself, then half a spacing,
    // then a fraction of x; the last two are equal at the smallest normal number. A ratio (A + d^2) / (B +
    // x^2) that is at most 1 is largest for the largest error and the smallest magnitude, which is no smaller
    // than the error.
    const double error = all_lost                  ? high
                         : last == Zone::subnormal ? half_spacing
                                                   : std::max(half_spacing, unit_roundoff * high);
    sums.error_squared += n * (error * error);
    sums.norm_squared += n * std::max(low * low, error * error);
  }
  widen_outward(sums.lost);
  widen_outward(sums.kept);
  sums.error_squared *= 1 + mass_detail::outward;
  return sums;
}

DirectionSums DirectionSums::divided_by(double factor) const {
  DirectionSums result = *this;
  for (MassInterval* const sum : {&result.lost, &result.kept})
    *sum = {sum->lower / factor / factor, sum->upper / factor / factor};
  result.error_squared = error_squared / factor / factor;
  result.norm_squared = norm_squared / factor / factor;
  return result;
}

DirectionSums& DirectionSums::operator+=(const DirectionSums& other) {
  lost = lost + other.lost;
  kept = kept + other.kept;
  error_squared += other.error_squared;
  norm_squared += other.norm_squared;
  may_overflow = may_overflow || other.may_overflow;
  overflows = overflows || other.overflows;
  return *this;
}

MassInterval DirectionSums::cosine() const {
  if (overflows) return {0, 0};
  if (kept.upper == 0) return lost.upper == 0 ? MassInterval{1, 1} : MassInterval{0, 0};
  // 1 - x rounds once, by at most 2^-53; the root halves what is left.
  constexpr double nudge = 0x1p-50;
  const double lost_share = mass_detail::share(lost, kept).lower;
  const double error_share = std::min(1.0, error_squared / norm_squared * (1 + mass_detail::outward));
  return {may_overflow ? 0.0 : std::sqrt(1 - error_share) * (1 - nudge),
          std::min(1.0, std::sqrt(1 - lost_share) * (1 + nudge))};
}

}  // namespace fp16lab
