// fp16lab replay: what every loss-scale policy would have done on a recorded run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/app/commands.hpp"
#include "experiments/app/registry.hpp"
#include "experiments/app/replay/own_policy.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"
#include "reports/figures/replay_figures.hpp"

namespace fp16lab::experiments {
namespace {

struct ReplayCommand {
  CommonOptions common;
  std::filesystem::path run;
  std::vector<std::string> policies;     ///< empty: all
  std::optional<std::int64_t> interval;  ///< growth intervals become at most this
  std::string steps = "all";             ///< or "recorded": leave steps without histograms out
  bool json = false;
};

/// Policies with the same note share a line.
void print_notes(const ReplayFile& replay) {
  for (const std::string& note : replay.notes) say("replay: note: {}", note);
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
  for (const auto& [note, policies] : by_note) say("replay: note: {}: {}", policies, note);
}

ExitCode run_replay(const ReplayCommand& command) {
  if (command.steps != "all" && command.steps != "recorded")
    usage_error("--steps: '" + command.steps + "': expected all or recorded");
  if (!is_run_folder(command.run))
    throw CommandError(ExitCode::usage, fmt::format("{}: no such run folder (a run folder holds {})",
                                                    command.run.string(), run_file::manifest));
  ReplayOptions options;
  options.contestants = {
      .policies = command.policies, .settings = command.common.set, .interval = command.interval};
  options.recorded_only = command.steps == "recorded";
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
    say("replay: {} ({}): {} steps, {} with histograms", replay.run, replay.workload, replay.total_steps,
        replay.observed_steps);
    print_notes(replay);
  }
  if (!command.common.out.empty()) {
    write_claims(command.common, "what would every loss-scale policy have done on this run?", claims);
    write_replay(command.common.out, replay);
    const std::string problem = reports::draw_replay(replay, command.common.out);
    if (!problem.empty()) say("replay: no figure: {}", problem);
  }
  if (command.json)
    fmt::print("{}", to_json(replay));
  else
    fmt::print("{}\n{}", replay_table(replay), analysis::claims_text(claims));
  return ExitCode::ok;
}

}  // namespace

Command replay_command() {
  return {
      .name = "replay",
      .description =
          "What every loss-scale policy would have done on a recorded run, and what it would have cost: "
          "skipped and wasted\n"
          "steps, lost gradients by count and by mass, a bound on the angle. One table on stdout, and below "
          "it whether the\n"
          "run's own policy, replayed, makes the decisions that the run made; -o DIR adds replay.json, "
          "replay.csv,\n"
          "replay_traces.csv, claims.json and a figure. This is not what training would do: the gradients "
          "stay the recorded ones,\n"
          "where another scale would have skipped other steps and changed every later gradient. Each tensor "
          "is judged by the format\n"
          "that held it (of a run in FP32: by FP16). Where an overflow is only possible - the recorded step "
          "held an Inf or NaN, only\n"
          "gradients after a ReLU are beyond, an older folder - both answers are followed, and the numbers "
          "are bounds. The best\n"
          "source is a run in FP32 with observe.histograms_every=1.\n"
          "--set POLICY.PARAMETER=VALUE sets a parameter of one policy, --set scaler.PARAMETER=VALUE of all "
          "that have it.",
      .examples =
          "  fp16lab replay results/classifier --interval 20 -o results/classifier-replay\n"
          "  fp16lab replay results/classifier --policy torch,lost-mass --set "
          "torch.growth_interval=50",
      .uses = {.set = "A policy's parameter: torch.growth_interval=20, or scaler.growth_interval=20 for "
                      "every policy that has it\n(repeatable)",
               .set_type = "POLICY.NAME=VALUE",
               .set_offer = offer_policy_settings,
               .out = "Folder for replay.json, the table as CSV and a figure"},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<ReplayCommand>();
        options.add("RUN", command->run, "Run folder").required().not_empty("a folder").offers(offer_runs());
        options
            .add("--policy", command->policies,
                 "Only this policy, or these with commas between them (repeatable; fp16lab policy --list "
                 "shows them; default: all)")
            .type("NAME")
            .separated(',')
            .repeatable()
            .offers(offer_words(policy_names()));
        options
            .add("--interval", command->interval,
                 "Growth intervals that are longer become N good steps, so that a short run shows what "
                 "policies do")
            .type("N")
            .at_least(1);
        options
            .add("--steps", command->steps,
                 "all (default): steps without histograms hold the last recorded ones; recorded: they "
                 "are left out")
            .type("WHICH")
            .offers(offer_words({"all", "recorded"}));
        options.flag("--json", command->json, "The content of replay.json instead of a table");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_replay(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
