// Which power-of-two loss scale gradients need in a format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

/// So many powers of two on both sides of 1 that fit as well: then no loss scale is needed.
inline constexpr int room_of_none = 8;
/// If no scale suits all, the suggestion leaves so many bits before the first overflow.
inline constexpr int room_before_overflow = 2;
/// Where they fit, more headroom than this would only cost small values their bits.
inline constexpr int most_room_above = 8;

/// Exact for values that carry a power of two, bounded from counts for others: a scale reported to fit does
/// fit, and the true range may be wider.
struct SuggestedScale {
  /// log2 of the smallest scale at which rounding is harmless to every tensor (FitSums::is_precise), and of
  /// the largest at which nothing overflows. Neither where no scale does so. What rounding costs never grows
  /// with the scale, and what overflows never shrinks, so every tensor fits from the one to the other, if
  /// they are in that order.
  std::optional<int> least, greatest;
  /// The tensors that no smaller, and no larger, scale suits. "" where there is one tensor, or the last scale
  /// that is looked at will do.
  std::string asks_most, overflows_first;
  /// A tensor with an Inf or NaN and no finite value but zeros: its needs are unknown, and nothing is
  /// suggested.
  std::string unknown;
  /// Among those that fit, the middle one, or most_room_above below the largest, if that is more; 2^0 if none
  /// is needed. Where none suits all: room_before_overflow below the largest.
  std::optional<int> suggested;
  bool needs_none = false;  ///< 2^0 fits, with room_of_none to both sides
  /// In plain words, a few sentences: the source, if that is one step of a run or only some of the values; how
  /// many tensors hold zeros alone, and so are left out;
  /// which scales fit and why no other does; the suggestion, and how much headroom it leaves.
  std::string reasoning;

  bool fits() const { return least && greatest && *least <= *greatest; }
};

///   RangeReport report;
///   report.add("fc1.weight", counts, 1.0);  // of every tensor, and the loss scale that its values carry
///   std::puts(suggest_scale(report, DType::f16).reasoning.c_str());
///
/// `format`: f32, f16, bf16, e4m3 or e5m2.
SuggestedScale suggest_scale(const RangeReport& report, DType format);
/// The suggestion for one tensor alone, as if it had a scale of its own. `step`: the step of the run that it
/// belongs to.
SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format,
                             std::optional<std::uint64_t> step = {});

}  // namespace fp16lab::analysis
