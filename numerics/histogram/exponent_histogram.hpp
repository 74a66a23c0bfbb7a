// Counting of FP32 magnitudes by binary exponent.
//
// Bin e holds the magnitudes in (2^e, 2^(e+1)]: half open at the *bottom*, because rounding to nearest even
// sends |x| <= 2^-25 to zero in FP16 (the tie included). With this choice "lost at scale 2^k" is an exact sum
// of bins: the ties of all formats, at any power-of-two scale, are edges of bins down to FP32's smallest
// number. The bin of a normal x is the exponent field of (magnitude bits - 1), never a logarithm. Zero,
// infinity and NaN have counters of their own, and the smallest and the greatest magnitude are kept as they
// are: whether a value overflows at a scale is then certain. Merging two histograms is addition.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

struct ExponentHistogram {
  static constexpr int min_exponent =
      -150;  ///< the lowest bin is (2^-150, 2^-149]: FP32's smallest number alone
  static constexpr int max_exponent = 127;  ///< the highest bin is (2^127, max_finite]
  static constexpr int bin_count = max_exponent - min_exponent + 1;
  /// The bin (2^-127, 2^-126], where the exponent field takes over.
  static constexpr int subnormal_bins = 23;

  std::array<std::uint64_t, bin_count> bins{};
  std::uint64_t zero = 0;
  std::uint64_t infinite = 0;
  std::uint64_t nan = 0;
  /// FP32 bits, without sign, of the smallest and the greatest finite magnitude that is not zero. 0: there is
  /// none, or it is not known.
  std::uint32_t smallest = 0;
  std::uint32_t greatest = 0;

  /// Index into `bins` of a finite non-zero magnitude given as FP32 bits without sign (1 .. 0x7f7fffff).
  FP16LAB_HD static constexpr int bin_of(std::uint32_t magnitude_bits) {
    const std::uint32_t below = magnitude_bits - 1u;
    const auto field = static_cast<int>(below >> Binary32::fraction_bits);
    return field == 0 ? bit_width(std::uint64_t{below}) : field + subnormal_bins;
  }
  /// FP32 bits of the smallest number of a bin, and of the greatest.
  FP16LAB_HD static constexpr std::uint32_t smallest_of_bin(int bin) {
    return bin == 0 ? 1u : greatest_of_bin(bin - 1) + 1u;
  }
  FP16LAB_HD static constexpr std::uint32_t greatest_of_bin(int bin) {
    if (bin <= subnormal_bins) return std::uint32_t{1} << bin;
    const std::uint32_t power = static_cast<std::uint32_t>(bin - subnormal_bins + 1)
                                << Binary32::fraction_bits;
    return power < Binary32::infinity ? power : Binary32::max_finite;
  }

  /// Adds a value. The extremes must be known.
  FP16LAB_HD constexpr void count(std::uint32_t fp32_bits) {
    const std::uint32_t magnitude = fp32_bits & Binary32::magnitude_mask;
    if (magnitude == 0) {
      ++zero;
    } else if (magnitude < Binary32::infinity) {
      ++bins[static_cast<std::size_t>(bin_of(magnitude))];
      include(magnitude, magnitude);
    } else if (magnitude == Binary32::infinity) {
      ++infinite;
    } else {
      ++nan;
    }
  }
  /// Widens known extremes to hold two magnitudes, as FP32 bits; 0: nothing.
  FP16LAB_HD constexpr void include(std::uint32_t low, std::uint32_t high) {
    if (smallest == 0 || (low != 0 && low < smallest)) smallest = low;
    if (high > greatest) greatest = high;
  }

  /// Count of the bin (2^exponent, 2^(exponent+1)]; 0 outside the stored range.
  FP16LAB_HD constexpr std::uint64_t at(int exponent) const {
    if (exponent < min_exponent || exponent > max_exponent) return 0;
    return bins[static_cast<std::size_t>(exponent - min_exponent)];
  }

  std::uint64_t finite_nonzero() const;
  /// Are `smallest` and `greatest` those of the values that were counted? (They are where nothing was. They
  /// are not in the counts of older run folders, nor of FP64 arrays.)
  bool extremes_known() const { return greatest != 0 || finite_nonzero() == 0; }
  void forget_extremes() { smallest = greatest = 0; }
  std::uint64_t total() const { return finite_nonzero() + zero + infinite + nan; }

  /// The extremes of the sum are known where both are.
  ExponentHistogram& operator+=(const ExponentHistogram& other);
  bool operator==(const ExponentHistogram&) const = default;
};

/// The counts of the values times 2^shift: bins move. What leaves FP32's range counts as infinite at the top
/// and as zero at the bottom, and extremes are then not known; an extreme that becomes subnormal is rounded
/// up within its bin.
ExponentHistogram times_power_of_two(const ExponentHistogram& histogram, int shift);

/// Adds every element to `histogram`. Vectorised where the CPU can; `threads` (at least 1, otherwise
/// std::invalid_argument) changes speed, never counts.
void count_exponents(std::span<const float> values, ExponentHistogram& histogram, int threads = 1);
void count_exponents(std::span<const Float16> values, ExponentHistogram& histogram, int threads = 1);
void count_exponents(std::span<const BFloat16> values, ExponentHistogram& histogram, int threads = 1);

/// count_exponents of `from` and narrow (numerics/convert/convert.hpp) of `from` to `to` in one pass over
/// memory: the counts and codes of the two calls. To is a format narrower than FP32.
template <class To>
void narrow_and_count(std::span<const float> from, std::span<SmallFloat<To>> to, ExponentHistogram& histogram,
                      const ArithmeticOptions& options = {}, int threads = 1);
/// Rounding to nearest even, counted on both sides: `after` counts what was stored.
void narrow_and_count(std::span<const float> from, std::span<Float16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads = 1);
void narrow_and_count(std::span<const float> from, std::span<BFloat16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads = 1);

}  // namespace fp16lab
