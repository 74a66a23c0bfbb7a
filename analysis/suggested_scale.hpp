// Which power-of-two loss scale the recorded gradients ask for.
#pragma once

#include <optional>
#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

struct ScaleTargets {
  int headroom_bits = 2;    ///< gradients may still grow by 2^headroom_bits before one overflows
  double lost_rate = 1e-3;  ///< of the finite non-zero gradients of all tensors together, strictly below
  /// Of their L1, strictly below: half a unit in the last place of FP16, which rounding may change anyway.
  double lost_l1 = 0x1p-11;
};

struct SuggestedScale {
  /// Largest log2 scale with head-room: at 2^headroom_bits times this scale the upper bound of the overflow
  /// count is 0.
  std::optional<int> largest_safe;
  /// Smallest log2 scale at which the lost rate (upper bound) is below the target.
  std::optional<int> smallest_sufficient;
  /// Smallest log2 scale at which the lost share of L1 (upper bound) is below its target: what vanishes may be many
  /// values and yet little of the gradient.
  std::optional<int> smallest_sufficient_l1;
  /// Of a scale to be fixed: the largest with head-room. What is lost never grows with the scale, so no other scale that
  /// keeps the head-room loses less.
  std::optional<int> suggested;
  /// The answers and why, in plain words, a few sentences.
  std::string reasoning;

  /// Is there a scale with head-room that loses few values?
  bool both() const { return largest_safe && smallest_sufficient && *smallest_sufficient <= *largest_safe; }
};

/// Looks at the scales 2^min_log2_scale ... 2^max_log2_scale. `targets.lost_rate` and `lost_l1` in (0, 1], head-room
/// >= 0.
SuggestedScale suggest_scale(const RangeReport& report, const ScaleTargets& targets = {});
/// Of one tensor alone, as if it had a scale of its own.
SuggestedScale suggest_scale(const ScaledHistograms& gradients, const ScaleTargets& targets = {});

}  // namespace fp16lab::analysis
