// fp16lab sweep: carries a grid out and sums it up.
#include <fmt/format.h>

#include "experiments/app/commands.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/page/report.hpp"

namespace fp16lab::experiments {
namespace {

void print_plan(const SweepPlan& plan, const std::vector<RunState>& states) {
  fmt::print("run,workload,variant,seed,state\n");
  for (std::size_t i = 0; i < states.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    fmt::print("{},{},{},{},{}\n", run.name, run.workload, run.variant, run.config.train.seed,
               name_of(states[i]));
  }
}

}  // namespace

ExitCode run_sweep(const SweepCommand& command) {
  CommonOptions common = command.common;
  if (common.out.empty() && !common.config.empty())
    common.out = std::filesystem::path("results") / common.config.stem();
  SweepPlan plan = load_sweep(common, false, command.policies);
  if (command.twin) add_twins(plan);
  if (command.dry_run) {
    const Survey found = survey(plan, command.options, common);
    print_plan(plan, found.states);
    require_safe(plan, found.states, command.options, common);
    return ExitCode::ok;
  }

  const SweepOutcome outcome = execute_sweep(plan, common, command.options);
  if (outcome.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command carries on with the runs that are left");

  const auto& [folders, missing] = runs_of(plan);
  if (!folders.empty()) {
    const reports::RunSet runs = reports::load_runs(folders, missing);
    const std::vector<reports::WorkloadSummary> summaries = reports::summarise(runs);
    write_file_atomically(plan.folder / "summary.csv", summary_csv(summaries));
    write_file_atomically(plan.folder / "summary.json", summary_json(summaries));
    fmt::print("{}", reports::summary_table(runs, summaries));
    if (command.report) {
      ReportCommand report{.common = common, .runs = folders, .mix_builds = true};  // asked about already
      report.runs.insert(report.runs.end(), missing.begin(), missing.end());
      run_report(report);
    }
  }
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command tries them again",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
