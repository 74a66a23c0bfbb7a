// One fixed loss scale on every recorded step of a run: is a suggestion that was made of one step good for the others?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "experiments/replay/recorded_run.hpp"

namespace fp16lab::experiments {

struct FixedScaleReplay {
  int log2_scale = 0;
  std::uint64_t steps = 0;      ///< that have histograms
  std::uint64_t overflows = 0;  ///< in which gradients surely overflow (experiments/replay/step_outcome.hpp)
  std::uint64_t unknown = 0;    ///< in which they may
  std::uint64_t first = 0;      ///< number of the first step of either kind; 0: there is none
  /// The largest log2 of a scale, not above log2_scale, at which no recorded step overflows or may; nothing: not even
  /// 2^lowest_fixed_exponent.
  std::optional<int> highest;

  bool holds() const { return overflows + unknown == 0; }
};

inline constexpr int lowest_fixed_exponent = -24;

/// Reads the run's histograms once. std::runtime_error as RecordedRun::for_each_step.
FixedScaleReplay replay_fixed_scale(const RecordedRun& run, int log2_scale);

/// "Replayed over all 12 recorded steps: at 2^10 nothing overflows in any of them." and what would be right where it does.
std::string sentence(const FixedScaleReplay& replay);

}  // namespace fp16lab::experiments
