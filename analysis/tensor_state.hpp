// What is wrong with a tensor in a format, which tensors are the worst, and what changes from step to step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/format_fit.hpp"
#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

/// What casts made of the values of a tensor, or what a format would make of them at a scale.
struct TensorState {
  std::string name;
  std::optional<std::uint64_t> step{};  ///< for several steps: the one in which it is worst
  RangeCounts counts{};
  FitSums fit{};
  /// Magnitudes of the finite values without a loss scale, where they are known.
  std::optional<ScaledHistograms::Magnitudes> magnitudes{};

  std::uint64_t nonfinite() const { return counts.infinite + counts.nan; }
  /// Is more wrong here than there? Inf and NaN first, then what overflows, then a rounding error beyond
  /// fit_limit, then what becomes zero; between bounds the greater one counts.
  bool worse_than(const TensorState& other) const;
};

/// The state of one entry of a report.
TensorState state_of(const RangeReport& report, const std::string& entry, const FormatRange& range,
                     std::optional<double> scale);
/// One for each tensor, the worst first; equal ones in the report's order. Where the entries of a report are
/// steps (RangeReport::is_step), each tensor in its worst step. `scale`: none: as in
/// ScaledHistograms::at_scale.
std::vector<TensorState> states_of(const RangeReport& report, const FormatRange& range,
                                   std::optional<double> scale);

/// The greatest finite magnitudes of a tensor in two steps that follow each other, without the loss scale.
struct StepChange {
  std::string tensor;
  std::uint64_t from = 0, to = 0;
  double before = 0, after = 0;
  /// How many times as large the larger one is; infinite beside a 0.
  double ratio() const;
};
/// Smaller changes are not reported.
inline constexpr double least_told_change = 2;
/// Each tensor's greatest change, if it is at least least_told_change; the greatest first. Only for entries
/// that are steps, and where magnitudes are known.
std::vector<StepChange> step_changes(const RangeReport& report);

}  // namespace fp16lab::analysis
