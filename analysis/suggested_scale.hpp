// Which power-of-two loss scale gradients ask for in a format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

struct ScaleTargets {
  int headroom_bits =
      max_headroom_bits;    ///< gradients may still grow by 2^headroom_bits before one overflows
  double lost_rate = 1e-3;  ///< of the finite non-zero gradients of all tensors together, strictly below
  /// The share of their L1 that may be lost, strictly below: half a unit in the last place of FP16, which
  /// rounding to it may change anyway. The same for all formats, so that they can be compared.
  double lost_l1 = 0x1p-11;
};

struct SuggestedScale {
  /// Largest log2 scale with head-room: at 2^headroom_bits times this scale the upper bound of the overflow
  /// count is 0.
  std::optional<int> largest_safe;
  /// Smallest log2 scale at which the lost rate (upper bound) is below the target.
  std::optional<int> smallest_sufficient;
  /// Smallest log2 scale at which the lost share of L1 (upper bound) is below its target: what vanishes may
  /// be many values and yet little of the gradient.
  std::optional<int> smallest_sufficient_l1;
  /// Of a report: the smallest log2 scale at which each tensor loses less than that target of its own L1,
  /// and the tensor that asks for it (where there is no such scale: that has none); "" if 2^min_log2_scale
  /// will do. A tensor of small gradients may be lost whole where it is nothing of the L1 of all. Of one
  /// tensor alone as smallest_sufficient_l1, and "".
  std::optional<int> smallest_sufficient_each;
  std::string asks_most;
  /// The scale to fix: the largest with head-room. What is lost never grows with the scale, so no other scale
  /// that keeps the head-room loses less.
  std::optional<int> suggested;
  /// `suggested` is the last scale that was looked at: a larger one may fit as well.
  bool at_edge = false;
  /// In plain words, a few sentences: what they are of, if that is one step of a run or only some of the
  /// values; the range of scales that lose little of L1 and leave head-room, for all tensors together and for
  /// each on its own; what is suggested.
  std::string reasoning;

  /// Is there a scale with head-room that loses little of L1?
  bool fits() const {
    return largest_safe && smallest_sufficient_l1 && *smallest_sufficient_l1 <= *largest_safe;
  }
  /// Is there one with head-room at which each tensor loses little of its own?
  bool fits_each() const {
    return largest_safe && smallest_sufficient_each && *smallest_sufficient_each <= *largest_safe;
  }
};

///   RangeReport report;
///   report.add("fc1.weight", counts, 1.0);  // of every tensor, and the loss scale that its values carry
///   std::puts(suggest_scale(report, DType::f16).reasoning.c_str());
///
/// Looks at the scales 2^min_log2_scale ... 2^max_log2_scale in `format`: f32, f16, bf16, e4m3 or e5m2.
/// `targets.lost_rate` and `lost_l1` in (0, 1], head-room >= 0, and <= max_headroom_bits where values are at
/// hand (std::invalid_argument).
SuggestedScale suggest_scale(const RangeReport& report, DType format, const ScaleTargets& targets = {});
/// The suggestion for one tensor alone, as if it had a scale of its own. `step`: the step of the run that it
/// belongs to.
SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format,
                             const ScaleTargets& targets = {}, std::optional<std::uint64_t> step = {});

}  // namespace fp16lab::analysis
