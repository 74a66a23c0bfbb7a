#include <algorithm>
#include <limits>

#include "experiments/generations/generations.hpp"
#include "experiments/study/judged_sweep.hpp"

namespace fp16lab::experiments {

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
  const JudgedSweep sweep(plan);
  Generations measured;
  measured.same = same_rows(plan);
  measured.final_values = sweep.table();
  for (const PlannedRun& planned : plan.runs) {
    if (measured.workloads.empty() || measured.workloads.back().name != planned.workload)
      measured.workloads.push_back(
          {.name = planned.workload, .metric = sweep.workload(planned.workload).metric});
    constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
    TrainedRun run{.workload = planned.workload,
                   .variant = planned.variant,
                   .seed = static_cast<std::int64_t>(planned.config.train.seed),
                   .hashes = {},
                   .loss = nothing,
                   .metric = nothing};
    const auto seed = static_cast<std::uint64_t>(run.seed);
    const reports::SummaryRow& row = sweep.row(run.workload, run.variant);
    const auto judged = std::ranges::find(row.seeds, seed) - row.seeds.begin();
    if (static_cast<std::size_t>(judged) < row.seeds.size()) {
      run.loss = row.final_losses.at(static_cast<std::size_t>(judged));
      run.metric = row.final_values.at(static_cast<std::size_t>(judged));
    }
    for (const reports::Run* on_disk : sweep.runs_of(run.workload, run.variant))
      if (on_disk->seed == seed)
        for (const StepRow& step : on_disk->folder.steps) run.hashes.push_back(step.state_hash);
    measured.runs.push_back(std::move(run));
  }
  return measured;
}

std::optional<std::uint64_t> first_differing_step(const TrainedRun& a, const TrainedRun& b) {
  const auto [at, other] = std::ranges::mismatch(a.hashes, b.hashes);
  if (at == a.hashes.end() && other == b.hashes.end()) return std::nullopt;
  return static_cast<std::uint64_t>(at - a.hashes.begin()) + 1;
}

}  // namespace fp16lab::experiments
