// What curves show: losses averaged over short stretches of steps with a band over seeds, and the path of the
// loss scale.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reports/data/quantity.hpp"
#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

/// A curve over steps: the mean over seeds, and the smallest and largest seed. Infinite or NaN losses are
/// left out; a stretch without any finite loss has no point.
struct Band {
  std::vector<double> step;  ///< middle of the stretch
  std::vector<double> mean, low, high;
};

/// Training loss: each seed is averaged over `points` equal stretches of its steps (fewer if there are fewer
/// steps), then mean, minimum and maximum over the seeds are taken.
Band training_loss(const RunSet& set, const Configuration& configuration, std::size_t points = 80);

/// A quantity of the evaluations on `split`, at the steps where it was measured.
Band evaluation_curve(const RunSet& set, const Configuration& configuration, const std::string& split,
                      Quantity quantity);

/// The loss scale as the steps at which it changed, and the steps that were skipped.
struct ScaleTrace {
  struct Change {
    std::uint64_t step = 0;
    double scale = 1;
  };
  std::vector<Change> changes;  ///< first step, every step with another scale than the one before, last step
  std::vector<Change> skipped;  ///< with the scale that was too large
};
ScaleTrace scale_trace(std::span<const StepRow> steps);

/// A path with at most about 2 * `stretches` changes and `stretches` skipped steps: each stretch of steps
/// keeps its smallest and its largest scale and its first skipped step; the path keeps its ends. Short paths
/// stay as they are.
ScaleTrace thinned(ScaleTrace trace, std::size_t stretches);

}  // namespace fp16lab::reports
