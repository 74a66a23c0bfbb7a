#include "experiments/app/replay/own_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/replay/policy_replay.hpp"

namespace fp16lab::experiments {
namespace {

/// Why the run's decisions do not follow from what it recorded; empty: they do.
std::string obstacle(const RecordedRun& run, const RunConfig& config) {
  const engine::amp::ScalerOptions& options = config.scaler;
  if (!run.rounded()) return "the run rounded no gradient";
  if (!run.checked() || !options.enabled) return "the run checked no gradient";
  if (options.rescue > 0) return "the run redid steps that overflowed (scaler.rescue)";
  if (engine::amp::scale_policy(options.policy).per_layer || !options.groups.empty())
    return "the run had scales of layers";
  if (engine::amp::scale_policy(options.policy).wants_statistics && config.train.accumulate > 1)
    return "its policy was told statistics of sums over micro-batches";
  return {};
}

/// One entry for each step: whether it was skipped, and its scale.
std::string first_difference(const std::vector<StepRow>& recorded, const ReplayedPolicy& replayed) {
  std::size_t entry = 0;
  for (const StepRow& row : recorded) {
    while (entry + 1 < replayed.steps.size() && replayed.steps[entry + 1] <= row.step) ++entry;
    const double scale = std::log2(row.loss_scale);
    const auto skips = [&](const std::vector<std::uint64_t>& steps) {
      return std::ranges::binary_search(steps, row.step) == row.skipped;
    };
    if (replayed.log2_scale_lower[entry] != scale || replayed.log2_scale_upper[entry] != scale)
      return fmt::format("step {} has the scale 2^{:g}, replayed 2^{:g}", row.step, scale,
                         replayed.log2_scale_lower[entry]);
    if (!skips(replayed.skipped_lower) || !skips(replayed.skipped_upper))
      return fmt::format("step {} was {}, replayed it is not", row.step, row.skipped ? "skipped" : "taken");
  }
  return {};
}

}  // namespace

analysis::Claim replay_own_policy(const std::filesystem::path& folder) {
  analysis::Claim claim{.claim = "the run's own policy, replayed, makes the decisions that the run made",
                        .criterion = "the scale of every step and every skip are those of steps.csv"};
  const RecordedRun run(folder);
  RunConfig config;
  try {
    config = parse_config(run.folder().manifest.config, (folder / run_file::config).string());
  } catch (const CommandError& error) {  // of another version
    claim.measured = error.what();
    return claim;
  }
  resolve_names(config);
  claim.measured = obstacle(run, config);
  if (!claim.measured.empty()) return claim;

  const engine::amp::ScalePolicy policy = engine::amp::make_scale_policy(config.scaler);
  PolicyReplay replay(policy, {.name = policy.name, .label = policy.name});
  StepJudge judge(run);
  std::uint64_t first = 0, unseen = 0;
  run.for_each_step(false, [&](const RecordedStep& step) {
    if (first == 0) first = step.step;
    unseen += step.observed ? 0 : 1;
    judge.begin(step);
    replay.take(step, judge);
  });
  const std::vector<StepRow>& steps = run.folder().steps;
  if (first != steps.front().step) {
    claim.measured = fmt::format(
        "the first histograms are of step {}: what the policy knew by then is not recorded", first);
    return claim;
  }
  if (policy.wants_statistics && unseen > 0) {
    claim.measured =
        fmt::format("the policy was told statistics of {} steps that have no histograms", unseen);
    return claim;
  }
  const std::string difference = first_difference(steps, replay.finish());
  claim.verdict = analysis::verdict_of(difference.empty());
  claim.measured = difference.empty()
                       ? fmt::format("policy {}: the scales and skips of all {} steps", policy.name, steps.size())
                       : fmt::format("policy {}: {}", policy.name, difference);
  return claim;
}

}  // namespace fp16lab::experiments
