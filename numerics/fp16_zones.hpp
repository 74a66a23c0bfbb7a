// In which zone of FP16 the values of a bin land after multiplication by a scale, decided exactly. Internal to
// numerics/: everyone else uses range_counts.hpp and zone_mass.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/exponent_histogram.hpp"
#include "numerics/round_pack.hpp"

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

// The edges of the zones, from the format: half of the smallest subnormal, the smallest normal number, and
// the midpoint between the largest finite number and the next one that an unbounded exponent would allow.
inline constexpr Positive tie_to_zero = Positive::from(1, Binary16::exponent_of_min_subnormal - 1);
inline constexpr Positive smallest_normal = Positive::from(1, Binary16::emin);
inline constexpr unsigned overflow_significand = (1u << (Binary16::precision + 1)) - 1;
inline constexpr int overflow_exponent = Binary16::emax - Binary16::precision;
inline constexpr Positive overflow_threshold = Positive::from(overflow_significand, overflow_exponent);
static_assert(overflow_significand << overflow_exponent == 65520);

inline Zone zone_of(const Positive& y) {
  if (!(tie_to_zero < y)) return lost;
  if (y < smallest_normal) return subnormal;
  return y < overflow_threshold ? normal : overflow;
}

/// A finite FP32 magnitude, not zero, times the scale.
inline Positive product(std::uint32_t fp32_magnitude, const Exact& scale) {
  const Exact x = decode(SmallFloat<Binary32>::from_bits(fp32_magnitude));
  return Positive::from(static_cast<Wide>(x.significand) * scale.significand, x.exponent + scale.exponent);
}

/// Zones are ordered as magnitudes are: where `first` and `last` are one zone, all values of the bin are in it;
/// otherwise it and those between may hold any part of the bin.
struct BinZones {
  Zone first;  ///< of the smallest FP32 number of the bin
  Zone last;   ///< of the largest
};
inline BinZones zones_of_bin(std::uint32_t bin, const Exact& scale) {
  const std::uint32_t smallest = (bin << Binary32::fraction_bits) + 1;
  const std::uint32_t largest =
      bin + 1 == ExponentHistogram::bin_count ? Binary32::max_finite : (bin + 1) << Binary32::fraction_bits;
  return {zone_of(product(smallest, scale)), zone_of(product(largest, scale))};
}

/// std::invalid_argument that begins with the function's name, unless the scale is finite and above zero.
Exact decode_scale(const char* function, double scale);

}  // namespace fp16lab::zone_detail
