// What a summary says in words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "numerics/text/scale_text.hpp"
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

/// "+16.80 %, worse than FP32's own noise", "1 of 3 diverged".
std::string how_worse(const Metric& metric, const SummaryRow& row) {
  const Judgement& judgement = *row.against_reference;
  std::string text = judgement.diverged > 0 ? fmt::format("{} of {} diverged", judgement.diverged,
                                                          judgement.diverged + judgement.pairs)
                                            : difference_text(metric, judgement);
  if (const std::optional<bool> noise = row.worse_than_noise())
    text += *noise ? ", worse than FP32's own noise" : ", not worse than FP32's twin";
  else if (row.against_twin)
    text += ", against FP32's twin it cannot be told";
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
        better.push_back(fmt::format("{} ({})", row.label, difference_text(summary.metric, judgement)));
        break;
      case Word::equal:
        equal.push_back(row.label);
        break;
      case Word::cannot_tell:
        (judgement.pairs < analysis::fewest_pairs ? few : open).push_back(row.label);
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
  say("Cannot tell", open);
  say(fmt::format("Cannot tell with fewer than {} pairs", analysis::fewest_pairs), few);
  return words;
}

/// What training makes by itself of a last bit.
std::string twin_words(const WorkloadSummary& summary) {
  for (const SummaryRow& row : summary.rows)
    if (row.is_twin && row.against_reference) {
      std::string words = fmt::format("{}, every initial weight moved by one ulp: {}", row.label,
                                      analysis::words_of(*row.against_reference, summary.metric.unit()));
      if (summary.twin_band)
        words += fmt::format("; one such run ends within {} {} of FP32 (95 %; + is worse)",
                             analysis::interval_text(summary.twin_band), summary.metric.unit());
      return words + ". ";
    }
  const bool off = std::any_of(summary.rows.begin(), summary.rows.end(), [](const SummaryRow& row) {
    return row.against_reference &&
           (row.against_reference->word == Word::worse || row.against_reference->word == Word::better);
  });
  return off ? "No FP32 twin (sweep --twin) is beside it to tell this from FP32's own noise. " : "";
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
  if (!others.empty()) told.push_back(fmt::format("Something is wrong in {} too.", join(others)));
  return told;
}

std::string plain_words(const WorkloadSummary& summary) {
  const auto reference = std::find_if(summary.rows.begin(), summary.rows.end(),
                                      [](const SummaryRow& row) { return row.is_reference; });
  if (reference != summary.rows.end() && reference->final_values.empty() && reference->untold > 0)
    return "The FP32 run has finished, and lab.watch was told no loss of it to judge by.";
  if (reference == summary.rows.end() || reference->final_values.empty())
    return "There is no finished FP32 run to judge the others by.";
  const analysis::Quality base = analysis::quality_of(reference->final_values);
  std::string words = fmt::format("In FP32 the {} ends at {} ({}). ", summary.metric.name,
                                  value_text(summary.metric, base.mean),
                                  base.seeds > 1 ? fmt::format("mean of {} seeds", base.seeds) : "one seed");
  words += judged_words(summary) + twin_words(summary);
  for (const std::string& trouble : troubles_of(summary)) words += trouble + ' ';
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

std::string unjudged_words(const SummaryRow& row) {
  return !row.final_values.empty() ? "" : row.untold > 0 ? "no loss was told" : "no finished run";
}

std::string underflow_text(const SummaryRow& row) {
  return row.casts ? fmt::format("{:.3g} %", 100 * row.casts->underflow_rate()) : "";
}

std::string value_text(const Metric& metric, double value) {
  if (!std::isfinite(value)) return "diverged";
  return metric.higher_is_better() ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.5g}", value);
}

std::string difference_text(const Metric& metric, const Judgement& judgement) {
  if (judgement.pairs == 0) return "-";
  const std::string text = fmt::format("{:+.2f}", judgement.mean);
  const bool none = text.find_first_of("123456789") == std::string::npos;
  return fmt::format("{} {}", none ? "0.00" : text, metric.unit());
}

std::string verdict_text(const WorkloadSummary& summary, const Judgement& judgement) {
  std::string text = analysis::words_of(judgement, summary.metric.unit());
  if (judgement.word == Word::cannot_tell && judgement.pairs == 1 && summary.twin_band)
    text += fmt::format("; {} FP32's twin band",
                        summary.twin_band->contains(judgement.mean) ? "inside" : "outside");
  return text;
}

std::string leader_text(const WorkloadSummary& summary) {
  if (!summary.leader) return "";
  const SummaryRow &best = summary.rows[summary.leader->row], &next = summary.rows[summary.leader->next];
  const Judgement& judgement = summary.leader->against_next;
  if (best.bits != 0 && best.bits == next.bits)
    return fmt::format("No ★: {} and {} are the same bit for bit.", best.label, next.label);
  if (judgement.pairs == 0)
    return fmt::format(
        "No ★: {}, the best apart from FP32 by its mean, and {}, the next, have no pair of one seed.",
        best.label, next.label);
  const std::string interval = analysis::interval_text(judgement.interval);
  return fmt::format("{}: {}, the best apart from FP32 by its mean, against {}, the next: {}{}{}, {}.",
                     summary.leader->leads() ? "★" : "No ★", best.label, next.label,
                     difference_text(summary.metric, judgement), interval.empty() ? "" : " ", interval,
                     analysis::words_of(judgement, summary.metric.unit()));
}

}  // namespace fp16lab::reports
