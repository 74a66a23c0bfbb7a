#include "experiments/app/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/app/replay/recorded_run.hpp"
#include "experiments/app/replay/step_outcome.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

/// Three significant digits, but no exponent for what is not tiny.
std::string short_number(double x) {
  if (x == 0) return "0";
  if (x < 1e-4) return fmt::format("{:.1e}", x);
  return fmt::format("{:.3g}", x);
}

std::string log2_text(double log2_scale) {
  if (std::isinf(log2_scale)) return log2_scale > 0 ? "inf" : "0";
  return log2_scale == std::round(log2_scale) ? fmt::format("2^{:.0f}", log2_scale)
                                              : fmt::format("2^{:.3g}", log2_scale);
}

/// Bounds from counts are never exactly 1; what is left of the angle says more than 0.99999.
std::string cosine_text(double cosine) {
  if (cosine == 0) return "0";
  if (cosine > 0.9999) return fmt::format("1-{:.0e}", 1 - cosine);
  return fmt::format("{:.4f}", cosine);
}

constexpr std::array<const char*, 9> headings = {"policy",       "skips",       "wasted",
                                                 "lost count %", "lost L1 %",   "lost L2 %",
                                                 "cosine >=",    "final scale", "exact"};

using engine::amp::PolicyDescription;

constexpr std::string_view interval_name = "growth_interval";
constexpr std::string_view all_policies = "scaler";

struct Setting {
  std::string text;    ///< as given, for messages
  std::string policy;  ///< "scaler": all
  std::string parameter;
  double value = 0;
};

double value_of(const std::string& text, const std::string& setting) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  try {
    return parse_number(text).value.to_double();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--set {}: {}", setting, error.what()));
  }
}

Setting parse(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals || dot == 0 ||
      dot + 1 == equals)
    throw std::invalid_argument(
        fmt::format("--set {}: expected POLICY.PARAMETER=VALUE, such as torch.growth_interval=20, or "
                    "scaler.PARAMETER=VALUE for every policy that has it",
                    text));
  const std::string policy = text.substr(0, dot);
  return {.text = text,
          .policy = policy == all_policies ? policy : std::string(engine::amp::scale_policy(policy).name),
          .parameter = text.substr(dot + 1, equals - dot - 1),
          .value = value_of(text.substr(equals + 1), text)};
}

/// Is the parameter one of `description`, or at least of some policy where the setting is for all?
void check(const Setting& setting, const PolicyDescription* description) {
  try {
    engine::amp::require_parameter(description, setting.parameter);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--set {}: {}", setting.text, error.what()));
  }
}

ReplayedPolicy row_of(const PolicyDescription& description, const engine::amp::ScalePolicy& policy) {
  ReplayedPolicy row;
  row.name = row.label = description.name;
  for (const engine::amp::PolicyParameter& parameter : description.parameters)
    row.parameters.emplace_back(parameter.name, policy.values.real(parameter.name));
  row.source = description.source;
  row.per_layer = description.per_layer;
  return row;
}

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
        fmt::format("{} of {} steps have no histograms: the last recorded ones are used for them (--steps "
                    "recorded leaves these steps out; observe.histograms_every=1 records all)",
                    held, survey.total));
  if (options.contestants.interval)
    notes.push_back(fmt::format("growth intervals above {} are {}, not the policies' own (--interval)",
                                *options.contestants.interval, *options.contestants.interval));
  if (run.rounded())
    notes.push_back(std::string(after_rounding_note) +
                    "; an overflow at the recorded scale may be one at smaller scales too");
  if (!run.checked())
    notes.push_back(
        "the run checked no gradient (scaler.drop_overflow_update = false): overflows are taken from the "
        "counts");
  notes.emplace_back(
      "a replay is not what training would do: the gradients stay those of the recorded run, although "
      "another scale would have skipped or taken other steps and so changed the weights and every later "
      "gradient");
  return notes;
}

}  // namespace

std::vector<Contestant> contestants(const ContestantOptions& options) {
  std::vector<const PolicyDescription*> chosen;
  const auto takes_part = [&chosen](const PolicyDescription& description) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&](const PolicyDescription* known) { return known->name == description.name; });
  };
  const auto choose = [&](const PolicyDescription& description) {
    if (!takes_part(description)) chosen.push_back(&description);
  };
  for (const std::string& name : options.policies) choose(engine::amp::scale_policy(name));
  if (options.policies.empty())
    for (const PolicyDescription& description : engine::amp::scale_policies()) choose(description);

  std::vector<Setting> settings;
  for (const std::string& text : options.settings) {
    const Setting& setting = settings.emplace_back(parse(text));
    const PolicyDescription* const description =
        setting.policy == all_policies ? nullptr : &engine::amp::scale_policy(setting.policy);
    check(setting, description);
    if (description != nullptr && !takes_part(*description))
      throw std::invalid_argument(
          fmt::format("--set {}: policy {} does not take part", setting.text, description->name));
    const bool meant =
        description != nullptr || std::any_of(chosen.begin(), chosen.end(), [&](const auto* candidate) {
          return candidate->find(setting.parameter) != nullptr;
        });
    if (!meant)
      throw std::invalid_argument(fmt::format("--set {}: no policy that takes part has the parameter '{}'",
                                              setting.text, setting.parameter));
  }

  std::vector<Contestant> result;
  for (const PolicyDescription* const description : chosen) {
    engine::amp::ScalerOptions scaler;
    scaler.policy = description->name;
    if (options.interval) {
      const engine::amp::PolicyParameter* const interval = description->find(interval_name);
      if (interval != nullptr && interval->fallback > static_cast<double>(*options.interval))
        scaler.parameters[std::string(interval_name)] = static_cast<double>(*options.interval);
    }
    for (const Setting& setting : settings)
      if ((setting.policy == all_policies && description->find(setting.parameter) != nullptr) ||
          setting.policy == description->name)
        scaler.parameters[setting.parameter] = setting.value;
    try {
      Contestant contestant{.policy = engine::amp::make_scale_policy(scaler), .row = {}};
      contestant.row = row_of(*description, contestant.policy);
      result.push_back(std::move(contestant));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("policy {}: {}", description->name, error.what()));
    }
  }
  return result;
}

Contestant fixed_contestant(double scale, std::string name, std::string label, std::string source) {
  Contestant contestant{.policy = engine::amp::make_scale_policy({.policy = "fixed", .initial_scale = scale}),
                        .row = {}};
  contestant.row.name = std::move(name);
  contestant.row.label = std::move(label);
  contestant.row.source = std::move(source);
  contestant.row.parameters = {{"initial_scale", scale}};
  return contestant;
}

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
          "counts of finished gradients do not show; train with it instead (scaler.policy)";
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

std::string interval_text(const ReplayInterval& interval) {
  return interval.exact() ? fmt::format("{}", interval.lower)
                          : fmt::format("{}..{}", interval.lower, interval.upper);
}

std::string percent_text(const ReplayInterval& share) {
  const std::string lower = short_number(100 * share.lower), upper = short_number(100 * share.upper);
  return lower == upper ? lower : lower + ".." + upper;
}

std::string log2_range_text(double log2_lower, double log2_upper) {
  const std::string lower = log2_text(log2_lower);
  return log2_lower == log2_upper ? lower : lower + ".." + log2_text(log2_upper);
}

std::string replay_table(const ReplayFile& replay) {
  using Cells = std::array<std::string, headings.size()>;
  std::vector<Cells> rows{Cells{}};
  std::copy(headings.begin(), headings.end(), rows.front().begin());
  for (const ReplayedPolicy& policy : replay.policies) {
    if (!policy.replayed || policy.steps.empty()) {
      rows.push_back({policy.label, "-", "-", "-", "-", "-", "-", "-", "not replayable"});
      continue;
    }
    const auto known = [&policy](std::string text) { return policy.any_applied ? std::move(text) : "-"; };
    rows.push_back({policy.label, interval_text(policy.skips), interval_text(policy.wasted_steps),
                    known(percent_text(policy.lost_count)), known(percent_text(policy.lost_l1)),
                    known(percent_text(policy.lost_l2)), known(cosine_text(policy.cosine.lower)),
                    log2_range_text(policy.log2_scale_lower.back(), policy.log2_scale_upper.back()),
                    policy.exact ? "yes" : "bounds"});
  }
  std::array<std::size_t, headings.size()> widths{};
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Cells& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + '\n';
  }
  return text;
}

}  // namespace fp16lab::experiments
