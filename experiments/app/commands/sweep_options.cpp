#include "experiments/app/commands/sweep_options.hpp"

#include <CLI/CLI.hpp>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

void add_sweep_options(CLI::App& app, SweepCommand& command) {
  app.add_flag("--report", command.report, "Also write figures and report.html into the output folder");
  app.add_flag("--dry-run", command.dry_run, "Only check every run, and print the runs as CSV");
  app.add_flag("--twin", command.twin,
               "Besides: a twin of every FP32 run, whose initial weights are one ulp off: what training makes of that "
               "is what it does by itself");
  add_sweeping(app, command.options);
  app.add_option(
         "--policies", command.policies,
         "Besides the file's variants: FP32, and amp.level=O1 under each of these loss-scale policies; "
         "all: every one that `policy --list` knows")
      ->delimiter(',')
      ->expected(1, -1);
}

}  // namespace fp16lab::experiments
