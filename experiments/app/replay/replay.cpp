#include "experiments/app/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/app/replay/recorded_run.hpp"
#include "experiments/app/replay/step_outcome.hpp"

namespace fp16lab::experiments {
namespace {

/// The first pass: what the steps allow.
struct ReplaySurvey {
  ReplayBand band;
  std::uint64_t total = 0, observed = 0, silent = 0;
  std::optional<int> best;  ///< log2 of the largest scale at which no step overflows
};

ReplaySurvey survey(const RecordedRun& run, bool recorded_only) {
  ReplaySurvey result;
  StepJudge judge(run);
  run.for_each_step(recorded_only, [&](const RecordedStep& step) {
    ++result.total;
    if (!step.observed) return;  // it repeats one that was
    ++result.observed;
    judge.begin(step);
    int highest = 0, lossless = 0;
    if (!judge.highest(highest) || !judge.lossless(lossless)) {
      ++result.silent;
      return;
    }
    result.band.steps.push_back(step.step);
    result.band.log2_highest.push_back(highest);
    result.band.log2_lossless.push_back(lossless);
    result.band.log2_one_percent.push_back(judge.smallest_losing(0.01));
    result.best = result.best ? std::min(*result.best, highest) : highest;
  });
  return result;
}

Contestant oracle(int log2_scale) {
  const int usable = std::clamp(log2_scale, -126, 127);
  return fixed_contestant(std::ldexp(1.0, usable), std::string(oracle_name),
                          fmt::format("oracle (fixed 2^{})", usable),
                          "the largest power of two that overflows in no step, chosen in hindsight");
}

std::vector<std::string> notes_of(const RecordedRun& run, const ReplayOptions& options,
                                  const ReplaySurvey& survey) {
  std::vector<std::string> notes = run.notes();
  if (const std::uint64_t held = survey.total - survey.observed; held > 0)
    notes.push_back(
        fmt::format("{} of {} steps have no histograms: the last recorded ones stand in for them (--steps "
                    "recorded leaves these steps out; observe.histograms_every=1 records all)",
                    held, survey.total));
  if (options.contestants.interval)
    notes.push_back(fmt::format("growth intervals above {} are {}, not the policies' own (--interval)",
                                *options.contestants.interval, *options.contestants.interval));
  if (run.rounded())
    notes.push_back(std::string(behind_rounding) +
                    "; an overflow at the recorded scale may be one at smaller scales too");
  if (!run.checked())
    notes.push_back(
        "the run checked no gradient (scaler.drop_overflow_update = false): overflows are told by counts");
  notes.emplace_back(
      "a replay is not what training would do: the gradients stay those of the recorded run, where another "
      "scale would have skipped or taken other steps and so changed the weights and every later gradient");
  return notes;
}

}  // namespace

ReplayFile replay_run(const std::filesystem::path& folder, const ReplayOptions& options) {
  std::vector<Contestant> all = contestants(options.contestants);
  const RecordedRun run(folder);
  const ReplaySurvey seen = survey(run, options.recorded_only);
  if (options.oracle && seen.best) all.push_back(oracle(*seen.best));

  ReplayFile file{.run = run.name(),
                  .workload = run.workload(),
                  .total_steps = seen.total,
                  .observed_steps = seen.observed,
                  .exact = seen.total == seen.observed,
                  .notes = notes_of(run, options, seen),
                  .band = seen.band,
                  .policies = {}};

  std::vector<std::optional<PolicyReplay>> replays;
  for (Contestant& contestant : all) {
    if (contestant.row.per_layer) {
      contestant.row.replayed = contestant.row.exact = false;
      contestant.row.note =
          "not replayable: its scales belong to layers and change what flows on to the next one, which the "
          "counts of finished gradients do not tell; train with it instead (scaler.policy)";
      replays.emplace_back();
    } else {
      replays.emplace_back(PolicyReplay(contestant.policy, contestant.row, options.state_limit));
    }
  }
  StepJudge judge(run);
  run.for_each_step(options.recorded_only, [&](const RecordedStep& step) {
    judge.begin(step);
    for (std::optional<PolicyReplay>& replay : replays)
      if (replay) replay->take(step, judge);
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    ReplayedPolicy row = replays[i] ? replays[i]->finish() : std::move(all[i].row);
    if (seen.total != seen.observed) row.exact = false;
    if (row.replayed) file.exact = file.exact && row.exact;
    file.policies.push_back(std::move(row));
  }
  const auto replayed = std::count_if(file.policies.begin(), file.policies.end(),
                                      [](const ReplayedPolicy& row) { return row.replayed; });
  const auto bounded = std::count_if(file.policies.begin(), file.policies.end(),
                                     [](const ReplayedPolicy& row) { return row.replayed && !row.exact; });
  if (bounded > 0)
    file.notes.insert(file.notes.begin(),
                      fmt::format("scales and skips of {} of {} rows are bounds", bounded, replayed));
  return file;
}

}  // namespace fp16lab::experiments
