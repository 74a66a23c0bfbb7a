// fp16lab sweep: carries a grid out and sums it up.
#include <fmt/format.h>

#include <memory>

#include "experiments/app/commands.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/page/report.hpp"

namespace fp16lab::experiments {
namespace {

struct SweepCommand {
  CommonOptions common;
  SweepOptions options;
  bool report = false;                ///< also write report.html
  bool dry_run = false;               ///< only check and print the plan
  bool twin = false;                  ///< add_twins
  std::vector<std::string> policies;  ///< added to the file's variants; "all": every one
};

void print_plan(const SweepPlan& plan, const std::vector<RunState>& states) {
  fmt::print("run,workload,variant,seed,state\n");
  for (std::size_t i = 0; i < states.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    fmt::print("{},{},{},{},{}\n", run.name, run.workload, run.variant, run.config.train.seed,
               name_of(states[i]));
  }
}

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
      std::vector<std::filesystem::path> all = folders;
      all.insert(all.end(), missing.begin(), missing.end());
      write_report_page(common, all, true);  // asked about mixed builds already
    }
  }
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command tries them again",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
  return ExitCode::ok;
}

}  // namespace

Command sweep_command() {
  return {.name = "sweep",
          .description = "A grid of runs, resumable; a summary table on stdout",
          .examples =
              "  fp16lab sweep -c demo -o results/demo --report\n"
              "  fp16lab sweep -c full -o results/full --dry-run",
          .uses = {.config = "Sweep file in TOML",
                   .bare_config = true,
                   .set = "Override a configuration key, such as --set scaler.policy=dynamic (repeatable)",
                   .out = "Folder of the runs (default: results/SWEEP)",
                   .seed = "The one seed of all runs, in the place of the file's",
                   .threads = true},
          .declare = [](Options& options) -> Command::Run {
            auto command = std::make_shared<SweepCommand>();
            options.flag("--report", command->report,
                         "Also write figures and report.html into the output folder");
            options.flag("--dry-run", command->dry_run, "Only check every run, and print the runs as CSV");
            options.flag("--twin", command->twin,
                         "Besides: a twin of every FP32 run, whose initial weights are one ulp off: what "
                         "training makes of that "
                         "is what it does by itself");
            options.add_sweeping(command->options);
            options
                .add("--policies", command->policies,
                     "Besides the file's variants: FP32, and amp.level=O1 under each of these loss-scale "
                     "policies; "
                     "all: every one that `policy --list` knows")
                .separated(',');
            return [command](const CommonOptions& common) {
              command->common = common;
              return run_sweep(*command);
            };
          }};
}

}  // namespace fp16lab::experiments
