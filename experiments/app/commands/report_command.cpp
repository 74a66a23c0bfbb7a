// fp16lab report: figures and a page from run folders and replays alone.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "experiments/app/commands.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "reports/data/report_input.hpp"
#include "reports/page/report.hpp"

namespace fp16lab::experiments {

namespace {

/// Another build may compute other bits: differences between such runs are not those between their
/// configurations.
void require_one_build(const reports::RunSet& runs) {
  if (runs.builds.size() < 2) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format("these runs were made by {} builds, whose bits may differ: {}; report them apart, or "
                  "take them together with --mix-builds",
                  runs.builds.size(), fmt::join(std::set(runs.builds.begin(), runs.builds.end()), "; ")));
}

ExitCode report(const CommonOptions& common, const std::vector<std::filesystem::path>& paths,
                bool mix_builds) {
  reports::ReportInput input;
  try {
    input = reports::find_report_input(paths);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  const reports::RunSet runs =
      input.runs.empty() ? reports::RunSet{} : reports::load_runs(input.runs, input.missing);
  if (!mix_builds) require_one_build(runs);

  // One folder is reported into itself, several beside each other.
  std::filesystem::path out = common.out, only;
  if (paths.size() == 1) {
    only = paths.front();
    if (only.filename() == replay_name::json) only = std::filesystem::absolute(only).parent_path();
  }
  if (out.empty()) out = only.empty() ? std::filesystem::path("results") / "report" : only;
  write_report_page(common, runs, reports::summarise(runs), input.replays, out, only.empty() ? out : only);
  return ExitCode::ok;
}

}  // namespace

void write_report_page(const CommonOptions& common, const reports::RunSet& runs,
                       const std::vector<reports::WorkloadSummary>& summaries,
                       const std::vector<std::filesystem::path>& replays, const std::filesystem::path& out,
                       const std::filesystem::path& named) {
  std::filesystem::path name = std::filesystem::absolute(named).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  reports::ReportOptions options;
  options.title = "fp16lab: " + name.filename().string();
  if (!common.quiet) options.messages = &std::cerr;
  fmt::print("{}\n", reports::write_report(runs, summaries, replays, out, options).string());
}

Command report_command() {
  return {
      .name = "report",
      .description = "Figures and one offline report.html from runs, sweeps and replays alone",
      .examples =
          "  fp16lab report results/demo\n"
          "  fp16lab report results/classifier-seed1 results/classifier-seed2 results/replay -o results/both",
      .uses = {.out = "Folder of the page (default: the one folder given, or results/report)"},
      .declare = [](Options& options) -> Command::Run {
        struct Arguments {
          std::vector<std::filesystem::path> runs;
          bool mix_builds = false;
        };
        auto given = std::make_shared<Arguments>();
        options.add("RUN", given->runs, "Run folders, folders of runs (a sweep's), or what replay wrote")
            .required()
            .not_empty("a folder");
        options.flag(
            "--mix-builds", given->mix_builds,
            "Compare runs of several builds of the program (commit, compiler, flags) with each other");
        return
            [given](const CommonOptions& common) { return report(common, given->runs, given->mix_builds); };
      }};
}

}  // namespace fp16lab::experiments
