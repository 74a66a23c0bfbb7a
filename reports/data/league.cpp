#include "reports/data/league.hpp"

#include <algorithm>
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

bool is_yardstick(const ReplayedPolicy& policy) {
  return policy.name == "oracle" || policy.label.find("hindsight") != std::string::npos;
}

ReplayInterval unused_share(const ReplayedPolicy& policy, std::uint64_t total_steps) {
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, total_steps));
  const auto share = [&](double without_update, double lost) {
    return (without_update + (steps - without_update) * lost) / steps;
  };
  return {share(policy.skips.lower, policy.lost_l1.lower),
          share(policy.wasted_steps.upper, policy.lost_l1.upper)};
}

std::vector<std::size_t> league_order(const ReplayFile& replay) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < replay.policies.size(); ++i)
    if (replay.policies[i].replayed) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return unused_share(replay.policies[a], replay.total_steps).upper <
           unused_share(replay.policies[b], replay.total_steps).upper;
  });
  return order;
}

std::vector<bool> league_front(const ReplayFile& replay) {
  const auto competes = [](const ReplayedPolicy& policy) { return policy.replayed && !is_yardstick(policy); };
  const auto beats = [](const ReplayedPolicy& a, const ReplayedPolicy& b) {
    return a.skips.upper <= b.skips.upper && a.lost_l1.upper <= b.lost_l1.upper &&
           (a.skips.upper < b.skips.upper || a.lost_l1.upper < b.lost_l1.upper);
  };
  std::vector<bool> front;
  for (const ReplayedPolicy& candidate : replay.policies) {
    bool leads = competes(candidate);
    for (const ReplayedPolicy& other : replay.policies)
      if (leads && competes(other) && beats(other, candidate)) leads = false;
    front.push_back(leads);
  }
  return front;
}

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
