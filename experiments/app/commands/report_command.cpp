// fp16lab report: figures and a page from run folders and replays alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "experiments/app/commands.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/process.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"
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
      fmt::format("these runs were made by {} builds, whose bits may differ: {}; report them separately, or "
                  "combine them with --mix-builds",
                  runs.builds.size(), fmt::join(std::set(runs.builds.begin(), runs.builds.end()), "; ")));
}

struct ReportArguments {
  std::vector<std::filesystem::path> runs;
  bool mix_builds = false;
  bool follow = false;
  int every = 10;  ///< seconds
  reports::DrawingOptions drawing;
  bool no_title = false;
};

/// "6 runs of 2 workloads; against FP32: 1 worse, 2 equal, 1 undecided"
std::string outline(const reports::RunSet& runs, const std::vector<reports::WorkloadSummary>& summaries) {
  std::map<analysis::Word, std::size_t> words;
  for (const reports::WorkloadSummary& summary : summaries)
    for (const reports::SummaryRow& row : summary.rows)
      if (row.against_reference && !row.is_twin) ++words[row.against_reference->word];
  std::string text =
      counted(runs.runs.size() - runs.missing(), "run") + " of " + counted(runs.workloads.size(), "workload");
  for (const auto& [word, count] : words)
    text += fmt::format("{}{} {}", word == words.begin()->first ? "; against FP32: " : ", ", count,
                        word == analysis::Word::cannot_tell ? "undecided" : analysis::name_of(word));
  return text;
}

/// Figures and page of what is there. Is a run still going on, or planned and not begun?
bool report(const CommonOptions& common, const ReportArguments& given, const reports::ReportInput& input,
            int follow_seconds) {
  const reports::RunSet runs =
      input.runs.empty() ? reports::RunSet{} : reports::load_runs(input.runs, input.missing, told);
  if (!given.mix_builds) require_one_build(runs);
  const bool goes_on = std::any_of(runs.runs.begin(), runs.runs.end(), [](const reports::Run& run) {
    return run.missing || run.folder.manifest.state == ExitState::running;
  });

  // One folder is reported into itself, several beside each other.
  std::filesystem::path out = common.out, only;
  if (given.runs.size() == 1) {
    only = given.runs.front();
    if (only.filename() == replay_name::json) only = std::filesystem::absolute(only).parent_path();
  }
  if (out.empty()) out = only.empty() ? std::filesystem::path("results") / "report" : only;
  const std::vector<reports::WorkloadSummary> summaries = reports::summarise(runs);
  const std::string undrawn =
      write_report_page(common, runs, summaries, input.replays, out, only.empty() ? out : only,
                        goes_on ? follow_seconds : 0, given.drawing);
  if (!common.quiet && !runs.runs.empty()) say("report: {}", outline(runs, summaries));
  if (!undrawn.empty() && given.drawing.pdf)
    throw CommandError(ExitCode::run_failed, "report: the page is written, but not every PDF: " + undrawn);
  if (!undrawn.empty() && !common.quiet) say("report: note: {}", undrawn);
  return goes_on;
}

reports::ReportInput input_of(const ReportArguments& given) {
  try {
    return reports::find_report_input(given.runs);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
}

/// Sizes and times of what the page is made from: another text says that there is something new.
std::string state_of(const reports::ReportInput& input) {
  std::string state = fmt::format("{} {}", input.missing.size(), input.replays.size());
  for (const std::filesystem::path& run : input.runs)
    for (const std::string_view name : {run_file::manifest, run_file::steps, run_file::evaluations,
                                        run_file::histograms, run_file::overflows}) {
      std::error_code error;
      const auto size = std::filesystem::file_size(run / name, error);
      const auto time = std::filesystem::last_write_time(run / name, error);
      state += error ? " -" : fmt::format(" {} {}", size, time.time_since_epoch().count());
    }
  return state;
}

/// Writes the page anew whenever rows have come, until all runs have ended or somebody interrupts; then once
/// more, with its figures.
ExitCode follow(const CommonOptions& common, const ReportArguments& given) {
  using Clock = std::chrono::steady_clock;
  catch_interrupts();
  CommonOptions quiet = common;  // damaged runs are reported once
  std::string known;
  while (!interrupted()) {
    const reports::ReportInput input = input_of(given);
    std::string state = state_of(input);
    const Clock::time_point begin = Clock::now();
    if (state != known && !report(quiet, given, input, given.every)) return ExitCode::ok;
    known = std::move(state);
    quiet.quiet = true;
    // A page that takes long to write does not keep the machine from training.
    const auto pause =
        std::max<Clock::duration>(std::chrono::seconds(given.every), 4 * (Clock::now() - begin));
    for (const Clock::time_point end = Clock::now() + pause; Clock::now() < end && !interrupted();)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  report(common, given, input_of(given), 0);
  return ExitCode::ok;
}

}  // namespace

std::string write_report_page(const CommonOptions& common, const reports::RunSet& runs,
                              const std::vector<reports::WorkloadSummary>& summaries,
                              const std::vector<std::filesystem::path>& replays,
                              const std::filesystem::path& out, const std::filesystem::path& named,
                              int follow_seconds, const reports::DrawingOptions& drawing) {
  std::filesystem::path name = std::filesystem::absolute(named).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  reports::ReportOptions options;
  options.title = "fp16lab: " + name.filename().string();
  options.follow_seconds = follow_seconds;
  options.drawing = drawing;
  std::stringstream messages;
  std::string undrawn;
  options.undrawn = &undrawn;
  if (!common.quiet) options.messages = &messages;
  const std::filesystem::path page = reports::write_report(runs, summaries, replays, out, options);
  for (std::string line; std::getline(messages, line);) say("{}", line);
  if (follow_seconds == 0 || !common.quiet) print_result(printable(page.string()) + "\n");
  return undrawn;
}

Command report_command() {
  return {
      .name = "report",
      .description = "Draw figures and write an offline page: report.html, from runs, sweeps and replays",
      .examples =
          "  fp16lab report results/demo --pdf --width 3.3in --no-title\n"
          "  fp16lab report results/classifier-seed1 results/classifier-seed2 results/replay -o results/both",
      .uses = {.out = "Folder for the page (default: the one folder given, or results/report)"},
      .declare = [](Options& options) -> Command::Run {
        auto given = std::make_shared<ReportArguments>();
        options.add("RUN", given->runs, "Run folders, folders of runs (a sweep's), or folders of replays")
            .required()
            .not_empty("a folder")
            .offers(offer_runs());
        options.flag("--mix-builds", given->mix_builds,
                     "Compare runs of different builds (commit, compiler, flags) with each other");
        options.flag("--follow", given->follow,
                     "Rewrite the page as rows arrive, until the runs have ended; the browser reloads it");
        options.add("--every", given->every, "With --follow: time between two pages")
            .type("SECONDS")
            .at_least(1, 3600);
        options.flag("--pdf", given->drawing.pdf,
                     "Also write a PDF of each figure: vectors with their fonts");
        options
            .add("--width", given->drawing.width,
                 "Width of each figure, in in, mm, cm or pt: 3.3in for a paper's column; or pixels")
            .type("WIDTH");
        options.flag("--no-title", given->no_title, "Draw figures without titles");
        return [given](const CommonOptions& common) {
          given->drawing.title = !given->no_title;
          try {
            if (!given->drawing.width.empty()) reports::require_width(given->drawing.width);
          } catch (const std::invalid_argument& error) {
            throw CommandError(ExitCode::usage, error.what());
          }
          if (given->follow) return follow(common, *given);
          report(common, *given, input_of(*given), 0);
          return ExitCode::ok;
        };
      }};
}

}  // namespace fp16lab::experiments
