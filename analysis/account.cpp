#include "analysis/account.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <tuple>

#include "analysis/first_culprit.hpp"
#include "analysis/interval_json.hpp"
#include "analysis/percent_text.hpp"
#include "analysis/tensor_findings.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

/// While a policy looks for its scale, steps are skipped; later so many may be.
constexpr double most_skipped = 0.01;
/// So many falls after the first step that was taken, without a growth, are a scale that sinks.
constexpr std::uint64_t sinking_falls = 8;
/// A loss so many times its first value has grown out of all proportion (as engine/train/diagnosis.hpp).
constexpr double grown_loss = 10;
/// If the loss is lost for good after at most so many updates, they lost it, as far as rows can show.
constexpr std::uint64_t first_updates = 3;

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

/// Did the data or the model cause it, whatever the updates were?
bool is_of_data(const CulpritRow* culprit) {
  return culprit != nullptr &&
         (culprit->cause == CulpritCause::data || culprit->cause == CulpritCause::constant ||
          culprit->cause == CulpritCause::infinity);
}

/// What steps.csv and evaluations.csv say.
struct StepTally {
  std::uint64_t steps = 0, taken_steps = 0;
  StepsWith nonfinite_loss, nonfinite_taken, nonfinite_evaluation;
  StepsWith skipped, before_first, later;  ///< later: after the first step that was taken
  bool grew = false;
  std::uint64_t finite_steps = 0;                  ///< taken, and by gradients that did not overflow
  std::uint64_t falls = 0;                         ///< after the first step whose gradients were finite
  std::uint64_t settled = 0, settled_skipped = 0;  ///< steps since the scale was found (is_serious)
  bool told = true;                                ///< the loss
  double first_scale = 1, last_scale = 1;
  double skipped_least = std::numeric_limits<double>::infinity(), skipped_most = 0;  ///< scales
  // Up to the first step whose loss or gradients were not finite, and with its loss:
  std::uint64_t trouble = 0, updates = 0;  ///< that step (0: none), and the steps taken before it
  double trouble_scale = 1;                ///< its loss scale
  std::optional<double> first_loss;
  double greatest_loss = 0;  ///< finite magnitude
  double rate = 0;           ///< learning rate of the last update before it, or, without one, the run's last
  double last_loss = 0;
  bool came_back = false;  ///< a finite loss after one that was not

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
    if (row.loss_scale < scale && finite_steps > 0) ++falls;
    scale = last_scale = row.loss_scale;
    follow_loss(row);
    if (told && !std::isfinite(row.loss)) nonfinite_loss.add(row.step);
    if (!row.skipped && !row.found_inf) ++finite_steps;
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
  /// From where to where the loss went, if it more than doubled.
  std::optional<std::pair<double, double>> rise() const {
    if (!first_loss || !(*first_loss > 0) || !std::isfinite(last_loss) || last_loss <= 2 * *first_loss)
      return std::nullopt;
    return std::pair(*first_loss, last_loss);
  }
  void follow_loss(const StepRow& row) {
    const bool finite = std::isfinite(row.loss);
    last_loss = row.loss;
    if (finite && nonfinite_loss.count > 0) came_back = true;
    if (trouble > 0) {
      if (updates == 0 && !row.skipped) rate = row.lr;
      return;
    }
    if (finite && !first_loss) first_loss = row.loss;
    if (finite) greatest_loss = std::max(greatest_loss, std::fabs(row.loss));
    if (!finite || row.found_inf || row.skipped || !std::isfinite(row.grad_norm)) {
      trouble = row.step;
      trouble_scale = row.loss_scale;
    } else {
      ++updates;
      rate = row.lr;
    }
  }
  /// Were too many skipped after the scale was found: after its first growth, after its last fall where it
  /// never grew, after the first step that was taken where it never moved?
  bool skips_too_many() const {
    return static_cast<double>(settled_skipped) > most_skipped * static_cast<double>(settled) || sinks();
  }
  bool sinks() const { return !grew && falls >= sinking_falls; }
  /// The scale fell and has not grown: the rows do not show whether it is found yet.
  bool searches() const { return !grew && finite_steps < steps && last_scale < first_scale; }
  /// " (it was 0.1)"; "" where it is not known.
  std::string rate_text() const { return rate > 0 ? fmt::format(" (it was {:.4g})", rate) : ""; }
  /// " The loss had grown from ...": where rows show that updates were too large; "" where they do not.
  /// `culprit`: the first of a forward pass, if it is known. One in the data, or put there by the model
  /// itself, has nothing to do with updates, and an operation need not: then the loss has to have grown.
  std::string too_large_updates(const CulpritRow* culprit) const {
    if (trouble == 0 || updates == 0 || !first_loss || is_of_data(culprit)) return {};
    const double limit = grown_loss * std::fabs(*first_loss);
    std::string what;
    if (limit > 0 && greatest_loss > limit && !(std::fabs(last_loss) <= limit))
      what = fmt::format("The loss had grown from {:.4g} to {:.4g} by step {}, before anything overflowed",
                         *first_loss, greatest_loss, trouble);
    else if ((culprit == nullptr || culprit->cause == CulpritCause::parameter) && updates <= first_updates &&
             nonfinite_loss.count > 1 && nonfinite_loss.first == trouble && !came_back)
      what =
          fmt::format("No loss was finite after the update of step {}, and nothing had overflowed before it",
                      trouble - 1);
    if (what.empty()) return {};
    return fmt::format(" {}, which is typical of a learning rate that is too high{}.", what, rate_text());
  }
};

/// What histograms.jsonl says of one gradient, over all steps and in all formats.
struct TensorTally {
  std::string name;
  bool cast = false;  ///< a cast of it was seen
  CastCounts casts;
  FitSums fit;
  StepsWith nonfinite;  ///< Inf or NaN before any cast, or as PyTorch stored them
};

struct GradientTally {
  std::vector<TensorTally> tensors;  ///< in file order
  std::optional<CastCounts> casts;
  bool any = false;
  bool casts_unseen = false;  ///< 16 bits, and no observer saw the casts
  DType format = DType::f16;  ///< the casts' format

  TensorTally& of(const std::string& name) {
    const auto found = index_.try_emplace(name, tensors.size());
    if (found.second)
      tensors.push_back({.name = name, .cast = false, .casts = {}, .fit = {}, .nonfinite = {}});
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
    if (is_byte_format(row.dtype)) return;
    TensorTally& tensor = all.of(row.tensor);
    if (row.before.infinite + row.before.nan > 0) tensor.nonfinite.add(row.step);
    if (row.dtype != DType::f32 && !counts) all.casts_unseen = true;
    if (!counts) return;
    all.format = row.dtype;
    tensor.cast = true;
    tensor.casts += *counts;
    // A skipped step changes no weight.
    if (!skipped.contains(row.step)) tensor.fit += fit_sums(row.before, range_of(row.dtype), 1.0);
  });
  return all;
}

/// "scaler.policy" of "scaler.policy=torch"
std::string_view key_of(std::string_view setting) { return setting.substr(0, setting.find('=')); }

/// Returns the command that trained, with more options and another folder, whose name ends with `suffix`;
/// empty where train did not. The result leaves out --explain-overflow and settings of keys that are set now.
std::string trained_again(const RunFolder& run, const std::vector<std::string>& options,
                          std::string_view suffix) {
  const std::vector<std::string>& given = run.manifest.argv;
  if (given.size() < 2 || given[1] != "train" || is_watched(run.manifest)) return {};
  std::vector<std::string> words{"train"};
  for (std::size_t i = 2; i < given.size(); ++i) {
    if (given[i] == "-o" || given[i] == "--out") {
      ++i;
      continue;
    }
    if (given[i] == "--set" && i + 1 < given.size() &&
        std::ranges::any_of(options, [&](const std::string& option) {
          return option.find('=') != std::string::npos && key_of(option) == key_of(given[i + 1]);
        })) {
      ++i;
      continue;
    }
    if (given[i] != "--force" && given[i] != "--resume" && given[i] != "--explain-overflow" &&
        !given[i].starts_with("--out="))
      words.push_back(given[i]);
  }
  words.insert(words.end(), options.begin(), options.end());
  const std::string name = fmt::format("{}-{}", run.path.filename().string(), suffix);
  words.insert(words.end(), {"-o", (run.path.parent_path() / name).string()});
  return own_command(std::move(words));
}

std::string looked_at_by(const RunFolder& run, const StepTally& tally) {
  if (is_watched(run.manifest)) return explained_in_pytorch(tally.trouble_scale);
  const std::string again = trained_again(run, {"--explain-overflow"}, "explained");
  return again.empty()
             ? own_command({"train", "--explain-overflow"}) +
                   " names the first operation that gave an Inf or NaN"
             : again +
                   " (names the first operation that gave an Inf or NaN, and the scale at which none does)";
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

/// The lowest of the scales at which the steps that overflowed were finite when they were done again, and how
/// many steps that were.
struct FiniteScale {
  double lowest = 0;  ///< 0: it is not known of all of them, or one is finite at none
  std::uint64_t steps = 0;
};
FiniteScale finite_scale_of(const std::vector<CulpritRow>& culprits) {
  FiniteScale found{.lowest = std::numeric_limits<double>::infinity()};
  std::set<std::uint64_t> steps;
  for (const CulpritRow& row : culprits) {
    if (row.pass != CulpritPass::backward) continue;
    steps.insert(row.step);
    found.lowest = std::min(found.lowest, row.finite_scale.value_or(0));
  }
  found.steps = steps.size();
  if (steps.empty()) found.lowest = 0;
  return found;
}

/// Does the diagnosis of the run's end ask for a lower learning rate?
bool blames_rate(const std::string& diagnosis) {
  return diagnosis.find("ower optimizer.lr") != std::string::npos;  // "Lower ..." or "a lower ..."
}

/// May the rows say something about the learning rate? Not where the diagnosis already does, nor where it
/// found that overflows went into the weights unseen.
bool leaves_rate_open(const std::string& diagnosis) {
  return !blames_rate(diagnosis) && diagnosis.find("looks for overflows in this run") == std::string::npos;
}

/// A configuration key's value; empty where it has its default, and where an older folder lacks it.
std::string value_of(const RunFolder& run, std::string_view key) {
  return run.manifest.identity ? run.manifest.identity->value(key) : "";
}

bool takes_zeros(const RunFolder& run) { return value_of(run, "scaler.on_overflow") == "zero"; }

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
    finding.text = fmt::format("Gradients were Inf or NaN in {}, and ", tally.nonfinite_taken.where());
    const bool one = tally.nonfinite_taken.count == 1;
    if (takes_zeros(run))
      finding.text += fmt::format("{} taken with zeros for gradients.", one ? "it was" : "they were");
    else
      finding.text += fmt::format("{} taken all the same.", one ? "it was" : "they were");
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
  if (leaves_rate_open(diagnosis)) finding.text += tally.too_large_updates(culprit);
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

/// Drops a diagnosis whose reason, that no step was taken, the text above already gives.
std::string without_the_count(const std::string& diagnosis, const StepTally& tally) {
  const std::string reason =
      fmt::format("skipped {} of {}, and the scale cannot fall any further. bad scale: ", tally.skipped.count,
                  counted(tally.steps, "step"));
  const std::size_t found = diagnosis.find(reason);
  if (found == std::string::npos) return diagnosis;
  return " The scale cannot fall any further. Bad scale: " + diagnosis.substr(found + reason.size());
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
    text += falling ? fmt::format(
                          "still searching: {} to {} in {}. Train for more steps, so that it finds its "
                          "scale, or set a lower scaler.initial_scale to start nearer to it.",
                          scale_text(tally.first_scale), scale_text(tally.last_scale),
                          counted(tally.steps, "step"))
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
    text = fmt::format(
        "Casts made {} of {} gradient values {}, and {}.", casts.overflow, casts.values,
        value_of(run, "backend.overflow") == "saturate" ? "too large for FP16, where they saturate"
                                                        : "Inf or NaN",
        takes_zeros(run) ? "such steps were taken with zeros for gradients" : "no step was skipped");
  }
  text += overflowed_tensors(overflows, finding.tensor);
  if (finding.tensor.empty())
    for (const TensorTally& tensor : gradients.tensors)
      if (tensor.casts.overflow > 0 && finding.tensor.empty()) {
        finding.tensor = tensor.name;
        text += fmt::format(" The first of them: {} ({} values).", tensor.name, tensor.casts.overflow);
      }
  if (!finding.serious) return finding;
  const CulpritRow* culprit = first_of(culprits, CulpritPass::backward);
  text += told_by(culprit);
  const FiniteScale finite = finite_scale_of(culprits);
  if (culprit != nullptr && finite.lowest > 0 && finite.lowest < culprit->finite_scale.value_or(0))
    text += fmt::format(" {} were repeated; the lowest such scale is {}.", counted(finite.steps, "step"),
                        scale_text(finite.lowest));
  // The words of an end by a loss that is not finite are the first finding's.
  const std::string diagnosis = tally.nonfinite_loss.count > 0 ? "" : diagnosis_of(run);
  const std::string too_large = tally.nonfinite_loss.count == 0 && leaves_rate_open(diagnosis)
                                    ? tally.too_large_updates(first_of(culprits, CulpritPass::forward))
                                    : "";
  text += too_large;
  if (tally.sinks() && culprit == nullptr && too_large.empty() && !blames_rate(diagnosis))
    text += fmt::format(
        " The scale fell {} times and never grew: gradients grow during training, which is typical of a "
        "learning rate that is too high{}.",
        tally.falls, tally.rate_text());
  text += without_the_count(diagnosis, tally);
  // If the loss itself is not finite, no scale helps.
  if (diagnosis.empty() && tally.nonfinite_loss.count == 0 && tally.skipped.count > 1 &&
      tally.skipped_least == tally.skipped_most && tally.first_scale == tally.last_scale)
    text += fmt::format(" The scale never left {}: set a lower one, or use a policy that lowers it.",
                        scale_text(tally.first_scale));
  return finding;
}

/// What a run's casts made of each gradient.
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

/// A sentence about gradients that were zeros alone before their own casts, in a run whose casts made zeros.
std::string about_zeros(const GradientTally& gradients) {
  std::vector<std::string_view> zeros;
  std::size_t casts = 0;
  for (const TensorTally& tensor : gradients.tensors) {
    if (!tensor.cast) continue;  // in FP32
    ++casts;
    if (tensor.casts.values == 0 && tensor.nonfinite.count == 0) zeros.push_back(tensor.name);
  }
  if (zeros.empty()) return "";
  return fmt::format(
      " {} of {} gradients that were cast held zeros alone before their own casts, such as {}: casts before "
      "those can have "
      "made them, and the rate does not count them.",
      zeros.size(), casts, zeros.front());
}

/// `amp.black=["exp","div"]`: what the run's list holds already, and one entry more.
std::string longer_list(const RunFolder& run, std::string_view key, const std::string& entry) {
  std::string entries = value_of(run, key);
  std::erase_if(entries, [](char c) { return c == '[' || c == ']' || c == ' '; });
  if (!entries.empty()) entries += ',';
  return fmt::format("{}=[{}\"{}\"]", key, entries, entry);
}

/// The training that keeps the operation in FP32 which gave the first Inf or NaN of a forward pass; or, where
/// no list does, the one that shows whether the format has a part in it. Empty: neither.
std::string forward_mended_by(const RunFolder& run, const CulpritRow& culprit) {
  const std::string level = value_of(run, "amp.level");
  if (level.empty()) return {};
  const bool reads_lists = level != "O2" && level != "O3";
  std::string setting;
  if (!culprit.black.empty() && (reads_lists || culprit.excluded.empty()))
    setting = longer_list(run, "amp.black", culprit.black);
  else if (!culprit.excluded.empty())
    setting = longer_list(run, "amp.excluded", culprit.excluded);
  if (!setting.empty()) {
    const std::string again = trained_again(run, {"--set", setting}, "in-fp32");
    return again.empty() ? again : again + " (keeps that operation in FP32)";
  }
  if (level == "O0" || is_of_data(&culprit)) return {};
  const std::string again = trained_again(run, {"--set", "amp.level=O0"}, "fp32");
  return again.empty() ? again : again + " (whether 16 bits contribute to it)";
}

/// The training at the scale at which no step overflowed that was done again; where none is known and the
/// scale never moved, the one with a policy that lowers it. Empty: neither.
std::string backward_mended_by(const RunFolder& run, const StepTally& tally,
                               const std::vector<CulpritRow>& culprits) {
  const double lowest = finite_scale_of(culprits).lowest;
  if (lowest > 0) {
    const std::string scale = scale_text(lowest);
    std::vector<std::string> options{"--set", "scaler.initial_scale=" + scale};
    if (run.manifest.message.find("lower scaler.min_scale") != std::string::npos)
      options.insert(options.end(), {"--set", "scaler.min_scale=" + scale});
    if (value_of(run, "scaler.policy") == "none")
      options.insert(options.end(), {"--set", "scaler.policy=fixed"});
    const std::string again = trained_again(run, options, "lower-scale");
    return again.empty() ? again : fmt::format("{} (at S = {} every repeated step was finite)", again, scale);
  }
  const bool tried =
      std::ranges::any_of(culprits, [](const CulpritRow& row) { return row.finite_scale == 0.0; });
  if (tried || tally.first_scale != tally.last_scale || tally.skipped.count != tally.steps) return {};
  const std::string again = trained_again(run, {"--set", "scaler.policy=torch"}, "torch");
  return again.empty() ? again : again + " (a policy that lowers the scale at every overflow)";
}

/// The remedy for the known faults. Empty: the rows do not show one.
std::string mended_by(const RunFolder& run, const StepTally& tally, const Finding& worst,
                      const std::vector<CulpritRow>& culprits) {
  const CulpritRow* forward = first_of(culprits, CulpritPass::forward);
  const std::string diagnosis = diagnosis_of(run);
  const bool too_fast =
      blames_rate(diagnosis) || (leaves_rate_open(diagnosis) && !tally.too_large_updates(forward).empty());
  if (too_fast && tally.rate > 0) {
    const std::string again =
        trained_again(run, {"--set", fmt::format("optimizer.lr={:.4g}", tally.rate / 10)}, "lower-rate");
    if (!again.empty())
      return again + " (does a tenth of the learning rate train? if not, try a tenth of that)";
  }
  std::vector<std::string> checks;
  for (const char* const key : {"scaler.enabled", "scaler.drop_overflow_update"})
    if (!leaves_rate_open(diagnosis) && diagnosis.find(fmt::format("{} = true", key)) != std::string::npos)
      checks.insert(checks.end(), {"--set", fmt::format("{}=true", key)});
  if (const std::string again = trained_again(run, checks, "checked"); !checks.empty() && !again.empty())
    return again + " (the scaler checks for overflows)";
  if (worst.trouble == Trouble::non_finite) return forward == nullptr ? "" : forward_mended_by(run, *forward);
  return first_of(culprits, CulpritPass::backward) == nullptr ? "" : backward_mended_by(run, tally, culprits);
}

/// `explained`: the cause is named already.
std::string next_of(const RunFolder& run, const StepTally& tally, const Account& account,
                    const std::vector<CulpritRow>& culprits, bool explained) {
  const std::string folder = run.path.string();
  const Finding* worst = account.worst();
  if (worst != nullptr && (worst->trouble == Trouble::non_finite || worst->trouble == Trouble::overflow)) {
    if (std::string mended = mended_by(run, tally, *worst, culprits); !mended.empty()) return mended;
    // Advice about the scale at which a step is finite comes before advice about recorded steps.
    const bool scale_unknown =
        worst->trouble == Trouble::overflow && first_of(culprits, CulpritPass::backward) == nullptr;
    if (!explained || scale_unknown) return looked_at_by(run, tally);
  }
  if (worst != nullptr && account.counted && worst->trouble != Trouble::non_finite)
    return own_command({"hist", folder}) + " (which scale fits)";
  return own_command({"report", folder}) + " (figures and a page)";
}

/// Over all steps that were counted: the operand that lost most to zeros, and the one that saturated most.
std::string recipe_text(const std::vector<RecipeRow>& rows) {
  std::map<std::pair<std::string, std::string>, RecipeRow> operands;
  RecipeRow all;
  for (const RecipeRow& row : rows)
    for (RecipeRow* const sum : {&operands[{row.tensor, row.product}], &all}) *sum += row;
  if (operands.empty()) return "";
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto sentence = [&](const auto& rate, std::string_view none, const auto& lost) {
    if (rate(all) == 0) return std::string(none);
    const auto& [name, sum] =
        *std::ranges::max_element(operands, {}, [&](const auto& operand) { return rate(operand.second); });
    return fmt::format("{} {} % of {}{} in the product {}, more than of any other operand ({} % of all).",
                       lost.first, percent(rate(sum)), lost.second, name.first, name.second,
                       percent(rate(all)));
  };
  return sentence([&](const RecipeRow& row) { return share(row.made_zero, row.values); },
                  "The recipe made no value zero.", std::pair("The recipe zeroed", "")) +
         " " +
         sentence([&](const RecipeRow& row) { return share(row.saturated_blocks, row.blocks); },
                  "No block saturated.", std::pair("It saturated", "the blocks of ")) +
         "\n";
}

}  // namespace

std::string explained_in_pytorch(double scale) {
  const int exponent = scale > 0 && std::isfinite(scale) ? std::ilogb(scale) : 0;
  const bool is_power = exponent != 0 && scale == std::scalbn(1.0, exponent);
  return fmt::format(
      "lab.explain_overflow(model, closure, scale={}) names the first operation that gave an Inf or NaN",
      is_power ? fmt::format("2.0**{}", exponent) : fmt::format("{:#}", scale > 0 ? scale : 1.0));
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
                  .searching = tally.searches()
                                   ? std::optional(std::pair(tally.first_scale, tally.last_scale))
                                   : std::nullopt,
                  .rose = tally.rise(),
                  .recipe = recipe_text(read_recipe(run.path)),
                  .next = {}};
  for (std::optional<Finding>& finding : std::array{
           nonfinite_finding(run, tally, gradients, culprits),
           overflow_finding(run, tally, gradients, read_overflows(run.path), culprits),
           underflow_finding(states, rates_of(all).lost, casts), distortion_finding(states, casts.format)})
    if (finding) account.findings.push_back(std::move(*finding));
  for (Finding& finding : account.findings)
    if (finding.trouble == Trouble::underflow) finding.text += about_zeros(gradients);
  const std::string& message = run.manifest.message;
  const bool known = run.manifest.state == ExitState::diverged && !message.empty() &&
                     message.find("--explain-overflow") == std::string::npos;
  account.next = next_of(run, tally, account, culprits, known || !culprits.empty());
  return account;
}

std::string findings_text(const Account& account) {
  std::string text;
  for (const Finding& finding : account.findings) text += finding.text + "\n";
  if (account.nothing_to_fix())
    text +=
        !account.findings.empty() ? "Nothing to fix there.\n"
        : !account.trained
            ? "Nothing to fix: every value is finite, and every tensor fits.\n"
            : fmt::format(
                  "Nothing to fix: every loss and every gradient that was counted is finite, no step was "
                  "skipped, and {}.\n",
                  account.casts || !account.counts_casts ? "every tensor fits" : "no gradient was rounded");
  else if (account.searching && account.worst() == nullptr && account.steps > account.skipped)
    text += fmt::format(
        "Not judged yet: the scale fell from {} to {} and has not grown once in {}, so it is not known how "
        "many overflow once it is found.\n",
        scale_text(account.searching->first), scale_text(account.searching->second),
        counted(account.steps, "step"));
  if (account.rose && account.worst() == nullptr)
    text +=
        fmt::format("The loss more than doubled, from {:.3g} to {:.3g}, and no count here explains why.\n",
                    account.rose->first, account.rose->second);
  if (!account.trained && account.findings.empty() && !account.counted)
    text += "Not judged: every value is zero.\n";
  text += account.recipe;
  if (account.trained && account.worst() == nullptr && account.steps > account.skipped && !account.counted)
    text += "Underflow is not known: no gradients were counted (observe.histograms_every).\n";
  if (account.counted && !account.counts_casts)
    text +=
        "PyTorch rounds inside its operations, where casts cannot be observed: values that became zero there "
        "are counted as zeros.\n";
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
