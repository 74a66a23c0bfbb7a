#include "numerics/histogram/range_counts.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "numerics/formats/bits.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab {
namespace zone_detail {

Exact decode_scale(const char* function, double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw std::invalid_argument(
        fmt::format("{}: scale is {}; a finite number above zero is needed", function, scale));
  return decode(SmallFloat<Binary64>::from_bits(bits_of(scale)));
}

}  // namespace zone_detail

RangeCounts count_ranges(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  using namespace zone_detail;
  const Exact exact_scale = decode_scale("count_ranges", scale);
  const Edges edges(range);
  std::array<CountInterval, zone_count> zones{};
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const BinZones of = zones_of_bin(histogram, bin, exact_scale, edges);
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
  RangeCounts counts;
  counts.zero = histogram.zero;
  counts.infinite = histogram.infinite;
  counts.nan = histogram.nan;
  counts.lost = zones[lost];
  counts.subnormal = zones[subnormal];
  counts.normal = zones[normal];
  counts.overflow = zones[overflow];
  counts.total = histogram.total();
  return counts;
}

double underflow_rate(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  const CountInterval lost = count_ranges(histogram, range, scale).lost;
  const std::uint64_t values = histogram.finite_nonzero();
  if (values == 0) return 0.0;
  return 0.5 * (static_cast<double>(lost.lower) + static_cast<double>(lost.upper)) /
         static_cast<double>(values);
}

}  // namespace fp16lab
