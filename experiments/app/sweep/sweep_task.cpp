// A sweep as a list of tasks: the plan beside the runs, and one run of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "experiments/app/process.hpp"
#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/run/train_run.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::string_view tasks_header = "task,run,workload,variant";

std::filesystem::path file_of(const SweepPlan& plan, const PlannedRun& run) {
  return plan.folder / sweep_plan / (run.name + ".toml");
}

/// Only where it is not there: ten thousand files take seconds to sync, and tasks may be reading them.
void write_if_other(const std::filesystem::path& path, const std::string& content) {
  if (is_there(path) && read_file(path) == content) return;
  write_file_atomically(path, content);
}

/// Runs are in the sweep's folder, not where links in it lead. Any other obstacle to a run is that run's
/// failure.
void require_own_folders(const SweepPlan& plan) {
  for (const PlannedRun& run : plan.runs)
    if (std::error_code none; std::filesystem::is_symlink(std::filesystem::symlink_status(run.folder, none)))
      make_folder_inside(run.folder);
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  for (const char c : line)
    if (c == ',')
      cells.emplace_back();
    else
      cells.back() += c;
  return cells;
}

/// A name that may be part of a path: not "../elsewhere".
bool is_plain(std::string_view name) {
  constexpr std::size_t longest_name = 250;  // of a file, with its ending
  return !name.empty() && name.size() <= longest_name && name.front() != '.' &&
         name.find('/') == std::string_view::npos && is_printable(name);
}

/// The content of tasks.csv.
std::string task_list(const SweepPlan& plan) {
  std::string list = fmt::format("{}\n", tasks_header);
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    list += fmt::format("{},{},{},{}\n", i + 1, run.name, run.workload, run.variant);
  }
  return list;
}

ExitCode already_complete(const PlannedRun& run, const CommonOptions& common) {
  if (!common.quiet) say("sweep: {} is already complete", run.name);
  return ExitCode::ok;
}

/// The plan of tasks.csv, without configurations.
SweepPlan read_tasks(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / sweep_plan / sweep_tasks;
  if (!has_written_plan(folder))
    throw CommandError(ExitCode::usage,
                       fmt::format("{} holds no plan ({} is not there): give the sweep file with -c",
                                   folder.string(), file.string()));
  const auto fail = [&](std::size_t line, const std::string& what) {
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{}:{}: {}; a sweep with -c writes it again", file.string(), line, what));
  };
  const Lines lines = read_lines(file);
  if (lines.torn_bytes > 0) fail(lines.complete.size() + 1, "the last line is cut off");
  if (lines.complete.empty() || lines.complete.front() != tasks_header)
    fail(1, fmt::format("the header must be '{}'", tasks_header));
  SweepPlan plan{.folder = folder, .runs = {}};
  for (std::size_t i = 1; i < lines.complete.size(); ++i) {
    std::vector<std::string> cells = cells_of(lines.complete[i]);
    if (cells.size() != 4 || cells[0] != std::to_string(i) || !is_plain(cells[1]) ||
        !is_printable(lines.complete[i]))
      fail(i + 1, fmt::format("expected '{},RUN,WORKLOAD,VARIANT', found '{}'", i, shown(lines.complete[i])));
    PlannedRun run{.name = std::move(cells[1]),
                   .workload = std::move(cells[2]),
                   .variant = std::move(cells[3]),
                   .config = {},
                   .folder = {}};
    run.folder = folder / run.name;
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

}  // namespace

std::string left_out(const SweepPlan& plan) {
  if (!has_written_plan(plan.folder)) return "";
  std::set<std::string> names;
  for (const PlannedRun& run : plan.runs) names.insert(run.name);
  std::vector<std::string> out;
  try {
    for (const PlannedRun& run : read_tasks(plan.folder).runs)
      if (!names.contains(run.name) && is_run_folder(run.folder)) out.push_back(run.name);
  } catch (const CommandError&) {
    return "";  // a damaged list, which is written again
  }
  if (out.empty()) return "";
  return fmt::format(
      "{} has {} of an earlier plan that this one leaves out, first {}: table and page will not show them",
      plan.folder.string(), counted(out.size(), "run"), printable(out.front()));
}

void write_plan(const SweepPlan& plan, bool forget) {
  const std::filesystem::path folder = plan.folder / sweep_plan;
  make_folders(plan.folder);
  make_folder_inside(folder);
  // What engines write there, too: logs, lists of jobs.
  for (const std::filesystem::path& path : entries_of(folder))
    if (std::error_code none; !std::filesystem::is_directory(std::filesystem::symlink_status(path, none)))
      require_replaceable(path);
  require_own_folders(plan);
  std::set<std::filesystem::path> written;
  for (const PlannedRun& run : plan.runs) {
    write_if_other(file_of(plan, run), to_toml(run.config));
    written.insert(file_of(plan, run));
  }
  write_if_other(folder / sweep_tasks, task_list(plan));
  if (!forget) return;
  for (const std::filesystem::path& path : entries_of(folder))
    if (path.extension() == ".toml" && !written.contains(path) && !is_run_folder(plan.folder / path.stem()))
      remove_file(path);
}

bool has_written_plan(const std::filesystem::path& folder) {
  return is_there(folder / sweep_plan / sweep_tasks);
}

SweepPlan read_written_plan(const std::filesystem::path& folder, std::optional<std::size_t> only) {
  SweepPlan plan = read_tasks(folder);
  if (only && (*only < 1 || *only > plan.runs.size()))
    throw CommandError(ExitCode::usage, fmt::format("--task: {}: expected 1 to {}, the number of runs of {}",
                                                    *only, plan.runs.size(), folder.string()));
  for (std::size_t i = only ? *only - 1 : 0; i < (only ? *only : plan.runs.size()); ++i)
    plan.runs[i].config = load_config(file_of(plan, plan.runs[i]));
  return plan;
}

void require_written_plan(const SweepPlan& plan, std::optional<std::size_t> only) {
  const SweepPlan there = read_tasks(plan.folder);
  const auto refuse = [&](const std::string& what) {
    throw CommandError(
        ExitCode::usage,
        fmt::format("{} holds the plan of another sweep: {}; leave out -c to take the plan that "
                    "is there, or choose another folder with --out",
                    plan.folder.string(), what));
  };
  for (std::size_t i = 0; i < std::min(there.runs.size(), plan.runs.size()); ++i)
    if (there.runs[i].name != plan.runs[i].name)
      refuse(fmt::format("task {} is {} there and {} here", i + 1, there.runs[i].name, plan.runs[i].name));
  if (there.runs.size() != plan.runs.size())
    refuse(fmt::format("it has {} there and {} here", counted(there.runs.size(), "run"), plan.runs.size()));
  for (std::size_t i = only ? *only - 1 : 0; i < (only ? *only : plan.runs.size()); ++i) {
    const PlannedRun& run = plan.runs[i];
    const std::filesystem::path file = file_of(plan, run);
    if (!is_there(file) || read_file(file) == to_toml(run.config)) continue;
    if (const std::string what = difference_of(load_config(file), run.config); !what.empty())
      refuse(fmt::format("{}: {}", run.name, what));
  }
}

std::string plan_id(const SweepPlan& plan) {
  constexpr std::size_t digits = 12;
  return sha256_of(task_list(plan)).substr(0, digits);
}

std::vector<std::string> task_arguments(const SweepPlan& plan, int threads, bool force) {
  std::vector<std::string> arguments{"sweep",       "--out",     plan.folder.string(),    "--plan",
                                     plan_id(plan), "--threads", std::to_string(threads), "--quiet"};
  if (force) arguments.emplace_back("--force");
  arguments.emplace_back("--task");
  return arguments;
}

ExitCode run_task(const SweepPlan& plan, std::size_t number, const CommonOptions& common,
                  const SweepOptions& options) {
  const PlannedRun& run = plan.runs.at(number - 1);
  if (is_kept(state_of(run), options)) return already_complete(run, common);
  catch_interrupts();
  require_own_folders({.folder = plan.folder, .runs = {run}});
  const FolderClaim claim(run.folder, another_writer);
  const RunState state = state_of(run);  // another process may have ended it before the claim
  if (is_kept(state, options)) return already_complete(run, common);
  require_safe({.folder = plan.folder, .runs = {run}}, {state}, options, common);

  const bool resume = can_continue(run, state);
  TrainRequest request;
  request.common.config = file_of(plan, run);
  request.common.out = run.folder;
  request.common.threads = common.threads;
  request.common.quiet = common.quiet;
  request.resume = resume;
  request.force = !resume;
  request.of_sweep = true;
  request.name = run.variant;
  // What makes this run by hand is what its manifest records.
  request.common.argv = {"fp16lab",
                         "train",
                         "--config",
                         request.common.config.string(),
                         "--out",
                         run.folder.string(),
                         "--threads",
                         std::to_string(common.threads),
                         "--name",
                         run.variant,
                         resume ? "--resume" : "--force"};
  make_folder_inside(plan.folder / sweep_plan);
  write_if_other(request.common.config, to_toml(run.config));
  const ExitCode code = train(request, claim);
  return code == ExitCode::diverged ? ExitCode::ok : code;
}

}  // namespace fp16lab::experiments
