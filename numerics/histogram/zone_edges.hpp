// In which zone of a format the values of a bin land after multiplication by a scale, decided exactly.
// Internal to numerics/: everyone else uses zones.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::zone_detail {

using Wide = unsigned __int128;

/// A positive number, its significand shifted up until the leading one is the highest bit: comparing
/// exponents, then significands, compares numbers. The product of an FP32 number and an FP64 scale has at
/// most 77 bits, so it fits.
struct Positive {
  int leading_exponent;
  Wide significand;

  /// significand * 2^exponent, significand not zero.
  static constexpr Positive from(Wide significand, int exponent) {
    const auto high = static_cast<std::uint64_t>(significand >> 64);
    const int width = high != 0 ? 64 + bit_width(high) : bit_width(static_cast<std::uint64_t>(significand));
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the analyser does not know bit_width
    return {exponent + width - 1, significand << (128 - width)};
  }
  friend constexpr bool operator<(const Positive& a, const Positive& b) {
    return a.leading_exponent != b.leading_exponent ? a.leading_exponent < b.leading_exponent
                                                    : a.significand < b.significand;
  }
};

enum Zone : std::size_t { lost, subnormal, normal, overflow, zone_count };

/// The edges of a format's zones.
class Edges {
 public:
  explicit constexpr Edges(const FormatRange& range)
      : tie_to_zero_(Positive::from(1, range.tie_to_zero)),
        smallest_normal_(Positive::from(1, range.smallest_normal)),
        overflow_(Positive::from(range.overflow_significand, range.overflow_exponent)),
        threshold_overflows_(range.threshold_overflows) {}

  constexpr Zone zone_of(const Positive& y) const {
    if (!(tie_to_zero_ < y)) return lost;
    if (y < smallest_normal_) return subnormal;
    return y < overflow_ || (!threshold_overflows_ && !(overflow_ < y)) ? normal : overflow;
  }

 private:
  Positive tie_to_zero_, smallest_normal_, overflow_;
  bool threshold_overflows_;
};

/// A finite FP32 magnitude, not zero, times the scale.
inline Positive product(std::uint32_t fp32_magnitude, const Exact& scale) {
  const Exact x = decode(SmallFloat<Binary32>::from_bits(fp32_magnitude));
  return Positive::from(static_cast<Wide>(x.significand) * scale.significand, x.exponent + scale.exponent);
}

/// Zones are ordered as magnitudes are: where `first` and `last` are one zone, all values of the bin are in
/// it; otherwise it and those between may hold any part of the bin, but for the values that are known to be
/// in one.
struct BinZones {
  Zone first;  ///< of the smallest value that the bin may hold
  Zone last;   ///< of the largest
  std::uint64_t
      at_first;  ///< so many values are surely in `first`: where the smallest value of all is in this bin
  std::uint64_t at_last;
};
inline BinZones zones_of_bin(const ExponentHistogram& histogram, int bin, const Exact& scale,
                             const Edges& edges) {
  std::uint32_t low = ExponentHistogram::smallest_of_bin(bin);
  std::uint32_t high = ExponentHistogram::greatest_of_bin(bin);
  bool has_smallest = false, has_greatest = false;
  if (histogram.greatest != 0) {
    has_smallest = ExponentHistogram::bin_of(histogram.smallest) == bin;
    has_greatest = ExponentHistogram::bin_of(histogram.greatest) == bin;
    if (has_smallest) low = histogram.smallest;
    if (has_greatest) high = histogram.greatest;
  } else if (bin == ExponentHistogram::subnormal_bins) {
    low = 1;  // in older folders the lowest bin, which had all of FP32's subnormals
  }
  return {edges.zone_of(product(low, scale)), edges.zone_of(product(high, scale)), has_smallest ? 1u : 0u,
          has_greatest ? 1u : 0u};
}

/// std::invalid_argument that begins with the function's name, unless the scale is finite and above zero.
Exact decode_scale(const char* function, double scale);

}  // namespace fp16lab::zone_detail
