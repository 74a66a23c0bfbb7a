// fp16lab sweep: carries a grid out and sums it up.
#include <fmt/format.h>

#include "experiments/commands.hpp"
#include "experiments/summary_output.hpp"
#include "experiments/sweep.hpp"
#include "numerics/files/atomic_file.hpp"
#include "numerics/files/run_folder.hpp"
#include "reports/report.hpp"
#include "reports/run_set.hpp"
#include "reports/summary.hpp"

namespace fp16lab::experiments {
namespace {

void print_plan(const SweepPlan& plan) {
  fmt::print("run,workload,variant,seed,state\n");
  for (const PlannedRun& run : plan.runs)
    fmt::print("{},{},{},{},{}\n", run.name, run.workload, run.variant, run.config.train.seed,
               is_done(run) ? "complete" : "planned");
}

/// The plan's runs that left a readable folder, whatever came of them.
std::vector<std::filesystem::path> readable_runs(const SweepPlan& plan) {
  std::vector<std::filesystem::path> folders;
  for (const PlannedRun& run : plan.runs)
    if (is_run_folder(run.folder)) folders.push_back(run.folder);
  return folders;
}

}  // namespace

ExitCode run_sweep(const SweepCommand& command) {
  CommonOptions common = command.common;
  if (common.out.empty() && !common.config.empty())
    common.out = std::filesystem::path("results") / common.config.stem();
  const SweepPlan plan = load_sweep(common, false, command.policies);
  if (command.dry_run) {
    print_plan(plan);
    return ExitCode::ok;
  }

  const SweepOutcome outcome = execute_sweep(plan, common, command.jobs);
  if (outcome.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command carries on with the runs that are left");

  const std::vector<std::filesystem::path> folders = readable_runs(plan);
  if (!folders.empty()) {
    const reports::RunSet runs = reports::load_runs(folders);
    std::vector<reports::WorkloadSummary> summaries;
    for (const reports::Workload& workload : runs.workloads)
      summaries.push_back(reports::summarise(runs, workload));
    write_file_atomically(plan.folder / "summary.csv", summary_csv(summaries));
    write_file_atomically(plan.folder / "summary.json", summary_json(summaries));
    fmt::print("{}", reports::summary_table(folders));
    if (command.report) run_report({common, folders});
  }
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command tries them again",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
