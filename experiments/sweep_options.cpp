#include "experiments/sweep_options.hpp"

#include <CLI/CLI.hpp>

#include "experiments/sweep.hpp"

namespace fp16lab::experiments {

void add_sweep_options(CLI::App& app, SweepCommand& command) {
  app.add_flag("--report", command.report, "Also write figures and report.html into the output folder");
  app.add_flag("--dry-run", command.dry_run, "Only check every run, and print the runs as CSV");
  for (const ExperimentFlag& flag : sweep_flags(command.options))
    app.add_flag(flag.name, *flag.value, flag.description);
  app.add_option("--jobs", command.options.jobs,
                 "Runs at a time, which share --threads (bits do not depend on it)")
      ->check(CLI::Range(1, 1024));
  app.add_option(
         "--policies", command.policies,
         "Besides the file's variants: FP32, and amp.level=O1 under each of these loss-scale policies; "
         "all: every one that `policy --list` knows")
      ->delimiter(',')
      ->expected(1, -1);
}

}  // namespace fp16lab::experiments
