#include "reports/summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reports/run_gradients.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Better;
using analysis::Verdict;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

bool is_judged(const Run& run) {
  return run.folder.finished() || run.folder.manifest.state == ExitState::diverged;
}

/// The last evaluation on the test split, or the last one at all.
const EvaluationRow* last_evaluation(const Run& run) {
  const EvaluationRow* last = nullptr;
  for (const EvaluationRow& row : run.folder.evaluations)
    if (last == nullptr || row.split == "test" || last->split != "test") last = &row;
  return last;
}

double final_training_loss(const Run& run) {
  const std::vector<StepRow>& steps = run.folder.steps;
  if (steps.empty()) return not_a_number;
  const std::size_t count = std::max<std::size_t>(1, steps.size() / 20);
  double sum = 0;
  for (std::size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i].loss;
  return sum / static_cast<double>(count);
}

Metric metric_of(const RunSet& set, const Workload& workload) {
  bool all_evaluated = true, all_accurate = true, all_in_bits = true;
  std::string split;
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t index : configuration.runs) {
      const Run& run = set.runs[index];
      if (!run.folder.finished()) continue;
      const EvaluationRow* last = last_evaluation(run);
      all_evaluated &= last != nullptr;
      all_accurate &= last != nullptr && last->accuracy.has_value();
      all_in_bits &= last != nullptr && last->bits_per_character.has_value();
      if (last != nullptr) split = last->split;
    }
  if (!all_evaluated || split.empty()) return {"final training loss", Better::lower};
  const Quantity quantity = all_accurate  ? Quantity::accuracy
                            : all_in_bits ? Quantity::bits_per_character
                                          : Quantity::loss;
  return {fmt::format("{} {}", split, name_of(quantity)),
          quantity == Quantity::accuracy ? Better::higher : Better::lower, quantity};
}

double final_loss(const Run& run, const Metric& metric) {
  if (!run.folder.finished()) return not_a_number;
  const EvaluationRow* last = last_evaluation(run);
  return metric.name == "final training loss" || last == nullptr ? final_training_loss(run) : last->loss;
}

double final_value(const Run& run, const Metric& metric) {
  if (metric.quantity == Quantity::loss) return final_loss(run, metric);
  if (!run.folder.finished()) return not_a_number;
  return value_of(*last_evaluation(run), metric.quantity).value_or(not_a_number);
}

SummaryRow row_of(const RunSet& set, const Configuration& configuration, const Metric& metric) {
  SummaryRow row;
  row.label = configuration.label;
  row.runs = static_cast<int>(configuration.runs.size());
  double seconds = 0;
  for (const std::size_t index : configuration.runs) {
    const Run& run = set.runs[index];
    if (run.missing) row.missing.push_back(run.name);
    if (is_judged(run)) {
      row.final_values.push_back(final_value(run, metric));
      row.final_losses.push_back(final_loss(run, metric));
      row.seeds.push_back(run.seed);
    }
    for (const StepRow& step : run.folder.steps) {
      row.skipped += step.skipped ? 1 : 0;
      seconds += step.seconds;
    }
    row.steps += run.folder.steps.size();
    if (const std::optional<CastCounts> casts = recorded_casts(run)) {
      row.casts = row.casts.value_or(CastCounts{});
      *row.casts += *casts;
    }
  }
  if (row.steps > 0) row.seconds_per_step = seconds / static_cast<double>(row.steps);
  if (const Run& first = set.runs[configuration.runs.front()]; !first.folder.steps.empty())
    row.last_scale = first.folder.steps.back().loss_scale;
  return row;
}

/// Runs of one seed share their weights and their batches.
std::optional<analysis::PairedInterval> paired(const SummaryRow& reference, const SummaryRow& row) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < row.seeds.size(); ++i) {
    const auto same = std::find(reference.seeds.begin(), reference.seeds.end(), row.seeds[i]);
    if (same == reference.seeds.end()) continue;
    const auto position = static_cast<std::size_t>(same - reference.seeds.begin());
    differences.push_back(row.final_values[i] - reference.final_values[position]);
  }
  return analysis::paired_interval(differences);
}

double percent_worse(const SummaryRow& row) { return row.against_reference->difference_percent; }

std::string difference_words(const Metric& metric, const SummaryRow& row) {
  const std::string text = difference_text(metric, *row.against_reference);
  if (text.starts_with("0")) return "the same to two digits";
  return text.substr(1) + (percent_worse(row) > 0 ? " worse" : " better");
}

std::string underflow_words(const SummaryRow& row) {
  if (!row.casts) return "";
  return fmt::format("its casts made {:.3g} % of the non-zero gradients zero in the steps that were recorded",
                     100 * row.casts->underflow_rate());
}

/// More names than these make no sentence.
constexpr std::size_t most_named = 6;

std::string join(std::vector<std::string> items) {
  if (items.size() > most_named) {
    const std::size_t others = items.size() - most_named + 1;
    items.resize(most_named - 1);
    items.push_back(fmt::format("{} others", others));
  }
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

/// One sentence a policy; of many the two that skipped the least and the most.
std::string skip_words(const WorkloadSummary& summary, const Workload& workload) {
  std::vector<const SummaryRow*> adaptive;
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    if (workload.configurations[i].id.scaling == Scaling::adaptive && summary.rows[i].steps > 0)
      adaptive.push_back(&summary.rows[i]);
  std::string words;
  const bool many = adaptive.size() > most_named;
  if (many) {
    const auto share = [](const SummaryRow* row) {
      return static_cast<double>(row->skipped) / static_cast<double>(row->steps);
    };
    const auto [least, most] =
        std::minmax_element(adaptive.begin(), adaptive.end(),
                            [&](const SummaryRow* a, const SummaryRow* b) { return share(a) < share(b); });
    words = fmt::format("Of {} adaptive policies {} skipped the fewest steps, {} the most. ", adaptive.size(),
                        (*least)->label, (*most)->label);
    adaptive = {*least, *most};
  }
  for (const SummaryRow* row : adaptive)
    words += fmt::format("{} skipped {} of {} steps and ended at a scale of {}. ", row->label, row->skipped,
                         row->steps, scale_text(row->last_scale));
  return words;
}

std::string plain_words(const WorkloadSummary& summary, const Workload& workload) {
  const auto reference = std::find_if(summary.rows.begin(), summary.rows.end(),
                                      [](const SummaryRow& row) { return row.is_reference; });
  if (reference == summary.rows.end() || reference->final_values.empty())
    return "There is no finished FP32 run to judge the others by.";
  const analysis::Quality base = analysis::quality_of(reference->final_values);
  const std::string& metric = summary.metric.name;
  std::string words = fmt::format("In FP32 the {} ends at {}", metric, value_text(summary.metric, base.mean));
  words += base.seeds > 1 ? fmt::format(" (mean of {} seeds). ", base.seeds) : " (one seed). ";

  std::vector<std::string> close, behind, open;
  const SummaryRow* best_scaled = nullptr;
  for (std::size_t i = 0; i < summary.rows.size(); ++i) {
    const SummaryRow& row = summary.rows[i];
    if (!row.against_reference || row.final_values.empty()) continue;
    const bool unscaled = workload.configurations[i].id.scaling == Scaling::none;
    const Verdict verdict = row.against_reference->verdict;
    if (unscaled) {
      const std::string why = underflow_words(row);
      if (verdict == Verdict::diverged)
        words += fmt::format("{} diverges", row.label);
      else
        words += fmt::format("{} ends at {}, {}", row.label,
                             value_text(summary.metric, row.against_reference->candidate.mean),
                             difference_words(summary.metric, row));
      if (verdict == Verdict::behind) words += ": more than three times the spread over seeds";
      if (verdict == Verdict::ahead) words += ", better by more than three times the spread over seeds";
      if (verdict == Verdict::within_spread)
        words += ", which the spread over seeds does not tell apart from FP32";
      if (verdict == Verdict::undecided) words += "; with fewer than two seeds this is no verdict";
      words += why.empty() ? ". " : "; " + why + ". ";
      continue;
    }
    if (verdict == Verdict::diverged || verdict == Verdict::behind)
      behind.push_back(row.label);
    else if (verdict == Verdict::undecided && std::abs(percent_worse(row)) > 1)
      open.push_back(row.label);
    else
      close.push_back(row.label);
    if (std::isfinite(percent_worse(row)) && row.against_reference->candidate.non_finite == 0 &&
        (best_scaled == nullptr || std::abs(percent_worse(row)) < std::abs(percent_worse(*best_scaled))))
      best_scaled = &row;
  }
  if (!close.empty())
    words += fmt::format("With loss scaling, {} {} level with FP32. ", join(close),
                         close.size() == 1 ? "is" : "are");
  if (best_scaled != nullptr)
    words += fmt::format(
        "Nearest to FP32 is {}: {}{}. ", best_scaled->label, difference_words(summary.metric, *best_scaled),
        best_scaled->casts
            ? fmt::format(", {:.2g} % rounding to zero", 100 * best_scaled->casts->underflow_rate())
            : "");
  if (!behind.empty()) words += fmt::format("Scaled, but behind FP32 or diverged: {}. ", join(behind));
  if (!open.empty()) words += fmt::format("Without a verdict for lack of seeds: {}. ", join(open));
  words += skip_words(summary, workload);
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

}  // namespace

std::string underflow_text(const SummaryRow& row) {
  return row.casts ? fmt::format("{:.3g} %", 100 * row.casts->underflow_rate()) : "";
}

std::string value_text(const Metric& metric, double value) {
  if (!std::isfinite(value)) return "diverged";
  return metric.better == Better::higher ? fmt::format("{:.2f} %", 100 * value)
                                         : fmt::format("{:.5g}", value);
}

std::string difference_text(const Metric& metric, const analysis::Comparison& comparison) {
  const bool accuracy = metric.better == Better::higher;
  const double difference = accuracy ? 100 * (comparison.candidate.mean - comparison.reference.mean)
                                     : comparison.difference_percent;
  if (!std::isfinite(difference)) return "-";
  const std::string text = fmt::format("{:+.2f}", difference);
  const bool none = text.find_first_of("123456789") == std::string::npos;
  return (none ? "0.00" : text) + (accuracy ? " pp" : " %");
}

std::string paired_text(const Metric& metric, const SummaryRow& row) {
  if (!row.paired || !row.against_reference) return "-";
  const bool accuracy = metric.better == Better::higher;
  const double unit = accuracy ? 100 : 100 / std::abs(row.against_reference->reference.mean);
  const double low = unit * row.paired->lower, high = unit * row.paired->upper;
  if (!std::isfinite(low) || !std::isfinite(high)) return "-";
  return fmt::format("[{:+.2f}, {:+.2f}] {}", low, high, accuracy ? "pp" : "%");
}

std::string spread_text(const Metric& metric, const analysis::Comparison& comparison) {
  if (!std::isfinite(comparison.spread)) return "-";
  return metric.better == Better::higher ? fmt::format("{:.2f} pp", 100 * comparison.spread)
                                         : fmt::format("{:.2g}", comparison.spread);
}

WorkloadSummary summarise(const RunSet& set, const Workload& workload) {
  WorkloadSummary summary;
  summary.name = workload.name;
  summary.metric = metric_of(set, workload);
  for (const Configuration& configuration : workload.configurations)
    summary.rows.push_back(row_of(set, configuration, summary.metric));
  if (const Configuration* reference = workload.reference()) {
    SummaryRow& base = summary.rows[static_cast<std::size_t>(reference - workload.configurations.data())];
    base.is_reference = true;
    if (!base.final_values.empty())
      for (SummaryRow& row : summary.rows)
        if (!row.is_reference && !row.final_values.empty()) {
          row.against_reference =
              analysis::compare(base.final_values, row.final_values, summary.metric.better);
          row.paired = paired(base, row);
        }
  }
  summary.words = plain_words(summary, workload);
  return summary;
}

}  // namespace fp16lab::reports
