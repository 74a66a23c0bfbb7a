// What policies read from the counts of a step. Host and device.
//
// A histogram knows a magnitude to a binade: that it is in (2^e, 2^(e+1)]. Policies that ask for the largest
// one get the upper edge of its bin, which is on the safe side: the scale that they choose is at most a
// binade too low.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/amp/observation.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

/// No finite value but zero.
inline constexpr int no_magnitude = std::numeric_limits<std::int32_t>::min();

/// The e for which every finite value is at most 2^e, and one is above 2^(e-1); no_magnitude where all are
/// zero.
FP16LAB_HD constexpr int upper_exponent(const ExponentHistogram& histogram) {
  for (int e = ExponentHistogram::max_exponent; e >= ExponentHistogram::min_exponent; --e)
    if (histogram.at(e) != 0) return e + 1;
  return no_magnitude;
}
FP16LAB_HD constexpr int upper_exponent(const GradientStatistics& statistics) {
  const int weight = upper_exponent(statistics.weight), activation = upper_exponent(statistics.activation);
  return weight > activation ? weight : activation;
}

/// floor(log2(scale)), for a normal FP64 number above zero.
FP16LAB_HD constexpr int floor_log2(double scale) {
  return static_cast<int>((bits_of(scale) & Binary64::magnitude_mask) >> Binary64::fraction_bits) -
         Binary64::bias;
}
/// 2^exponent, for -1022 <= exponent <= 1023.
FP16LAB_HD constexpr double exact_power_of_two(int exponent) {
  return double_from_bits(static_cast<std::uint64_t>(exponent + Binary64::bias) << Binary64::fraction_bits);
}

/// The range that a step's gradients were stored in; FP16's where nothing was counted.
FP16LAB_HD constexpr FormatRange range_of(const Observation& observation) {
  if (observation.statistics == nullptr) return FormatRange::of<Binary16>();
  return observation.statistics->range;
}
/// The end of a format: magnitudes up to 2^(end_exponent - 1) are all finite in it; those up to twice that
/// are but for the last few. 16 in FP16, 128 in BF16.
FP16LAB_HD constexpr int end_exponent(const FormatRange& range) { return range.largest_exponent() + 1; }
static_assert(end_exponent(fp16_range) == 16);

}  // namespace fp16lab::engine::amp
