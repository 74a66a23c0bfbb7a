// Which power-of-two loss scale the recorded gradients ask for.
#pragma once

#include <optional>
#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

struct ScaleTargets {
  int headroom_bits = 2;    ///< gradients may still grow by 2^headroom_bits before one overflows
  double lost_rate = 1e-3;  ///< of the finite non-zero gradients of all tensors together, strictly below
};

struct SuggestedScale {
  /// Largest log2 scale with head-room: at 2^headroom_bits times this scale the upper bound of the overflow
  /// count is 0.
  std::optional<int> largest_safe;
  /// Smallest log2 scale at which the lost rate (upper bound) is below the target.
  std::optional<int> smallest_sufficient;
  /// Both answers and why, in plain words, one or two sentences.
  std::string reasoning;

  /// Is there a scale that does both?
  bool both() const { return largest_safe && smallest_sufficient && *smallest_sufficient <= *largest_safe; }
};

/// Looks at the scales 2^min_log2_scale ... 2^max_log2_scale. `targets.lost_rate` in (0, 1], head-room >= 0.
SuggestedScale suggest_scale(const RangeReport& report, const ScaleTargets& targets = {});

}  // namespace fp16lab::analysis
