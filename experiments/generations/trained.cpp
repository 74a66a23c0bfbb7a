#include <algorithm>
#include <limits>

#include "experiments/generations/generations.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

TrainedRun read_run(const PlannedRun& planned, bool& accuracy) {
  const RunFolder folder = read_run_folder(planned.folder);
  TrainedRun run{.workload = planned.workload,
                 .variant = planned.variant,
                 .seed = planned.config.train.seed,
                 .hashes = {},
                 .loss = std::numeric_limits<double>::quiet_NaN(),
                 .metric = std::numeric_limits<double>::quiet_NaN()};
  run.hashes.reserve(folder.steps.size());
  for (const StepRow& step : folder.steps) {
    run.hashes.push_back(step.state_hash);
    run.skipped += step.skipped ? 1 : 0;
  }
  if (!folder.finished() || folder.evaluations.empty()) return run;
  const EvaluationRow& last = folder.evaluations.back();
  accuracy = last.accuracy.has_value();
  run.loss = last.loss;
  run.metric = accuracy ? *last.accuracy : last.bits_per_character.value_or(last.loss);
  return run;
}

}  // namespace

const TrainedRun* Generations::find(std::string_view workload, std::string_view variant,
                                    std::int64_t seed) const {
  const auto found = std::ranges::find_if(runs, [&](const TrainedRun& run) {
    return run.workload == workload && run.variant == variant && run.seed == seed;
  });
  return found == runs.end() ? nullptr : &*found;
}

std::vector<std::int64_t> Generations::seeds_of(std::string_view workload, std::string_view variant) const {
  std::vector<std::int64_t> seeds;
  for (const TrainedRun& run : runs)
    if (run.workload == workload && run.variant == variant) seeds.push_back(run.seed);
  return seeds;
}

Generations read_generations(const SweepPlan& plan) {
  Generations measured;
  measured.same = same_rows(plan);
  for (const PlannedRun& planned : plan.runs) {
    if (measured.workloads.empty() || measured.workloads.back() != planned.workload) {
      measured.workloads.push_back(planned.workload);
      measured.accuracies.push_back(false);
    }
    measured.margin_loss = planned.config.report.margin_loss;
    measured.margin_accuracy = planned.config.report.margin_accuracy;
    bool accuracy = measured.accuracies.back();
    measured.runs.push_back(read_run(planned, accuracy));
    measured.accuracies.back() = accuracy;
  }
  return measured;
}

std::optional<std::uint64_t> first_differing_step(const TrainedRun& a, const TrainedRun& b) {
  const auto [at, other] = std::ranges::mismatch(a.hashes, b.hashes);
  if (at == a.hashes.end() && other == b.hashes.end()) return std::nullopt;
  return static_cast<std::uint64_t>(at - a.hashes.begin()) + 1;
}

}  // namespace fp16lab::experiments
