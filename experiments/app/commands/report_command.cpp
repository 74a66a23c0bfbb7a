// fp16lab report: figures and a page from run folders and replays alone.
#include <fmt/format.h>

#include <iostream>
#include <set>
#include <stdexcept>
#include <vector>

#include "experiments/app/commands.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "reports/data/report_input.hpp"
#include "reports/page/report.hpp"

namespace fp16lab::experiments {

namespace {

/// Another build may compute other bits: differences between such runs are not those between their configurations.
void require_one_build(const std::vector<std::filesystem::path>& runs) {
  std::set<std::string> builds;
  for (const std::filesystem::path& run : runs)
    for (std::string& build : builds_of(read_manifest(run))) builds.insert(std::move(build));
  if (builds.size() < 2) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format("these runs were made by {} builds, whose bits may differ: {}; report them apart, or "
                  "take them together with --mix-builds",
                  builds.size(), fmt::join(builds, "; ")));
}

}  // namespace

ExitCode run_report(const ReportCommand& command) {
  reports::ReportInput input;
  try {
    input = reports::find_report_input(command.runs);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  if (!command.mix_builds) require_one_build(input.runs);

  // One folder is reported into itself, several beside each other.
  std::filesystem::path out = command.common.out, only;
  if (command.runs.size() == 1) {
    only = command.runs.front();
    if (only.filename() == replay_name::json) only = std::filesystem::absolute(only).parent_path();
  }
  if (out.empty()) out = only.empty() ? std::filesystem::path("results") / "report" : only;
  std::filesystem::path named = std::filesystem::absolute(only.empty() ? out : only).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  reports::ReportOptions options;
  options.title = "fp16lab: " + named.filename().string();
  if (!command.common.quiet) options.messages = &std::cerr;
  const std::filesystem::path page = reports::write_report(command.runs, out, options);
  fmt::print("{}\n", page.string());
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
