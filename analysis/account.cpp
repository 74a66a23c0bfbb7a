#include "analysis/account.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

#include "analysis/first_culprit.hpp"
#include "analysis/interval_json.hpp"
#include "analysis/percent_text.hpp"
#include "analysis/tensor_state.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

/// While a policy looks for its scale, steps are skipped; later so many may be.
constexpr double most_skipped = 0.01;
/// So many falls after the first step that was taken, without a growth, are a scale that sinks.
constexpr std::uint64_t sinking_falls = 8;

/// Steps of a run that have something in common.
struct StepsWith {
  std::uint64_t count = 0, first = 0, last = 0;
  void add(std::uint64_t step) {
    if (count++ == 0) first = step;
    last = step;
  }
  /// "step 7", "steps 1 to 300", "45 steps from 3 to 590"
  std::string where() const {
    if (count == 1) return fmt::format("step {}", first);
    if (count == last - first + 1) return fmt::format("steps {} to {}", first, last);
    return fmt::format("{} steps from {} to {}", count, first, last);
  }
};

/// What steps.csv and evaluations.csv say.
struct StepTally {
  std::uint64_t steps = 0, taken_steps = 0;
  StepsWith nonfinite_loss, nonfinite_taken, nonfinite_evaluation;
  StepsWith skipped, before_first, later;  ///< later: after the first step that was taken
  bool grew = false;
  std::uint64_t falls = 0;                         ///< after the first step that was taken
  std::uint64_t settled = 0, settled_skipped = 0;  ///< steps since the scale was found (is_serious)
  bool told = true;                                ///< the loss
  double first_scale = 1, last_scale = 1;
  double skipped_least = std::numeric_limits<double>::infinity(), skipped_most = 0;  ///< scales

  explicit StepTally(const RunFolder& run) : told(tells_loss(run)) {
    double scale = 0;
    for (const StepRow& row : run.steps) add(row, scale);
    for (const EvaluationRow& row : run.evaluations)
      if (!std::isfinite(row.loss)) nonfinite_evaluation.add(row.step);
  }
  void add(const StepRow& row, double& scale) {
    if (steps++ == 0) first_scale = scale = row.loss_scale;
    if (!grew && row.loss_scale != scale) settled = settled_skipped = 0;
    if (row.loss_scale > scale) grew = true;
    if (row.loss_scale < scale && taken_steps > 0) ++falls;
    scale = last_scale = row.loss_scale;
    if (told && !std::isfinite(row.loss)) nonfinite_loss.add(row.step);
    if (row.skipped ? taken_steps > 0 : true) ++settled, settled_skipped += row.skipped ? 1 : 0;
    if (!row.skipped) {
      ++taken_steps;
      if (!std::isfinite(row.grad_norm) && row.found_inf) nonfinite_taken.add(row.step);
      return;
    }
    skipped.add(row.step);
    (taken_steps == 0 ? before_first : later).add(row.step);
    skipped_least = std::min(skipped_least, scale);
    skipped_most = std::max(skipped_most, scale);
  }
  /// Were too many skipped after the scale was found: after its first growth, after its last fall where it
  /// never grew, after the first step that was taken where it never moved?
  bool skips_too_many() const {
    return static_cast<double>(settled_skipped) > most_skipped * static_cast<double>(settled) || sinks();
  }
  bool sinks() const { return !grew && falls >= sinking_falls; }
};

/// What histograms.jsonl says of one gradient, over all steps and in all formats.
struct TensorTally {
  std::string name;
  CastCounts casts;
  FitSums fit;
  StepsWith nonfinite;  ///< Inf or NaN before any cast, or as PyTorch stored them
};

struct GradientTally {
  std::vector<TensorTally> tensors;  ///< in file order
  std::optional<CastCounts> casts;
  bool any = false;
  bool casts_unseen = false;  ///< 16 bits, and nobody saw the casts
  DType format = DType::f16;  ///< of the casts

  TensorTally& of(const std::string& name) {
    const auto found = index_.try_emplace(name, tensors.size());
    if (found.second) tensors.push_back({.name = name, .casts = {}, .fit = {}, .nonfinite = {}});
    return tensors[found.first->second];
  }

 private:
  std::map<std::string, std::size_t, std::less<>> index_;
};

GradientTally gradients_of(const RunFolder& run, const std::set<std::uint64_t>& skipped) {
  GradientTally all;
  if (!is_file(run.path / run_file::histograms)) return all;
  const bool watched = is_watched(run.manifest);
  for_each_histogram(run.path, [&](const HistogramRow& row) {
    all.any = true;
    const std::optional<CastCounts> counts = cast_counts(row.dtype, row.before, row.after, watched);
    if (counts) *(all.casts ? &*all.casts : &all.casts.emplace()) += *counts;
    if (is_fp8(row.dtype)) return;
    TensorTally& tensor = all.of(row.tensor);
    if (row.before.infinite + row.before.nan > 0) tensor.nonfinite.add(row.step);
    if (row.dtype != DType::f32 && !counts) all.casts_unseen = true;
    if (!counts) return;
    all.format = row.dtype;
    tensor.casts += *counts;
    // Of a step that is skipped nothing reaches the weights.
    if (!skipped.contains(row.step)) tensor.fit += fit_sums(row.before, range_of(row.dtype), 1.0);
  });
  return all;
}

/// The command that trained, with more options and another folder; empty where train did not.
std::string trained_again(const RunFolder& run, const std::string& options, const std::string& folder) {
  const std::vector<std::string>& given = run.manifest.argv;
  if (given.size() < 2 || given[1] != "train" || is_watched(run.manifest)) return {};
  std::vector<std::string> words{"fp16lab", "train"};
  for (std::size_t i = 2; i < given.size(); ++i) {
    if (given[i] == "-o" || given[i] == "--out") {
      ++i;
      continue;
    }
    if (given[i] != "--force" && given[i] != "--resume" && given[i] != options &&
        !given[i].starts_with("--out="))
      words.push_back(given[i]);
  }
  words.push_back(options);
  words.insert(words.end(), {"-o", folder});
  return shell_line(words);
}

std::string looked_at_by(const RunFolder& run) {
  if (is_watched(run.manifest))
    return "lab.explain_overflow(model, closure, scale) names the first operation that gave an Inf or NaN";
  const std::string folder =
      (run.path.parent_path() / (run.path.filename().string() + "-explained")).string();
  const std::string again = trained_again(run, "--explain-overflow", folder);
  return again.empty() ? "fp16lab train --explain-overflow names the first operation that gave an Inf or NaN"
                       : again + " (names the first operation that gave an Inf or NaN)";
}

/// " It diverged at step 20: 20 skipped steps in a row. bad scale: ...": how the run ended, as train found
/// it.
std::string diagnosis_of(const RunFolder& run) {
  if (run.manifest.state != ExitState::diverged || run.manifest.message.empty()) return {};
  return fmt::format(" It {}.", run.manifest.message);
}

/// The culprit of a pass, of the earliest step.
const CulpritRow* first_of(const std::vector<CulpritRow>& culprits, CulpritPass pass) {
  const auto found =
      std::ranges::find_if(culprits, [pass](const CulpritRow& row) { return row.pass == pass; });
  return found == culprits.end() ? nullptr : &*found;
}

std::string told_by(const CulpritRow* culprit) {
  return culprit == nullptr ? "" : fmt::format(" First, in {}.", culprit_line(*culprit));
}

std::optional<Finding> nonfinite_finding(const RunFolder& run, const StepTally& tally,
                                         const GradientTally& gradients,
                                         const std::vector<CulpritRow>& culprits) {
  Finding finding{.trouble = Trouble::non_finite, .serious = true};
  const CulpritRow* culprit = first_of(culprits, CulpritPass::forward);
  if (tally.nonfinite_loss.count > 0) {
    finding.since = tally.nonfinite_loss.first;
    finding.text = fmt::format("The loss is Inf or NaN in {} of {} steps, since step {}.",
                               tally.nonfinite_loss.count, tally.steps, tally.nonfinite_loss.first);
  } else if (tally.nonfinite_taken.count > 0) {
    finding.since = tally.nonfinite_taken.first;
    for (auto tensor = gradients.tensors.rbegin(); tensor != gradients.tensors.rend(); ++tensor)
      if (tensor->nonfinite.count > 0 && finding.tensor.empty()) finding.tensor = tensor->name;
    finding.text =
        fmt::format("Gradients were Inf or NaN in {}, and {} taken all the same.",
                    tally.nonfinite_taken.where(), tally.nonfinite_taken.count == 1 ? "it was" : "they were");
  } else if (tally.nonfinite_evaluation.count > 0) {
    finding.since = tally.nonfinite_evaluation.first;
    finding.text = fmt::format("The evaluation after step {} is Inf or NaN, the training loss never was.",
                               tally.nonfinite_evaluation.first);
  } else {
    return std::nullopt;
  }
  if (culprit != nullptr) finding.tensor = culprit->tensor;
  finding.text += told_by(culprit);
  const std::string diagnosis = diagnosis_of(run);
  finding.text += diagnosis;
  if (diagnosis.empty() && culprit == nullptr && tally.nonfinite_loss.count > 0)
    finding.text += " The loss scale does not enter the forward pass, so no scale helps.";
  return finding;
}

/// "at a scale of 2^16 throughout", "while the scale fell from 2^32 to 2^20"
std::string scales_text(double first, double last) {
  return first == last ? fmt::format("at a scale of {} throughout", scale_text(first))
                       : fmt::format("at scales from {} to {}", scale_text(first), scale_text(last));
}

/// The tensors whose gradients overflowed in most steps, the one nearest to the loss first: parameters are in
/// the network's order.
std::string overflowed_tensors(const std::vector<OverflowRow>& overflows, std::string& nearest) {
  std::map<std::string, std::uint64_t> steps;
  std::vector<std::string> order;
  for (const OverflowRow& row : overflows)
    for (const std::string& parameter : row.parameters)
      if (++steps[parameter] == 1) order.push_back(parameter);
  if (order.empty()) return "";
  std::uint64_t most = 0;
  for (const auto& [name, count] : steps) most = std::max(most, count);
  const auto found = std::find_if(order.rbegin(), order.rend(),
                                  [&](const std::string& name) { return steps[name] == most; });
  nearest = *found;
  return fmt::format(" The gradient of {} was Inf or NaN in {}{}.", nearest, counted(most, "step"),
                     order.size() == 1
                         ? ""
                         : fmt::format("; of {} parameters with such gradients it is the nearest to the loss",
                                       order.size()));
}

std::optional<Finding> overflow_finding(const RunFolder& run, const StepTally& tally,
                                        const GradientTally& gradients,
                                        const std::vector<OverflowRow>& overflows,
                                        const std::vector<CulpritRow>& culprits) {
  Finding finding{.trouble = Trouble::overflow};
  CastCounts casts;
  for (const TensorTally& tensor : gradients.tensors) casts += tensor.casts;
  if (tally.skipped.count == 0 && casts.overflow == 0) return std::nullopt;
  finding.since = tally.skipped.count > 0 ? std::optional(tally.skipped.first) : std::nullopt;
  std::string& text = finding.text;
  if (tally.skipped.count == tally.steps) {
    finding.serious = true;
    text = fmt::format("No step was taken: skipped {} of {} steps, ", tally.skipped.count, tally.steps);
    const bool falling = tally.last_scale < tally.first_scale && run.manifest.state != ExitState::diverged;
    text += falling ? fmt::format("still searching: {} to {} in {}.", scale_text(tally.first_scale),
                                  scale_text(tally.last_scale), counted(tally.steps, "step"))
                    : scales_text(tally.first_scale, tally.last_scale) + ".";
  } else if (tally.skipped.count > 0) {
    finding.serious = tally.skips_too_many();
    text = fmt::format("Skipped {} of {} steps", tally.skipped.count, tally.steps);
    if (tally.later.count == 0)
      text += fmt::format(", all before the first that was taken, {}.",
                          scales_text(tally.skipped_most, tally.skipped_least));
    else if (tally.before_first.count == 0)
      text += fmt::format(" ({}), {}.", tally.later.where(),
                          scales_text(tally.skipped_most, tally.skipped_least));
    else
      text += fmt::format(": {} before the first that was taken, then {}, {}.", tally.before_first.count,
                          tally.later.where(), scales_text(tally.skipped_most, tally.skipped_least));
  } else {
    finding.serious = true;
    text = fmt::format("Casts made {} of {} gradient values Inf or NaN, and no step was skipped.",
                       casts.overflow, casts.values);
  }
  text += overflowed_tensors(overflows, finding.tensor);
  if (finding.tensor.empty())
    for (const TensorTally& tensor : gradients.tensors)
      if (tensor.casts.overflow > 0 && finding.tensor.empty()) {
        finding.tensor = tensor.name;
        text += fmt::format(" First among them: {} ({} values).", tensor.name, tensor.casts.overflow);
      }
  if (!finding.serious) return finding;
  const CulpritRow* culprit = first_of(culprits, CulpritPass::backward);
  text += told_by(culprit);
  if (tally.sinks() && culprit == nullptr)
    text += fmt::format(
        " The scale fell {} times and never grew: gradients grow as training goes on, which is "
        "what a learning rate too high looks like.",
        tally.falls);
  // The words of an end by a loss that is not finite are the first finding's.
  const std::string diagnosis = tally.nonfinite_loss.count > 0 ? "" : diagnosis_of(run);
  text += diagnosis;
  // Where the loss itself is not finite, no scale helps.
  if (diagnosis.empty() && tally.nonfinite_loss.count == 0 && tally.skipped.count > 1 &&
      tally.skipped_least == tally.skipped_most && tally.first_scale == tally.last_scale)
    text += fmt::format(" The scale never left {}: set a lower one, or take a policy that lowers it.",
                        scale_text(tally.first_scale));
  return finding;
}

/// Of what is said: the casts of a run, or a format at a scale.
struct Subject {
  std::string makes;   ///< "Casts to FP16 made", "FP16 at 2^0 makes"
  std::string values;  ///< "gradients", "values"
  DType format = DType::f16;
};

using States = std::span<const TensorState>;

const TensorState* worst_of(States tensors, const auto& measure) {
  const TensorState* worst = nullptr;
  for (const TensorState& tensor : tensors)
    if (measure(tensor) > 0 && (worst == nullptr || measure(tensor) > measure(*worst))) worst = &tensor;
  return worst;
}

/// How many tensors have something in a step.
std::size_t tensors_with(States tensors, const auto& what) {
  std::set<std::string_view> names;
  for (const TensorState& tensor : tensors)
    if (what(tensor)) names.insert(tensor.name);
  return names.size();
}

/// "fc1.weight", "fc1.weight in step 30"
std::string with_step(const TensorState& tensor) {
  return tensor.step ? fmt::format("{} in step {}", tensor.name, *tensor.step) : tensor.name;
}

/// "3.2 times"; of an error without a bound nobody reads digits.
std::string ratio_text(double ratio) {
  return ratio < 1000 ? fmt::format("{:.3g} times", ratio) : std::string("more than 1000 times");
}

std::optional<Finding> underflow_finding(States tensors, const RateInterval& lost, const Subject& subject) {
  const std::size_t unfit =
      tensors_with(tensors, [](const TensorState& tensor) { return tensor.fit.loses_too_much(); });
  const TensorState* worst =
      worst_of(tensors, [](const TensorState& tensor) { return rates_of(tensor.counts).lost.upper; });
  if (worst == nullptr) return std::nullopt;
  Finding finding{.trouble = Trouble::underflow, .serious = unfit > 0, .tensor = worst->name};
  finding.text =
      fmt::format("{} {} % of the finite non-zero {} zero, most in {}: {} % of its own.", subject.makes,
                  percent(lost), subject.values, with_step(*worst), percent(rates_of(worst->counts).lost));
  if (unfit == 0)
    finding.text += " Zeros in place of them raise no tensor's rounding error by a tenth.";
  else
    finding.text += fmt::format(
        " In {} that alone makes the rounding error more than {:g} times what {}'s precision costs.",
        counted(unfit, "tensor"), fit_limit, title_of(subject.format));
  return finding;
}

std::optional<Finding> distortion_finding(States tensors, DType format) {
  const auto ratio = [](const TensorState& tensor) {
    return tensor.fit.is_distorted() ? tensor.fit.ratio() : 0;
  };
  const TensorState* worst = worst_of(tensors, ratio);
  if (worst == nullptr) return std::nullopt;
  const std::size_t unfit =
      tensors_with(tensors, [&ratio](const TensorState& tensor) { return ratio(tensor) > 0; });
  return Finding{
      .trouble = Trouble::distortion,
      .serious = true,
      .tensor = worst->name,
      .since = {},
      .text = fmt::format(
          "{} keeps fewer bits of numbers below 2^{}: the rounding error of {} was up to {} what it is "
          "above that{}.",
          title_of(format), range_of(format).smallest_normal, with_step(*worst), ratio_text(ratio(*worst)),
          unfit == 1
              ? ""
              : fmt::format("; {} of {} tensors had more than {:g} times", unfit,
                            tensors_with(tensors, [](const TensorState&) { return true; }), fit_limit))};
}

/// What the casts of a run made of each gradient.
std::vector<TensorState> states_of(const GradientTally& gradients) {
  std::vector<TensorState> states;
  for (const TensorTally& tensor : gradients.tensors) {
    RangeCounts counts;
    counts.total = tensor.casts.values;
    counts.lost = {tensor.casts.underflow, tensor.casts.underflow};
    counts.overflow = {tensor.casts.overflow, tensor.casts.overflow};
    states.push_back({.name = tensor.name, .counts = counts, .fit = tensor.fit});
  }
  return states;
}

// ---- of values --------------------------------------------------------------------------------------------

std::optional<Finding> nonfinite_values(const RangeReport& report, const FormatRange& range,
                                        std::optional<double> scale) {
  Finding finding{.trouble = Trouble::non_finite, .serious = true};
  std::vector<TensorState> found;  // each in its first step
  std::map<std::string, std::size_t> places;
  std::set<std::string> tensors;
  for (const std::string& entry : report.tensors()) {
    tensors.insert(report.tensor_of(entry));
    TensorState state{.name = report.tensor_of(entry), .step = report.step_of(entry)};
    state.counts = report.tensor(entry).at_scale(range, scale);
    if (state.nonfinite() == 0) continue;
    if (state.step && (!finding.since || *state.step < *finding.since)) finding.since = state.step;
    const auto [place, added] = places.try_emplace(state.name, found.size());
    if (added)
      found.push_back(std::move(state));
    else if (state.step < found[place->second].step)
      found[place->second] = std::move(state);
  }
  if (found.empty()) return std::nullopt;
  std::ranges::stable_sort(found, [](const TensorState& a, const TensorState& b) { return a.step < b.step; });
  finding.tensor = found.front().name;
  finding.text = fmt::format("{} of {} tensors {} Inf or NaN", found.size(), tensors.size(),
                             found.size() == 1 ? "holds" : "hold");
  if (finding.since) finding.text += fmt::format(", first in step {}", *finding.since);
  constexpr std::size_t named_at_most = 4;
  for (std::size_t i = 0; i < std::min(found.size(), named_at_most); ++i) {
    const RangeCounts& counts = found[i].counts;
    finding.text += fmt::format("{} {} (", i == 0 ? ":" : ",", with_step(found[i]));
    if (counts.infinite > 0) finding.text += fmt::format("{} Inf", counts.infinite);
    if (counts.nan > 0) finding.text += fmt::format("{}{} NaN", counts.infinite > 0 ? ", " : "", counts.nan);
    finding.text += fmt::format(" of {})", counted(counts.total, "value"));
  }
  if (found.size() > named_at_most) finding.text += fmt::format(" and {} more", found.size() - named_at_most);
  finding.text += ".";
  return finding;
}

std::optional<Finding> overflowing_values(States tensors, const RateInterval& overflow,
                                          const Subject& subject, std::optional<double> scale) {
  const TensorState* worst =
      worst_of(tensors, [](const TensorState& tensor) { return rates_of(tensor.counts).overflow.upper; });
  if (worst == nullptr) return std::nullopt;
  const std::size_t several =
      tensors_with(tensors, [](const TensorState& tensor) { return tensor.counts.overflow.upper > 0; });
  Finding finding{.trouble = Trouble::overflow, .serious = true, .tensor = worst->name, .since = worst->step};
  finding.text = fmt::format("{} {} % of the finite non-zero {} Inf or NaN, most in {}: {} % of its own",
                             subject.makes, percent(overflow), subject.values, with_step(*worst),
                             percent(rates_of(worst->counts).overflow));
  if (worst->magnitudes && scale)
    finding.text += fmt::format(", the largest {:.3g} times {}'s largest number",
                                worst->magnitudes->greatest * *scale / range_of(subject.format).largest(),
                                title_of(subject.format));
  finding.text += several == 1 ? "."
                               : fmt::format(". {} of {} tensors overflow.", several,
                                             tensors_with(tensors, [](const TensorState&) { return true; }));
  return finding;
}

/// `explained`: the cause is named already.
std::string next_of(const RunFolder& run, const Account& account, bool explained) {
  const std::string folder = run.path.string();
  const Finding* worst = account.worst();
  if (worst != nullptr && (worst->trouble == Trouble::non_finite || worst->trouble == Trouble::overflow) &&
      !explained)
    return looked_at_by(run);
  if (worst != nullptr && account.counted && worst->trouble != Trouble::non_finite)
    return shell_line({"fp16lab", "hist", folder}) + " (which scale would do)";
  return shell_line({"fp16lab", "report", folder}) + " (figures and a page)";
}

}  // namespace

std::string_view name_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::non_finite:
      return "non_finite";
    case Trouble::overflow:
      return "overflow";
    case Trouble::underflow:
      return "underflow";
    case Trouble::distortion:
      return "distortion";
  }
  return "?";
}

bool tells_loss(const RunFolder& run) {
  return !is_watched(run.manifest) ||
         std::ranges::any_of(run.steps, [](const StepRow& row) { return !std::isnan(row.loss); });
}

const Finding* Account::worst() const {
  const auto found = std::ranges::find_if(findings, &Finding::serious);
  return found == findings.end() ? nullptr : &*found;
}

bool Account::worse_than(const Account& other) const {
  const auto harm = [](const Account& account) {
    const Finding* worst = account.worst();
    const int rank = worst == nullptr ? 0 : 4 - static_cast<int>(worst->trouble);
    return std::tuple(
        rank, account.took_no_step(),
        account.steps == 0 ? 0.0 : static_cast<double>(account.skipped) / static_cast<double>(account.steps),
        account.casts ? account.casts->underflow_rate() : 0.0);
  };
  return harm(*this) > harm(other);
}

Account account_of(const RunFolder& run) {
  const StepTally tally(run);
  std::set<std::uint64_t> skipped;
  for (const StepRow& row : run.steps)
    if (row.skipped) skipped.insert(row.step);
  const GradientTally gradients = gradients_of(run, skipped);
  const std::vector<TensorState> states = states_of(gradients);
  RangeCounts all;
  for (const TensorState& tensor : states) all += tensor.counts;
  const Subject casts{.makes = fmt::format("Casts to {} made", title_of(gradients.format)),
                      .values = "gradients",
                      .format = gradients.format};
  const std::vector<CulpritRow> culprits = read_culprits(run.path);
  Account account{.findings = {},
                  .steps = tally.steps,
                  .skipped = tally.skipped.count,
                  .counted = gradients.any,
                  .counts_casts = !gradients.casts_unseen,
                  .casts = gradients.casts,
                  .next = {}};
  for (std::optional<Finding>& finding : std::array{
           nonfinite_finding(run, tally, gradients, culprits),
           overflow_finding(run, tally, gradients, read_overflows(run.path), culprits),
           underflow_finding(states, rates_of(all).lost, casts), distortion_finding(states, casts.format)})
    if (finding) account.findings.push_back(std::move(*finding));
  const std::string& message = run.manifest.message;
  const bool known = run.manifest.state == ExitState::diverged && !message.empty() &&
                     message.find("--explain-overflow") == std::string::npos;
  account.next = next_of(run, account, known || !culprits.empty());
  return account;
}

Account account_of(const RangeReport& report, DType format, std::optional<double> scale) {
  const FormatRange range = range_of(format);
  std::vector<TensorState> states;  // of each tensor in each step
  for (const std::string& entry : report.tensors()) states.push_back(state_of(report, entry, range, scale));
  const ZoneRates rates = rates_of(report.merged().at_scale(range, scale));
  const Subject subject{.makes = fmt::format("{} at {} makes", title_of(format),
                                             scale ? scale_text(*scale) : "the scales that they carry"),
                        .values = "values",
                        .format = format};
  Account account{.findings = {}, .trained = false, .casts = {}, .next = {}};
  for (std::optional<Finding>& finding : std::array{
           nonfinite_values(report, range, scale), overflowing_values(states, rates.overflow, subject, scale),
           underflow_finding(states, rates.lost, subject), distortion_finding(states, format)})
    if (finding) account.findings.push_back(std::move(*finding));
  return account;
}

std::string findings_text(const Account& account) {
  std::string text;
  for (const Finding& finding : account.findings) text += finding.text + "\n";
  if (account.nothing_to_fix())
    text += !account.findings.empty() ? "Nothing to fix in that.\n"
            : !account.trained
                ? "Nothing to fix: every value is finite, and every tensor fits.\n"
                : "Nothing to fix: every loss and every gradient that was counted is finite, no step was "
                  "skipped, and every tensor fits.\n";
  else if (account.trained && account.worst() == nullptr && account.steps > account.skipped &&
           !account.counted)
    text += "What underflows is not known: no gradients were counted (observe.histograms_every).\n";
  if (account.counted && !account.counts_casts)
    text +=
        "PyTorch rounds inside of its operations, where no cast can be seen: what became zero there is "
        "among the zeros.\n";
  return text;
}

std::string account_text(const Account& account) {
  return findings_text(account) + "Next: " + account.next + "\n";
}

std::string account_json(const Account& account) {
  Json findings = Json::array();
  for (const Finding& finding : account.findings)
    findings.push_back({{"trouble", name_of(finding.trouble)},
                        {"serious", finding.serious},
                        {"tensor", finding.tensor},
                        {"since", finding.since ? Json(*finding.since) : Json(nullptr)},
                        {"text", finding.text}});
  const Json json = {{"steps", account.steps},
                     {"skipped", account.skipped},
                     {"nothing_to_fix", account.nothing_to_fix()},
                     {"findings", std::move(findings)},
                     {"next", account.next}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fp16lab::analysis
