// Who does well in a replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/data/series.hpp"

namespace fp16lab::reports {

/// Made in hindsight, for comparison only: the oracle and the best fixed scale.
bool is_yardstick(const ReplayedPolicy& policy);

/// The share of the gradients' L1 mass that no update used, every step counting alike: a skipped step loses
/// all of it, the others what rounds to zero. One number for two evils, by which the league is ordered.
ReplayInterval unused_share(const ReplayedPolicy& policy, std::uint64_t total_steps);

/// The replayed policies as indices into replay.policies, by the upper end of what no update used; equal ones
/// as in the file.
std::vector<std::size_t> league_order(const ReplayFile& replay);

/// For each policy: no other one has both no more skips and no more lost L1, and less of one. Upper ends of
/// intervals are compared. Yardsticks and policies that were not replayed are never on the front.
std::vector<bool> league_front(const ReplayFile& replay);

// The loss scales of a replay, as paths that can be drawn.

/// A policy's scale: bounds where the histograms leave it open, or the smallest and the largest of its
/// tensors. Change::scale is the binary logarithm here.
struct ReplayPaths {
  ScaleTrace lower,
      upper;        ///< lower.skipped: skipped for certain; upper.skipped: those and the ones that may be
  bool one = true;  ///< both are the same
};

/// Thinned to `stretches` (see thinned()). Infinite logarithms (a scale of 0 or Inf) are left out.
ReplayPaths replay_paths(const ReplayedPolicy& policy, std::size_t stretches);

/// One line of the band of scales that the run allowed, thinned likewise.
ScaleTrace band_path(std::span<const std::uint64_t> steps, std::span<const double> log2_scales,
                     std::size_t stretches);

}  // namespace fp16lab::reports
