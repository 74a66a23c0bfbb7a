// How large the updates of weights are, and what FP16 weights would make of them.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::experiments {

/// Counts over all weights (no biases) and all observed steps. A weight's update is the difference of the
/// stored weight behind and before the step, which is exact to half an ulp of the stored type.
struct UpdateStudy {
  std::uint64_t elements = 0;
  ExponentHistogram updates;    ///< magnitudes of the differences; zero: the stored weight did not move
  std::uint64_t too_small = 0;  ///< updates that FP16 rounds to zero by themselves: 0 < |u| <= 2^-25
  /// Updates that FP16 holds, but that fp16(w) + fp16(u), rounded to nearest even, loses: fp16(w) again.
  std::uint64_t absorbed = 0;
  std::uint64_t steps = 0;  ///< observed ones

  std::uint64_t moved() const { return updates.finite_nonzero(); }
};

/// Trains to the end in this process and looks at every `every`-th step, the first included.
/// CommandError(interrupted) after Ctrl-C where catch_interrupts() was called.
UpdateStudy study_updates(const RunConfig& config, std::uint64_t every, int threads);

}  // namespace fp16lab::experiments
