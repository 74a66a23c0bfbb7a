// What a sweep finds before it starts: are its runs possible, and what would it replace?
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "experiments/app/build_info.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/run/memory_limits.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/run/run_notes.hpp"
#include "experiments/app/run/run_recorder.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/run_resume.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

/// The configuration that the run was made from; nothing where it has keys or values that this program does
/// not know.
std::optional<RunConfig> config_of(const Manifest& manifest) {
  try {
    return parse_config(manifest.config, "manifest");
  } catch (const CommandError&) {
    return std::nullopt;
  }
}

/// By every key: a configuration that was read and one that was put together are the same run. Most manifests
/// hold the very text; those of other versions, which know other keys, are read.
bool made_from(const Manifest& manifest, const RunConfig& config) {
  const std::string text = to_toml(config);
  if (manifest.config == text) return true;
  const std::optional<RunConfig> there = config_of(manifest);
  return there && to_toml(*there) == text;
}

/// What a run that says that it is complete lacks of what it wrote; empty: nothing.
std::string damage_of(const std::filesystem::path& folder, Manifest manifest) {
  try {
    return fmt::format("{}", fmt::join(read_run_folder(folder, std::move(manifest)).damage, "; "));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

/// "train.steps is 40 there and 20 here", of the first key that differs.
std::string difference(const PlannedRun& run) {
  const std::optional<RunConfig> there = config_of(read_manifest(run.folder));
  if (!there) return "its configuration has keys that this version does not know";
  const std::string what = difference_of(*there, run.config);
  return what.empty() ? "their configurations differ" : what;
}

std::vector<const PlannedRun*> runs_in(const SweepPlan& plan, const std::vector<RunState>& states,
                                       RunState state) {
  std::vector<const PlannedRun*> runs;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (states[i] == state) runs.push_back(&plan.runs[i]);
  return runs;
}

void require_no_loss(const SweepPlan& plan, const std::vector<RunState>& states) {
  const auto others = runs_in(plan, states, RunState::other_configuration);
  const auto unreadable = runs_in(plan, states, RunState::unreadable);
  if (others.empty() && unreadable.empty()) return;
  const std::string why = others.empty()
                              ? fmt::format("{}: its manifest cannot be read", unreadable.front()->name)
                              : fmt::format("{}: {}", others.front()->name, difference(*others.front()));
  throw CommandError(
      ExitCode::usage,
      fmt::format(
          "{} holds {} that this sweep would replace ({}); choose another folder with --out, or replace "
          "them with --force",
          plan.folder.string(), counted(others.size() + unreadable.size(), "other run"), why));
}

void require_undamaged(const SweepPlan& plan, const std::vector<RunState>& states) {
  const auto damaged = runs_in(plan, states, RunState::damaged);
  if (damaged.empty()) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format("{} of {} runs were finished, but their records are damaged, first {}: {}; restore them "
                  "from a copy, or make them again with --force",
                  damaged.size(), plan.runs.size(), damaged.front()->name,
                  damage_of(damaged.front()->folder, read_manifest(damaged.front()->folder))));
}

}  // namespace

std::string difference_of(const RunConfig& there, const RunConfig& here) {
  const std::vector<KeyDifference> all = key_differences(there, here);
  if (all.empty()) return "";
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("not set") : value; };
  return fmt::format("{} is {} there and {} here", all.front().key->name, shown(all.front().a),
                     shown(all.front().b));
}

Survey survey(const SweepPlan& plan, const SweepOptions& options, const CommonOptions& common) {
  bool warned = common.quiet;
  RunChecker checker([&warned](const StepCosts& costs) {
    if (!warned) warned = experiments::note_memory(costs);
  });
  Survey found;
  std::set<std::string> told;
  if (!common.quiet)
    for (const std::string& sentence : plan.notes) say("sweep: note: {}", sentence);
  for (const PlannedRun& run : plan.runs) {
    const RunState state = state_of(run);
    found.states.push_back(state);
    found.lengths.emplace_back();
    if (is_kept(state, options)) continue;
    const std::string who = run.workload + "-" + run.variant;
    try {
      found.lengths.back() = checker.check(run.config);
    } catch (const CommandError& error) {
      throw CommandError(error.code, fmt::format("{}: {}", run.name, error.what()));
    }
    if (common.quiet) continue;
    if (told.insert(who).second)
      if (const std::string why = never_grows(resolve_run(run.config).policy, found.lengths.back().steps);
          !why.empty())
        say("sweep: warning: {}: {}", who, why);
    if (run.config.backend.device != Device::automatic) continue;
    const std::string choice = choice_text(checker.backend());
    if (told.insert(choice).second) say("{}", choice);
  }
  return found;
}

void note_memory_of_runs(const Survey& found, std::size_t jobs, const CommonOptions& common) {
  if (common.quiet) return;
  std::vector<std::uint64_t> needs;
  for (const RunLength& length : found.lengths) needs.push_back(length.memory);
  std::ranges::sort(needs, std::greater{});
  needs.resize(std::min(needs.size(), jobs));
  const std::uint64_t need = std::accumulate(needs.begin(), needs.end(), std::uint64_t{0});
  if (const std::string warning = memory_warning(need, needs.size(), memory_limits()); !warning.empty())
    say("sweep: warning: {}", warning);
}

void require_safe(const SweepPlan& plan, const std::vector<RunState>& states, const SweepOptions& options,
                  const CommonOptions& common) {
  if (options.force) return;
  require_no_loss(plan, states);
  require_undamaged(plan, states);
  require_one_build(plan, states, options, common);
}

void require_one_build(const SweepPlan& plan, const std::vector<RunState>& states,
                       const SweepOptions& options, const CommonOptions& common) {
  const auto others = runs_in(plan, states, RunState::other_build);
  if (others.empty()) return;
  std::set<std::string> builds;
  for (const PlannedRun* const run : others)
    for (const std::string& build : builds_of(read_manifest(run->folder))) builds.insert(build);
  const std::string what =
      fmt::format("{} of {} runs were finished by another build ({}; this is {}), first {}", others.size(),
                  plan.runs.size(), fmt::join(builds, "; "), build_name(), others.front()->name);
  const bool mixed = builds.size() > 1 || others.size() < plan.runs.size();
  if (mixed && !options.mix_builds)
    throw CommandError(
        ExitCode::usage,
        fmt::format("{}: {}: bits may differ; --force makes them again, --mix-builds uses them as they are",
                    plan.folder.string(), what));
  if (!common.quiet) say("sweep: note: {}", what);
}

RunState state_of(const PlannedRun& run) {
  if (!is_run_folder(run.folder)) return RunState::planned;
  Manifest manifest;
  try {
    manifest = read_manifest(run.folder);
  } catch (const std::runtime_error&) {
    return RunState::unreadable;
  }
  const bool complete = is_complete(manifest.state);
  if (!made_from(manifest, run.config)) {
    const bool worth = complete || !stored_checkpoints(run.folder).empty();
    return worth ? RunState::other_configuration : RunState::planned;
  }
  if (!complete) return RunState::unfinished;
  const std::vector<std::string> builds = builds_of(manifest);
  if (!damage_of(run.folder, std::move(manifest)).empty()) return RunState::damaged;
  return builds == std::vector{build_name()} ? RunState::complete : RunState::other_build;
}

bool can_continue(const PlannedRun& run, RunState state) {
  return state == RunState::unfinished && builds_of(read_manifest(run.folder)) == std::vector{build_name()};
}

bool is_kept(RunState state, const SweepOptions& options) {
  return state == RunState::complete || (state == RunState::other_build && !options.force);
}

bool is_done(const PlannedRun& run) {
  const RunState state = state_of(run);
  return state == RunState::complete || state == RunState::other_build;
}

RunsOfPlan runs_of(const SweepPlan& plan) {
  RunsOfPlan runs;
  for (const PlannedRun& run : plan.runs) {
    if (is_run_folder(run.folder))
      runs.folders.push_back(run.folder);
    else
      runs.missing.push_back(plan.folder / sweep_plan / (run.name + ".toml"));
  }
  return runs;
}

}  // namespace fp16lab::experiments
