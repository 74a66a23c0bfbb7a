// Guards around every policy: floor, ceiling, finite guard, powers of two.
//
// Peers build them into their scalers, each another choice; here each is an option of every policy, whose
// default is what the policy's peer does. They see the scale that the policy decided, after every update.
#pragma once

#include <cstdint>
#include <limits>

#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct Guards {
  double min_scale = 0.0;                                      ///< floor; 0: none
  double max_scale = std::numeric_limits<double>::infinity();  ///< ceiling; infinity: none
  /// A scale that became infinite, zero, or too small to have a finite FP32 reciprocal is not taken: the one
  /// before stays. One that was loaded like that goes to the nearest usable one.
  std::uint32_t finite_guard = 1;
  /// The step uses the power of two at or below the policy's scale, so that scaling and unscaling are exact;
  /// the policy's own state keeps what it decided.
  std::uint32_t round_to_power_of_two = 0;
};

/// Scales that are FP32 numbers with a finite reciprocal other than zero.
inline constexpr double smallest_usable_scale = 0x1p-126;
inline constexpr double largest_usable_scale = 0x1p127;
FP16LAB_HD constexpr bool is_usable_scale(double scale) {
  return scale >= smallest_usable_scale && scale <= largest_usable_scale;
}

/// The scale that an update begins with: what a foreign checkpoint left may be beyond use (flax#2547).
FP16LAB_HD inline double recovered(double scale, const Guards& guards) {
  if (guards.finite_guard == 0 || is_usable_scale(scale)) return scale;
  return scale > largest_usable_scale ? largest_usable_scale : smallest_usable_scale;
}

/// What the policy's state keeps, of `decided`, where it had `before`. A NaN is not usable.
FP16LAB_HD inline double guarded(double before, double decided, const Guards& guards) {
  double scale = decided;
  if (scale < guards.min_scale) scale = guards.min_scale;
  if (scale > guards.max_scale) scale = guards.max_scale;
  // After the bounds: what they bring back into range is taken (flax's floor is the smallest usable scale).
  if (guards.finite_guard != 0 && !is_usable_scale(scale)) scale = before;
  return scale;
}

/// What the step uses of the state's scale.
FP16LAB_HD inline double applied_scale(double scale, const Guards& guards) {
  if (guards.round_to_power_of_two == 0 || !(scale >= smallest_usable_scale)) return scale;
  // The significand's fraction cleared; infinity stays.
  return double_from_bits(bits_of(scale) & ~Binary64::fraction_mask);
}

}  // namespace fp16lab::engine::amp
