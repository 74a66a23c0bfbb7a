// Counting of FP32 magnitudes by binary exponent.
//
// Bin e holds the magnitudes in (2^e, 2^(e+1)]: half open at the *bottom*, because rounding to nearest even
// sends |x| <= 2^-25 to zero in FP16 (the tie included). With this choice "lost at scale 2^k" is an exact sum
// of bins. The bin of x is the exponent field of (magnitude bits - 1), never a logarithm. Zero, infinity and
// NaN have counters of their own. Merging two histograms is addition.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "numerics/portability.hpp"
#include "numerics/rounding.hpp"
#include "numerics/small_float.hpp"

namespace fp16lab {

struct ExponentHistogram {
  /// Exponent of the lowest bin. It is (0, 2^-126], i.e. it also holds every FP32 subnormal.
  static constexpr int min_exponent = -127;
  static constexpr int max_exponent = 127;  ///< the highest bin is (2^127, max_finite]
  static constexpr int bin_count = max_exponent - min_exponent + 1;

  std::array<std::uint64_t, bin_count> bins{};
  std::uint64_t zero = 0;
  std::uint64_t infinite = 0;
  std::uint64_t nan = 0;

  /// Index into `bins` of a finite non-zero magnitude given as FP32 bits without sign (1 .. 0x7f7fffff).
  FP16LAB_HD static constexpr int bin_of(std::uint32_t magnitude_bits) {
    return static_cast<int>((magnitude_bits - 1u) >> Binary32::fraction_bits);
  }

  FP16LAB_HD constexpr void count(std::uint32_t fp32_bits) {
    const std::uint32_t magnitude = fp32_bits & Binary32::magnitude_mask;
    if (magnitude == 0)
      ++zero;
    else if (magnitude < Binary32::infinity)
      ++bins[static_cast<std::size_t>(bin_of(magnitude))];
    else if (magnitude == Binary32::infinity)
      ++infinite;
    else
      ++nan;
  }

  /// Count of the bin (2^exponent, 2^(exponent+1)]; 0 outside the stored range.
  FP16LAB_HD constexpr std::uint64_t at(int exponent) const {
    if (exponent < min_exponent || exponent > max_exponent) return 0;
    return bins[static_cast<std::size_t>(exponent - min_exponent)];
  }

  std::uint64_t finite_nonzero() const;
  std::uint64_t total() const { return finite_nonzero() + zero + infinite + nan; }

  ExponentHistogram& operator+=(const ExponentHistogram& other);
  bool operator==(const ExponentHistogram&) const = default;
};

/// Adds every element to `histogram`. Vectorised where the CPU can; `threads` (at least 1, otherwise
/// std::invalid_argument) changes speed, never counts.
void count_exponents(std::span<const float> values, ExponentHistogram& histogram, int threads = 1);
void count_exponents(std::span<const Float16> values, ExponentHistogram& histogram, int threads = 1);
void count_exponents(std::span<const BFloat16> values, ExponentHistogram& histogram, int threads = 1);

/// count_exponents of `from` and narrow (numerics/convert.hpp) of `from` to `to` in one pass over memory: the counts and
/// codes of the two calls. To is Binary16, BrainFloat16, Fp8E4M3 or Fp8E5M2.
template <class To>
void narrow_and_count(std::span<const float> from, std::span<SmallFloat<To>> to, ExponentHistogram& histogram,
                      const ArithmeticOptions& options = {}, int threads = 1);
/// Rounding to nearest even, counted on both sides: `after` counts what was stored.
void narrow_and_count(std::span<const float> from, std::span<Float16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads = 1);
void narrow_and_count(std::span<const float> from, std::span<BFloat16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads = 1);

}  // namespace fp16lab
