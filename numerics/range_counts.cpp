#include "numerics/range_counts.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "numerics/bits.hpp"
#include "numerics/round_pack.hpp"

namespace fp16lab {
namespace {

using Wide = unsigned __int128;

/// A positive number, its significand shifted up until the leading one is the highest bit: comparing
/// exponents, then significands, compares numbers. The product of an FP32 number and an FP64 scale has at
/// most 77 bits, so it fits.
struct Positive {
  int leading_exponent;
  Wide significand;

  /// significand * 2^exponent, significand not zero.
  static constexpr Positive from(Wide significand, int exponent) {
    Positive x{exponent + 127, significand};
    while ((x.significand >> 127) == 0) {
      x.significand <<= 1;
      --x.leading_exponent;
    }
    return x;
  }
  friend constexpr bool operator<(const Positive& a, const Positive& b) {
    return a.leading_exponent != b.leading_exponent ? a.leading_exponent < b.leading_exponent
                                                    : a.significand < b.significand;
  }
};

enum Zone : std::size_t { lost, subnormal, normal, overflow, zone_count };

// The edges of the zones, from the format: half of the smallest subnormal, the smallest normal number, and
// the midpoint between the largest finite number and the next one that an unbounded exponent would allow.
constexpr Positive tie_to_zero = Positive::from(1, Binary16::exponent_of_min_subnormal - 1);
constexpr Positive smallest_normal = Positive::from(1, Binary16::emin);
constexpr unsigned overflow_significand = (1u << (Binary16::precision + 1)) - 1;
constexpr int overflow_exponent = Binary16::emax - Binary16::precision;
constexpr Positive overflow_threshold = Positive::from(overflow_significand, overflow_exponent);
static_assert(overflow_significand << overflow_exponent == 65520);

Zone zone_of(const Positive& y) {
  if (!(tie_to_zero < y)) return lost;
  if (y < smallest_normal) return subnormal;
  return y < overflow_threshold ? normal : overflow;
}

Positive product(std::uint32_t fp32_magnitude, const Exact& scale) {
  const Exact x = decode(SmallFloat<Binary32>::from_bits(fp32_magnitude));
  return Positive::from(static_cast<Wide>(x.significand) * scale.significand, x.exponent + scale.exponent);
}

Exact decode_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw std::invalid_argument(
        fmt::format("count_ranges: scale is {}; a finite number above zero is needed", scale));
  return decode(SmallFloat<Binary64>::from_bits(bits_of(scale)));
}

}  // namespace

RangeCounts count_ranges(const ExponentHistogram& histogram, double scale) {
  const Exact exact_scale = decode_scale(scale);
  std::array<CountInterval, zone_count> zones{};
  for (std::uint32_t bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[bin];
    if (count == 0) continue;
    // The smallest and the largest FP32 number of the bin. Zones are ordered as magnitudes are, so if both
    // ends lie in one zone all values do; otherwise any of the zones between may hold any part of the bin.
    const std::uint32_t smallest = (bin << Binary32::fraction_bits) + 1;
    const std::uint32_t largest =
        bin + 1 == ExponentHistogram::bin_count ? Binary32::max_finite : (bin + 1) << Binary32::fraction_bits;
    const Zone first = zone_of(product(smallest, exact_scale));
    const Zone last = zone_of(product(largest, exact_scale));
    for (std::size_t zone = first; zone <= last; ++zone) zones[zone].upper += count;
    if (first == last) zones[first].lower += count;
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

double underflow_rate(const ExponentHistogram& histogram, double scale) {
  const CountInterval lost = count_ranges(histogram, scale).lost;
  const std::uint64_t values = histogram.finite_nonzero();
  if (values == 0) return 0.0;
  return 0.5 * (static_cast<double>(lost.lower) + static_cast<double>(lost.upper)) /
         static_cast<double>(values);
}

}  // namespace fp16lab
