// fp16lab replay: what every loss-scale policy would have done on a recorded run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "analysis/claim.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/registry.hpp"
#include "experiments/app/replay/policy_replay.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

/// Why the run's decisions do not follow from what it recorded; empty: they do.
std::string obstacle(const RecordedRun& run, const RunConfig& config) {
  const engine::amp::ScalerOptions& options = config.scaler;
  if (!run.rounded()) return "the run rounded no gradient";
  if (!run.checked() || !options.enabled) return "the run checked no gradient";
  if (options.rescue > 0) return "the run redid steps that overflowed (scaler.rescue)";
  if (engine::amp::scale_policy(options.policy).per_layer || !options.groups.empty())
    return "the run had scales of layers";
  if (engine::amp::scale_policy(options.policy).wants_statistics && config.train.accumulate > 1)
    return "its policy received statistics of sums over micro-batches";
  return {};
}

/// One entry for each step: whether it was skipped, and its scale.
std::string first_difference(const std::vector<StepRow>& recorded, const ReplayedPolicy& replayed) {
  std::size_t entry = 0;
  for (const StepRow& row : recorded) {
    while (entry + 1 < replayed.steps.size() && replayed.steps[entry + 1] <= row.step) ++entry;
    const double scale = std::log2(row.loss_scale);
    const auto skips = [&](const std::vector<std::uint64_t>& steps) {
      return std::ranges::binary_search(steps, row.step) == row.skipped;
    };
    if (replayed.log2_scale_lower[entry] != scale || replayed.log2_scale_upper[entry] != scale)
      return fmt::format("step {} has the scale 2^{:g}, replayed 2^{:g}", row.step, scale,
                         replayed.log2_scale_lower[entry]);
    if (!skips(replayed.skipped_lower) || !skips(replayed.skipped_upper))
      return fmt::format("step {} was {}, replayed it is not", row.step, row.skipped ? "skipped" : "taken");
  }
  return {};
}

/// A run's own policy, replayed on the run: does it make the decisions that the run made? At the recorded
/// scale the run's own found_inf answers, so every scale and every skip must come out again; if not, no other
/// row of a replay is to be trusted.
/// Not run, with the reason, for a run whose decisions do not follow from what it recorded: it rounded or
/// checked nothing, has scales of layers or groups, redid steps, or gave its policy what only steps with
/// histograms know. Exceptions as replay_run.
analysis::Claim replay_own_policy(const std::filesystem::path& folder) {
  analysis::Claim claim{.claim = "the run's own policy, replayed, makes the decisions that the run made",
                        .criterion = "the scale of every step and every skip are those of steps.csv"};
  const RecordedRun run(folder);
  RunConfig config;
  try {
    config = parse_config(run.folder().manifest.config, (folder / run_file::config).string());
  } catch (const CommandError& error) {  // of another version
    claim.measured = error.what();
    return claim;
  }
  resolve_names(config);
  claim.measured = obstacle(run, config);
  if (!claim.measured.empty()) return claim;

  const engine::amp::ScalePolicy policy = engine::amp::make_scale_policy(config.scaler);
  PolicyReplay replay(policy, {.name = policy.name, .label = policy.name});
  StepJudge judge(run);
  std::uint64_t first = 0, unseen = 0;
  run.for_each_step(false, [&](const RecordedStep& step) {
    if (first == 0) first = step.step;
    unseen += step.observed ? 0 : 1;
    judge.begin(step);
    replay.take(step, judge);
  });
  const std::vector<StepRow>& steps = run.folder().steps;
  if (first != steps.front().step) {
    claim.measured = fmt::format(
        "the first histograms are of step {}: what the policy knew by then is not recorded", first);
    return claim;
  }
  if (policy.wants_statistics && unseen > 0) {
    claim.measured =
        fmt::format("the policy received statistics of {} steps that have no histograms", unseen);
    return claim;
  }
  const std::string difference = first_difference(steps, replay.finish());
  claim.verdict = analysis::verdict_of(difference.empty());
  claim.measured = difference.empty() ? fmt::format("policy {}: the scales and skips of all {} steps",
                                                    policy.name, steps.size())
                                      : fmt::format("policy {}: {}", policy.name, difference);
  return claim;
}

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
          "Replay a run under every loss-scale policy: what each would have done, and what it would have "
          "cost: skipped and wasted\nsteps, lost gradients by count and by mass, a bound on the angle. "
          "Prints a table, and below it whether the\nrun's own policy, replayed, makes the decisions that "
          "the run made; -o DIR adds replay.json, replay.csv,\nreplay_traces.csv, claims.json and a figure. "
          "A replay is not a training run: the gradients stay the recorded ones,\nalthough another scale "
          "would have skipped other steps and changed every later gradient. Each tensor is judged by the "
          "format\nthat held it (a run in FP32: by FP16). Where an overflow is only possible - the recorded "
          "step held an Inf or NaN, only\ngradients after a ReLU are out of range, an older folder - both "
          "outcomes are followed, and the numbers are bounds. The best\nsource is a run in FP32 with "
          "observe.histograms_every=1.\n--set POLICY.PARAMETER=VALUE sets a parameter of one policy, --set "
          "scaler.PARAMETER=VALUE that of every policy that has it.",
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
                 "Only this policy, or several separated by commas (repeatable; fp16lab policy --list shows "
                 "them; default: all)")
            .type("NAME")
            .separated(',')
            .repeatable()
            .offers(offer_words(policy_names()));
        options
            .add(
                "--interval", command->interval,
                "Shorten longer growth intervals to N good steps, so that a short run shows what policies do")
            .type("N")
            .at_least(1);
        options
            .add("--steps", command->steps,
                 "all (default): steps without histograms use the last recorded ones; recorded: they are "
                 "left out")
            .type("WHICH")
            .offers(offer_words({"all", "recorded"}));
        options.flag("--json", command->json, "Print the content of replay.json instead of a table");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_replay(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
