// The summary in words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Judgement;
using analysis::Word;

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

/// "+16.80 %": without a sign where that is 0.
std::string signed_text(const Metric& metric, double difference) {
  const std::string text = fmt::format("{:+.2f}", difference);
  const bool none = text.find_first_of("123456789") == std::string::npos;
  return fmt::format("{} {}", none ? "0.00" : text, metric.unit());
}

/// "+16.80 %, worse than FP32's own noise", "1 of 3 diverged".
std::string how_worse(const Metric& metric, const SummaryRow& row) {
  const Judgement& judgement = *row.against_reference;
  std::string text = judgement.diverged > 0 ? fmt::format("{} of {} diverged", judgement.diverged,
                                                          judgement.diverged + judgement.pairs)
                                            : signed_text(metric, judgement.mean);
  if (const std::optional<bool> noise = row.worse_than_noise())
    text += *noise ? ", worse than FP32's own noise" : ", not worse than FP32's twin";
  else if (row.against_twin)
    text += ", undecided against FP32's twin";
  return text;
}

/// "Equal within 1 %: FP16 torch and FP16 S=2^3. ": every configuration under its word.
std::string judged_words(const WorkloadSummary& summary) {
  std::vector<std::string> worse, better, equal, open, few;
  for (const SummaryRow& row : summary.rows) {
    if (!row.against_reference || row.is_twin) continue;
    const Judgement& judgement = *row.against_reference;
    switch (judgement.word) {
      case Word::worse:
        worse.push_back(fmt::format("{} ({})", row.label, how_worse(summary.metric, row)));
        break;
      case Word::better:
        better.push_back(fmt::format("{} ({})", row.label, signed_text(summary.metric, judgement.mean)));
        break;
      case Word::equal:
        equal.push_back(row.label);
        break;
      case Word::cannot_tell:
        if (judgement.pairs >= analysis::fewest_pairs)
          open.push_back(row.label);
        else
          few.push_back(fmt::format("{} ({}: {})", row.label, short_words_of(judgement),
                                    difference_text(summary.metric, judgement)));
        break;
    }
  }
  std::string words;
  const auto say = [&words](const std::string& what, const std::vector<std::string>& labels) {
    if (!labels.empty()) words += fmt::format("{}: {}. ", what, join(labels));
  };
  say("Worse than FP32", worse);
  say("Better than FP32", better);
  say("Equal to FP32 within " + analysis::with_unit(summary.metric.margin, summary.metric.unit()), equal);
  say("Undecided", open);
  say("Three seeds are needed for a verdict", few);
  return words;
}

/// How far a last bit alone moves a training run.
std::string twin_words(const WorkloadSummary& summary) {
  for (const SummaryRow& row : summary.rows)
    if (row.is_twin && row.against_reference) {
      std::string words = fmt::format("{}, every initial weight moved by one ulp: {}", row.label,
                                      analysis::words_of(*row.against_reference, summary.metric.unit()));
      if (summary.twin_band)
        words += fmt::format("; one such run ends within {} {} of FP32 (95 %)",
                             analysis::interval_text(summary.twin_band), summary.metric.unit());
      return words + ". ";
    }
  const bool off = std::any_of(summary.rows.begin(), summary.rows.end(), [](const SummaryRow& row) {
    return row.against_reference &&
           (row.against_reference->word == Word::worse || row.against_reference->word == Word::better);
  });
  return off ? "Without an FP32 twin (sweep --twin), this cannot be distinguished from FP32's own noise. "
             : "";
}

}  // namespace

std::vector<std::string> troubles_of(const WorkloadSummary& summary) {
  constexpr std::size_t most_told = 3;
  std::vector<const SummaryRow*> wrong;
  for (const SummaryRow& row : summary.rows)
    if (row.account && row.account->worst() != nullptr) wrong.push_back(&row);
  std::ranges::stable_sort(
      wrong, [](const SummaryRow* a, const SummaryRow* b) { return a->account->worse_than(*b->account); });
  std::vector<std::string> told, others;
  for (const SummaryRow* row : wrong) {
    if (told.size() < most_told)
      told.push_back(fmt::format("{}{}: {}", row->label,
                                 row->runs > 1 ? fmt::format(", seed {}", row->account_seed) : "",
                                 row->account->worst()->text));
    else
      others.push_back(row->label);
  }
  if (!others.empty()) told.push_back(fmt::format("There are problems in {} too.", join(others)));
  return told;
}

std::string plain_words(const WorkloadSummary& summary) {
  const auto reference = std::find_if(summary.rows.begin(), summary.rows.end(),
                                      [](const SummaryRow& row) { return row.is_reference; });
  if (reference != summary.rows.end() && reference->final_values.empty() && reference->untold > 0)
    return "The FP32 run has finished, but lab.watch received no loss by which to judge it.";
  if (reference == summary.rows.end() || reference->final_values.empty())
    return "There is no finished FP32 run with which to compare the others.";
  const analysis::Quality base = analysis::quality_of(reference->final_values);
  std::string words = fmt::format("In FP32 the {} ends at {} ({}). ", summary.metric.name,
                                  value_text(summary.metric, base.mean),
                                  base.seeds > 1 ? fmt::format("mean of {} seeds", base.seeds) : "one seed");
  for (const std::string& part : {ranking_text(summary), leader_text(summary), judged_words(summary),
                                  twin_words(summary), skips_text(summary)})
    words += part.empty() || part.ends_with(' ') ? part : part + ' ';
  for (const std::string& trouble : troubles_of(summary)) words += trouble + ' ';
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

std::string unjudged_words(const SummaryRow& row) {
  return !row.final_values.empty() ? "" : row.untold > 0 ? "no loss was given" : "no finished run";
}

std::string underflow_text(const SummaryRow& row) {
  return row.casts ? fmt::format("{:.3g} %", 100 * row.casts->underflow_rate()) : "";
}

std::string value_text(const Metric& metric, double value) {
  if (!std::isfinite(value)) return "diverged";
  return metric.higher_is_better() ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.5g}", value);
}

std::string seeds_text(const SummaryRow& row) {
  return row.planned_seeds > row.different_seeds
             ? fmt::format("{} of {}", row.different_seeds, row.planned_seeds)
             : fmt::format("{}", row.different_seeds);
}

std::string difference_text(const Metric& metric, const Judgement& judgement) {
  if (judgement.pairs == 0) return "-";
  const std::string text = signed_text(metric, judgement.mean);
  return text.starts_with('0') ? text
                               : text + (metric.badness(judgement.mean) > 0 ? " (worse)" : " (better)");
}

std::string difference_text(const WorkloadSummary& summary, const SummaryRow& row) {
  const Judgement& judgement = *row.against_reference;
  const auto is_reference = [](const SummaryRow& other) { return other.is_reference; };
  const auto reference = std::ranges::find_if(summary.rows, is_reference);
  const auto all_paired = [&](const SummaryRow& one) {
    return std::ranges::count_if(one.final_values, [](double x) { return std::isfinite(x); }) ==
           judgement.pairs;
  };
  const std::string text = difference_text(summary.metric, judgement);
  const bool whole = judgement.pairs == 0 ||
                     (all_paired(row) && (reference == summary.rows.end() || all_paired(*reference)));
  return whole ? text : text + ", " + counted(judgement.pairs, "pair");
}

std::string measured_text(const Metric& metric, const Judgement& judgement) {
  const std::string interval = analysis::interval_text(judgement.interval);
  return difference_text(metric, judgement) + (interval.empty() ? "" : " " + interval);
}

std::string verdict_text(const WorkloadSummary& summary, const Judgement& judgement) {
  std::string text = analysis::words_of(judgement, summary.metric.unit());
  if (judgement.word == Word::cannot_tell && judgement.pairs == 1 && summary.twin_band)
    text += fmt::format("; {} FP32's twin band",
                        summary.twin_band->contains(judgement.mean) ? "inside" : "outside");
  return text;
}

std::string ranking_text(const WorkloadSummary& summary) {
  if (!summary.ranking) return "";
  std::vector<std::string> names;
  for (const std::size_t i : summary.ranking->order) {
    const SummaryRow& row = summary.rows[i];
    names.push_back(fmt::format("{} ({})", row.label,
                                value_text(summary.metric, analysis::quality_of(row.final_values).mean)));
  }
  return fmt::format("{} {}: {}, then {}.", summary.ranking->leads() ? "Best by" : "By mean",
                     summary.metric.name, names.front(), join({names.begin() + 1, names.end()}));
}

std::string leader_text(const WorkloadSummary& summary) {
  if (!summary.ranking) return "";
  const SummaryRow &best = summary.rows[summary.ranking->order[0]],
                   &next = summary.rows[summary.ranking->order[1]];
  const Judgement& judgement = summary.ranking->against_next;
  if (best.bits != 0 && best.bits == next.bits)
    return fmt::format("{} and {} are the same bit for bit.", best.label, next.label);
  if (summary.ranking->leads())
    return fmt::format("{} is better than {}: {}.", best.label, next.label,
                       measured_text(summary.metric, judgement));
  const std::string measured = judgement.pairs == 0 ? "" : measured_text(summary.metric, judgement) + ", ";
  return fmt::format("{} is not shown to be better than {}: {}{}.", best.label, next.label, measured,
                     short_words_of(judgement));
}

std::string skips_text(const WorkloadSummary& summary) {
  std::vector<const SummaryRow*> rows;
  for (const SummaryRow& row : summary.rows)
    if (row.skipped > 0) rows.push_back(&row);
  std::ranges::stable_sort(rows, std::greater{}, [](const SummaryRow* row) {
    return static_cast<double>(row->skipped) / static_cast<double>(row->steps);
  });
  std::vector<std::string> told;
  for (const SummaryRow* row : rows)
    told.push_back(fmt::format("{} {}{} of {}{}", row->label, told.empty() ? "skipped " : "", row->skipped,
                               row->steps, told.empty() ? " steps" : ""));
  return told.empty() ? "" : join(told) + ".";
}

}  // namespace fp16lab::reports
