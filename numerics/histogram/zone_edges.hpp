// In which zone of a format a number lands after multiplication by a scale, decided exactly. The one place
// that decides it: the counts of zones.hpp and value_histogram.hpp, what policies read (range_mass.hpp),
// analysis and figures use it. The report page's zones.js has lines of its own, which a test compares with
// these.
//
// Host and device, no allocation, no exceptions. `scale` is finite and above zero throughout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// Zones in the order of magnitudes; zones.hpp defines them.
struct Zone {
  enum Index : std::size_t { lost, subnormal, normal, overflow, count };
};

namespace zone_detail {

__extension__ using Wide = unsigned __int128;

/// A positive number, its significand shifted up until the leading one is the highest bit: comparing
/// exponents, then significands, compares numbers. The product of an FP64 number and an FP64 scale has at
/// most 106 bits, so it fits.
struct Positive {
  int leading_exponent;
  Wide significand;

  /// significand * 2^exponent, significand not zero.
  FP16LAB_HD static constexpr Positive from(Wide significand, int exponent) {
    const auto high = static_cast<std::uint64_t>(significand >> 64);
    const int width = high != 0 ? 64 + bit_width(high) : bit_width(static_cast<std::uint64_t>(significand));
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the analyser does not know bit_width
    return {exponent + width - 1, significand << (128 - width)};
  }
  FP16LAB_HD friend constexpr bool operator<(const Positive& a, const Positive& b) {
    return a.leading_exponent != b.leading_exponent ? a.leading_exponent < b.leading_exponent
                                                    : a.significand < b.significand;
  }
};

/// Is y in `zone`, which is not the last one, or in one below it?
FP16LAB_HD constexpr bool is_within(Zone::Index zone, const FormatRange& range, const Positive& y) {
  if (zone == Zone::lost) return !(Positive::from(1, range.tie_to_zero) < y);
  if (zone == Zone::subnormal) return y < Positive::from(1, range.smallest_normal);
  const Positive threshold = Positive::from(range.overflow_significand, range.overflow_exponent);
  return y < threshold || (!range.threshold_overflows && !(threshold < y));
}

/// std::invalid_argument that begins with the function's name, unless the scale is finite and above zero.
/// Host only.
void check_scale(const char* function, double scale);

}  // namespace zone_detail

/// The bits of the last magnitude of format F (Binary32 or Binary64) that lands in `zone`, which is not the
/// last one, or in one below it; 0: none does. Found by bits, whose order is that of magnitudes.
template <class F>
FP16LAB_HD constexpr typename F::Bits last_within(Zone::Index zone, const FormatRange& range, double scale) {
  const Exact s = decode(SmallFloat<Binary64>::from_bits(bits_of(scale)));
  typename F::Bits within = 0, beyond = F::infinity;
  while (beyond - within > 1) {
    const typename F::Bits middle = within + (beyond - within) / 2;
    const Exact x = decode(SmallFloat<F>::from_bits(middle));
    const auto product = zone_detail::Positive::from(
        static_cast<zone_detail::Wide>(x.significand) * s.significand, x.exponent + s.exponent);
    (zone_detail::is_within(zone, range, product) ? within : beyond) = middle;
  }
  return within;
}

/// The edges of a format's zones at a scale, among the numbers of format F.
template <class F>
class ZoneEdges {
 public:
  using Bits = typename F::Bits;

  constexpr ZoneEdges(const FormatRange& range, double scale)
      : last_{last_within<F>(Zone::lost, range, scale), last_within<F>(Zone::subnormal, range, scale),
              last_within<F>(Zone::normal, range, scale)} {}

  /// The last numbers of the zones but the last one, as last_within has them.
  constexpr const std::array<Bits, Zone::count - 1>& last() const { return last_; }
  /// The zone of a finite magnitude that is not zero, by its bits.
  constexpr Zone::Index zone_of(Bits magnitude) const {
    std::size_t zone = 0;
    for (const Bits last : last_) zone += last < magnitude ? 1 : 0;
    return static_cast<Zone::Index>(zone);
  }

 private:
  std::array<Bits, Zone::count - 1> last_;
};

/// FP32 bits of the smallest number that a bin may hold. Without extremes the counts may be those of an older
/// folder, in which all of FP32's subnormals are in the bin (2^-127, 2^-126].
FP16LAB_HD constexpr std::uint32_t smallest_in_bin(int bin, bool extremes) {
  return bin == ExponentHistogram::subnormal_bins && !extremes ? 1u : ExponentHistogram::smallest_of_bin(bin);
}

/// Where `first` and `last` are one zone, all values of the bin are in it; otherwise it and those between may
/// hold any part of the bin, but for the values that are known to be in one.
struct BinZones {
  Zone::Index first;  ///< zone of the smallest value that the bin may hold
  Zone::Index last;   ///< zone of the largest
  std::uint64_t
      at_first;  ///< so many values are surely in `first`: where the smallest value of all is in this bin
  std::uint64_t at_last;
};
constexpr BinZones zones_of_bin(const ExponentHistogram& histogram, int bin,
                                const ZoneEdges<Binary32>& edges) {
  const bool extremes = histogram.greatest != 0;
  const bool has_smallest = extremes && ExponentHistogram::bin_of(histogram.smallest) == bin;
  const bool has_greatest = extremes && ExponentHistogram::bin_of(histogram.greatest) == bin;
  return {edges.zone_of(has_smallest ? histogram.smallest : smallest_in_bin(bin, extremes)),
          edges.zone_of(has_greatest ? histogram.greatest : ExponentHistogram::greatest_of_bin(bin)),
          has_smallest ? 1u : 0u, has_greatest ? 1u : 0u};
}

}  // namespace fp16lab
