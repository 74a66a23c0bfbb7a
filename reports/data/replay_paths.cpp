#include "reports/data/replay_paths.hpp"

#include <cmath>

namespace fp16lab::reports {
namespace {

/// Entries that say nothing new are left out, the last one stays.
ScaleTrace path_of(std::span<const std::uint64_t> steps, std::span<const double> log2_scales) {
  ScaleTrace path;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite(log2_scales[i])) continue;
    const bool last = i + 1 == steps.size();
    if (last || path.changes.empty() || path.changes.back().scale != log2_scales[i])
      path.changes.push_back({steps[i], log2_scales[i]});
  }
  return path;
}

void add_skips(ScaleTrace& path, std::span<const std::uint64_t> skipped) {
  for (const std::uint64_t step : skipped) path.skipped.push_back({step, 0});
}

}  // namespace

ReplayPaths replay_paths(const ReplayedPolicy& policy, std::size_t stretches) {
  ReplayPaths paths;
  paths.one = policy.log2_scale_lower == policy.log2_scale_upper;
  paths.lower = path_of(policy.steps, policy.log2_scale_lower);
  paths.upper = path_of(policy.steps, policy.log2_scale_upper);
  add_skips(paths.lower, policy.skipped_lower);
  add_skips(paths.upper, policy.skipped_upper);
  paths.lower = thinned(std::move(paths.lower), stretches);
  paths.upper = thinned(std::move(paths.upper), stretches);
  return paths;
}

ScaleTrace band_path(std::span<const std::uint64_t> steps, std::span<const double> log2_scales,
                     std::size_t stretches) {
  return thinned(path_of(steps, log2_scales), stretches);
}

}  // namespace fp16lab::reports
