// What a step's check and its counts say to a loss-scale policy.
#pragma once

#include <type_traits>

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::engine::amp {

/// The gradients of one step, over all of its tensors and micro-batches, as they were before they were
/// rounded to their stored dtype. They carry S, the scale of that step. Only tensors that were stored in 16
/// bits count: others neither overflow nor vanish. In a step that stored none (level O0) all do, as if FP16
/// were to hold them.
struct GradientStatistics {
  ExponentHistogram weight;        ///< parameters
  ExponentHistogram activation;    ///< all others: layer inputs and outputs
  FormatRange range = fp16_range;  ///< range of that dtype of 16 bits
};
static_assert(std::is_trivially_copyable_v<GradientStatistics>);

/// `scale` is the S of that step, which `statistics` carry: not that of the policy's state where a guard
/// rounds. `statistics` is in the memory of the machine that runs the update. It is null for policies that do
/// not ask for it (their `wants_statistics` is false), and in steps in which nothing was counted.
struct Observation {
  bool found_inf = false;  ///< a gradient of any optimizer was not finite: at least one update is skipped
  const GradientStatistics* statistics = nullptr;
  double scale = 1;
};

}  // namespace fp16lab::engine::amp
