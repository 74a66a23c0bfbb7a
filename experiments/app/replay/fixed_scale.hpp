// One fixed loss scale on every recorded step of a run: is a suggestion that was made of one step good for
// the others?
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "experiments/app/replay/recorded_run.hpp"

namespace fp16lab::experiments {

struct FixedScaleReplay {
  int log2_scale = 0;
  std::uint64_t steps = 0;  ///< that have histograms
  std::uint64_t overflows =
      0;  ///< in which gradients surely overflow (experiments/app/replay/step_outcome.hpp)
  std::uint64_t unknown = 0;  ///< in which they may
  std::uint64_t first = 0;    ///< number of the first step of either kind; 0: there is none
  std::uint64_t first_certain = 0, first_unknown = 0;
  bool first_unknown_not_finite = false;  ///< it held Inf or NaN at the scale that it was recorded at
  /// The largest log2 of a scale, not above log2_scale, at which no recorded step overflows or may; nothing:
  /// not even 2^lowest_fixed_exponent.
  std::optional<int> highest;
  /// The same for steps that surely overflow.
  std::optional<int> highest_not_certain;
  /// In which the gradients were held that can overflow, ascending.
  std::set<DType> formats{};
  bool rows_missing = false;  ///< the folder lacks rows that its run wrote

  bool holds() const { return overflows + unknown == 0; }
  /// What to take for the whole run: a scale that is surely right, else one that is not certainly wrong.
  std::optional<int> for_run() const { return highest ? highest : highest_not_certain; }
};

inline constexpr int lowest_fixed_exponent = -24;

/// Reads the run's histograms once. std::runtime_error as RecordedRun::for_each_step.
FixedScaleReplay replay_fixed_scale(const RecordedRun& run, int log2_scale);

/// "over all 12 recorded steps", or "over the 12 steps whose rows are there (some are missing or changed)".
std::string over_steps(std::uint64_t steps, bool rows_missing);
/// "Replayed in FP16 over all 12 recorded steps: at 2^10 no gradient overflows in any of them." and what
/// would be right where one does.
std::string sentence(const FixedScaleReplay& replay);

}  // namespace fp16lab::experiments
