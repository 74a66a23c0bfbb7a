// fp16lab report: figures and a page from run folders alone.
#include <fmt/format.h>

#include <iostream>

#include "experiments/commands.hpp"
#include "numerics/files/run_folder.hpp"
#include "reports/report.hpp"

namespace fp16lab::experiments {

ExitCode run_report(const ReportCommand& command) {
  for (const std::filesystem::path& run : command.runs)
    if (!is_run_folder(run))
      throw CommandError(
          ExitCode::usage,
          fmt::format("{}: no such run folder (a run folder holds manifest.json)", run.string()));

  // One run is reported into its own folder, several beside each other.
  std::filesystem::path out = command.common.out;
  if (out.empty())
    out = command.runs.size() == 1 ? command.runs.front() : std::filesystem::path("results") / "report";
  reports::ReportOptions options;
  options.title =
      "fp16lab: " +
      (command.runs.size() == 1 ? command.runs.front() : std::filesystem::absolute(out)).filename().string();
  options.messages = &std::cerr;
  const std::filesystem::path page = reports::write_report(command.runs, out, options);
  fmt::print("{}\n", page.string());
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
