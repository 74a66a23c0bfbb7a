// fp16lab replay: what every loss-scale policy would have done on a recorded run.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/app/commands.hpp"
#include "experiments/app/replay/own_policy.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "reports/figures/replay_figures.hpp"

namespace fp16lab::experiments {
namespace {

/// Policies with the same note share a line.
void print_notes(const ReplayFile& replay) {
  for (const std::string& note : replay.notes) fmt::print(stderr, "replay: note: {}\n", note);
  std::vector<std::pair<std::string, std::string>> by_note;  // note, policies
  for (const ReplayedPolicy& policy : replay.policies) {
    if (policy.note.empty()) continue;
    const auto same = std::find_if(by_note.begin(), by_note.end(),
                                   [&policy](const auto& known) { return known.first == policy.note; });
    if (same == by_note.end())
      by_note.emplace_back(policy.note, policy.label);
    else
      same->second += ", " + policy.label;
  }
  for (const auto& [note, policies] : by_note) fmt::print(stderr, "replay: note: {}: {}\n", policies, note);
}

}  // namespace

ExitCode run_replay(const ReplayCommand& command) {
  if (!is_run_folder(command.run))
    throw CommandError(ExitCode::usage, fmt::format("{}: no such run folder (a run folder holds {})",
                                                    command.run.string(), run_file::manifest));
  ReplayOptions options;
  options.contestants = {
      .policies = command.policies, .settings = command.common.set, .interval = command.interval};
  options.recorded_only = command.recorded_only;
  ReplayFile replay;
  std::vector<Claim> claims;
  try {
    replay = replay_run(command.run, options);
    claims = {replay_own_policy(command.run)};
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, error.what());
  }
  if (!command.common.quiet) {
    fmt::print(stderr, "replay: {} ({}): {} steps, {} with histograms\n", replay.run, replay.workload,
               replay.total_steps, replay.observed_steps);
    print_notes(replay);
  }
  if (!command.common.out.empty()) {
    write_claims(command.common, "what would every loss-scale policy have done on this run?", claims);
    write_replay(command.common.out, replay);
    const std::string problem = reports::draw_replay(replay, command.common.out);
    if (!problem.empty()) fmt::print(stderr, "replay: no figure: {}\n", problem);
  }
  if (command.json)
    fmt::print("{}", to_json(replay));
  else
    fmt::print("{}\n{}", replay_table(replay), analysis::claims_text(claims));
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
