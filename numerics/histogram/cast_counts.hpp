// Recorded rates: the effect of a cast on the values that it stored, whatever its format and rounding. Read
// from the counts on both sides of it. (What another format or scale would do: zones.hpp.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

/// Additive over casts.
struct CastCounts {
  std::uint64_t values = 0;     ///< finite and not zero before the cast
  std::uint64_t underflow = 0;  ///< those among them zero after it
  std::uint64_t overflow = 0;   ///< those among them infinite or NaN after it

  /// Share of `values`; 0 where there were none.
  double underflow_rate() const {
    return values == 0 ? 0.0 : static_cast<double>(underflow) / static_cast<double>(values);
  }

  CastCounts& operator+=(const CastCounts& other) {
    values += other.values;
    underflow += other.underflow;
    overflow += other.overflow;
    return *this;
  }
  bool operator==(const CastCounts&) const = default;
};

/// The counts of one cast. Zeros and non-finite values from before it stay what they are and do not count. (A
/// saturating cast may make infinities finite: then nothing overflowed.)
inline CastCounts cast_counts(const ExponentHistogram& before, const ExponentHistogram& after) {
  const auto rise = [](std::uint64_t from, std::uint64_t to) { return to - std::min(from, to); };
  return {.values = before.finite_nonzero(),
          .underflow = rise(before.zero, after.zero),
          .overflow = rise(before.infinite + before.nan, after.infinite + after.nan)};
}

/// The counts of values that were stored as `dtype`; none for FP32, where there is no cast. `watched`:
/// lab.watch counted them in a training run of PyTorch's, which rounds inside of its operations. Counts that
/// are the same on both sides are then those of stored values, whose cast lab.watch did not see: none.
inline std::optional<CastCounts> cast_counts(DType dtype, const ExponentHistogram& before,
                                             const ExponentHistogram& after, bool watched = false) {
  if (dtype == DType::f32 || (watched && before == after)) return std::nullopt;
  return cast_counts(before, after);
}

}  // namespace fp16lab
