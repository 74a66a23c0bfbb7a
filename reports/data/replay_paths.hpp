// What a replay says of loss scales, as paths that can be drawn.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/data/series.hpp"

namespace fp16lab::reports {

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
