#include "reports/data/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "numerics/text/text.hpp"
#include "reports/data/run_gradients.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Judgement;
using analysis::PairedSample;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Did lab.watch get no loss for this run? A NaN loss gives NaN gradients in every step.
bool is_untold(const Run& run) {
  const std::vector<StepRow>& steps = run.folder.steps;
  return !analysis::tells_loss(run.folder) && run.folder.evaluations.empty() &&
         (steps.empty() || !std::ranges::all_of(steps, &StepRow::found_inf));
}

bool is_judged(const Run& run) {
  if (is_untold(run)) return false;
  return run.folder.finished() || (run.folder.manifest.state == ExitState::diverged && run.folder.whole);
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
  if (!all_evaluated || split.empty()) return {"final training loss"};
  const Quantity quantity = all_accurate  ? Quantity::accuracy
                            : all_in_bits ? Quantity::bits_per_character
                                          : Quantity::loss;
  return {fmt::format("{} {}", split, words_of(quantity)), quantity};
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

/// A digest of the records that distinguish runs bit by bit.
class Digest {
 public:
  void add(const Run& run, double final_value) {
    fold(run.seed);
    for (const StepRow& step : run.folder.steps) {
      fold(step.state_hash);
      any_state_ |= step.state_hash != 0;
    }
    fold(std::bit_cast<std::uint64_t>(final_value));
  }
  std::uint64_t value() const { return any_state_ ? std::max<std::uint64_t>(hash_, 1) : 0; }

 private:
  void fold(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte, word >>= 8)
      hash_ = (hash_ ^ (word & 0xff)) * 0x100000001b3u;  // FNV-1a
  }
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  bool any_state_ = false;
};

SummaryRow row_of(const RunSet& set, const Configuration& configuration, const Metric& metric) {
  SummaryRow row;
  row.label = configuration.label;
  row.runs = static_cast<int>(configuration.runs.size());
  std::vector<double> seconds;
  Digest bits;
  std::set<std::uint64_t> judged, planned;
  for (const std::size_t index : configuration.runs) {
    const Run& run = set.runs[index];
    planned.insert(run.seed);
    if (run.missing) row.missing.push_back(run.name);
    if (is_untold(run) && run.folder.finished()) ++row.untold;
    if (is_judged(run)) {
      row.final_values.push_back(final_value(run, metric));
      row.final_losses.push_back(final_loss(run, metric));
      row.seeds.push_back(run.seed);
      judged.insert(run.seed);
      bits.add(run, row.final_values.back());
    }
    for (const StepRow& step : run.folder.steps) row.skipped += step.skipped ? 1 : 0;
    if (const std::optional<double> median = median_seconds(run.folder.steps)) seconds.push_back(*median);
    if (!row.memory) row.memory = run.folder.manifest.memory;
    row.steps += run.folder.steps.size();
    if (run.missing || run.folder.steps.empty()) continue;
    analysis::Account account = analysis::account_of(run.folder);
    if (account.casts) {
      row.casts = row.casts.value_or(CastCounts{});
      *row.casts += *account.casts;
    }
    if (!row.account || account.worse_than(*row.account)) {
      row.account = std::move(account);
      row.account_seed = run.seed;
    }
  }
  row.bits = bits.value();
  row.different_seeds = judged.size();
  row.planned_seeds = planned.size();
  if (!seconds.empty()) {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    row.seconds_per_step = *middle;
  }
  if (const Run& first = set.runs[configuration.runs.front()]; !first.folder.steps.empty())
    row.last_scale = first.folder.steps.back().loss_scale;
  return row;
}

/// The margin that the workload's runs were made with.
void set_margin(const RunSet& set, const Workload& workload, WorkloadSummary& summary) {
  const bool accuracy = summary.metric.quantity == Quantity::accuracy;
  const std::string_view key = accuracy ? "report.margin.accuracy" : "report.margin.loss";
  std::set<double> margins;
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t index : configuration.runs) {
      const Run& run = set.runs[index];
      const double margin = number_or(run.config, key, accuracy ? 0.5 : 1.0);
      if (!(margin > 0))
        throw std::runtime_error(
            fmt::format("{}: {} = {} in its configuration: must be above 0", run.name, key, margin));
      margins.insert(margin);
    }
  if (margins.empty()) return;
  summary.metric.margin = *margins.begin();
  if (margins.size() > 1)
    summary.notes.push_back(fmt::format("{}: its runs disagree about {} ({}); the smallest, {}, is used",
                                        summary.name, key, fmt::join(margins, ", "),
                                        analysis::with_unit(summary.metric.margin, summary.metric.unit())));
}

/// Pairs that are judged together, and where their judgements go.
class Family {
 public:
  void add(PairedSample sample, std::optional<Judgement>& place) {
    samples_.push_back(std::move(sample));
    places_.push_back(&place);
  }
  void judge() const {
    const std::vector<Judgement> judgements = analysis::judge(samples_);
    for (std::size_t i = 0; i < judgements.size(); ++i) *places_[i] = judgements[i];
  }

 private:
  std::vector<PairedSample> samples_;
  std::vector<std::optional<Judgement>*> places_;
};

SummaryRow* find(WorkloadSummary& summary, bool SummaryRow::*is_it) {
  const auto found = std::find_if(summary.rows.begin(), summary.rows.end(),
                                  [is_it](const SummaryRow& row) { return row.*is_it; });
  return found == summary.rows.end() || found->final_values.empty() ? nullptr : &*found;
}

std::optional<analysis::Interval> told(const Metric& metric,
                                       const std::optional<analysis::Interval>& interval) {
  return metric.higher_is_better() ? interval : analysis::percent_of(interval);
}

PairedSample add_pairs(WorkloadSummary& summary, SummaryRow& row, const SummaryRow& reference,
                       std::optional<Judgement>& place, Family& family) {
  PairedSample sample = pairs_of(summary.metric, row, reference);
  family.add(sample, place);
  return sample;
}

constexpr std::size_t most_noted = 20;  ///< seeds of a configuration

/// Seeds in which what the others are judged against diverged itself.
void note_diverged(WorkloadSummary& summary, const SummaryRow& reference) {
  std::vector<std::uint64_t> seeds;
  std::size_t more = 0;
  for (std::size_t i = 0; i < reference.seeds.size(); ++i) {
    if (std::isfinite(reference.final_values[i])) continue;
    if (seeds.size() < most_noted)
      seeds.push_back(reference.seeds[i]);
    else
      ++more;
  }
  if (!seeds.empty())
    summary.notes.push_back(fmt::format("{}: {} diverged in seed {}{}: no pair is judged against it there",
                                        summary.name, reference.label, fmt::join(seeds, ", "),
                                        more == 0 ? "" : fmt::format(" and {} more", more)));
}

/// Losses that are not above 0 have no ratio.
void note_without_ratio(WorkloadSummary& summary) {
  if (summary.metric.quantity == Quantity::accuracy) return;
  for (const SummaryRow& row : summary.rows) {
    std::size_t noted = 0;
    for (std::size_t i = 0; i < row.seeds.size(); ++i)
      if (std::isfinite(row.final_values[i]) && !(row.final_values[i] > 0) && ++noted <= most_noted)
        summary.notes.push_back(
            fmt::format("{}: {} of {}, seed {}, is {:g}, and only losses above 0 have a difference in "
                        "percent: the pair is dropped",
                        summary.name, summary.metric.name, row.label, row.seeds[i], row.final_values[i]));
    if (noted > most_noted)
      summary.notes.push_back(fmt::format("{}: the same of {}, {}", summary.name, row.label,
                                          counted(noted - most_noted, "more seed")));
  }
}

std::optional<Ranking> ranking_of(const WorkloadSummary& summary, const Workload& workload) {
  Ranking ranking;
  const auto mean = [&](std::size_t i) { return analysis::quality_of(summary.rows[i].final_values).mean; };
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    if (!workload.configurations[i].id.fp32 && !summary.rows[i].final_values.empty() &&
        std::ranges::all_of(summary.rows[i].final_values, [](double x) { return std::isfinite(x); }))
      ranking.order.push_back(i);
  if (ranking.order.size() < 2) return {};
  std::ranges::stable_sort(ranking.order, std::less{},
                           [&](std::size_t i) { return summary.metric.badness(mean(i)); });
  return ranking;
}

}  // namespace

double Metric::difference(double variant, double reference) const {
  return higher_is_better() ? analysis::accuracy_difference(variant, reference)
                            : analysis::loss_difference(variant, reference);
}

std::optional<bool> SummaryRow::worse_than_noise() const {
  if (!against_reference || !against_twin) return {};
  using analysis::Word;
  const auto is = [&](Word word) { return against_reference->word == word || against_twin->word == word; };
  if (is(Word::equal) || is(Word::better)) return false;
  if (is(Word::cannot_tell)) return {};
  return true;
}

PairedSample pairs_of(const Metric& metric, const SummaryRow& variant, const SummaryRow& reference) {
  PairedSample sample{.margin = metric.margin,
                      .is_of_losses = !metric.higher_is_better(),
                      .higher_is_better = metric.higher_is_better(),
                      .bits = variant.bits};
  std::map<std::uint64_t, double> bases;  // the first of each seed
  for (std::size_t i = 0; i < reference.seeds.size(); ++i)
    bases.emplace(reference.seeds[i], reference.final_values[i]);
  for (std::size_t i = 0; i < variant.seeds.size(); ++i) {
    const auto same = bases.extract(variant.seeds[i]);
    if (same.empty()) continue;
    const double base = same.mapped();
    const double value = variant.final_values[i], difference = metric.difference(value, base);
    if (std::isfinite(base) && !std::isfinite(value))
      ++sample.diverged;
    else if (!std::isfinite(difference))
      ++sample.dropped;
    else
      sample.differences.push_back(difference);
  }
  return sample;
}

std::vector<WorkloadSummary> summarise(const RunSet& set) {
  std::vector<WorkloadSummary> all;
  all.reserve(set.workloads.size());  // the families point into it
  Family against_reference, against_twin;
  std::vector<PairedSample> leaders;
  for (const Workload& workload : set.workloads) {
    WorkloadSummary& summary = all.emplace_back();
    summary.name = workload.name;
    summary.metric = metric_of(set, workload);
    for (const Configuration& configuration : workload.configurations) {
      summary.rows.push_back(row_of(set, configuration, summary.metric));
      summary.rows.back().is_reference = &configuration == workload.reference();
      summary.rows.back().is_twin = &configuration == workload.twin();
    }
    set_margin(set, workload, summary);
    const SummaryRow* reference = find(summary, &SummaryRow::is_reference);
    const SummaryRow* twin = find(summary, &SummaryRow::is_twin);
    for (SummaryRow& row : summary.rows) {
      if (row.is_reference || row.final_values.empty()) continue;
      if (reference != nullptr) {
        const PairedSample pairs =
            add_pairs(summary, row, *reference, row.against_reference, against_reference);
        if (row.is_twin && pairs.diverged == 0)
          summary.twin_band = told(summary.metric, analysis::single_run_band(pairs.differences));
      }
      if (twin != nullptr && !row.is_twin) add_pairs(summary, row, *twin, row.against_twin, against_twin);
    }
    for (const SummaryRow* base : {reference, twin})
      if (base != nullptr) note_diverged(summary, *base);
    note_without_ratio(summary);
    summary.ranking = ranking_of(summary, workload);
    if (summary.ranking) {
      const std::vector<std::size_t>& order = summary.ranking->order;
      leaders.push_back(pairs_of(summary.metric, summary.rows[order[0]], summary.rows[order[1]]));
      leaders.back().bits = 0;
    }
  }
  against_reference.judge();
  against_twin.judge();
  const std::vector<Judgement> ahead = analysis::judge(leaders);
  auto next = ahead.begin();
  for (std::size_t w = 0; w < all.size(); ++w) {
    if (all[w].ranking) all[w].ranking->against_next = *next++;
    all[w].words = plain_words(all[w]);
  }
  return all;
}

}  // namespace fp16lab::reports
