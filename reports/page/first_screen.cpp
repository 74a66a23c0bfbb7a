// What a visitor sees first of a workload: verdicts, three answers, the worst tensor and the curves.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "numerics/text/text.hpp"
#include "reports/page/answers.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/shown_names.hpp"

namespace fp16lab::reports {
namespace {

/// More bars than these are a table, which is below.
constexpr std::size_t most_bars = 6;

/// The rows of the tile: the one that the answers are about, then the others but FP32 and its twin.
std::vector<std::size_t> bars_of(const WorkloadSummary& summary, const Answers& answers) {
  std::vector<std::size_t> rows;
  if (answers.configuration) rows.push_back(*answers.configuration);
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    if (!summary.rows[i].is_twin && i != answers.configuration) rows.push_back(i);
  std::erase_if(rows, [&](std::size_t i) { return !summary.rows[i].against_reference; });
  if (rows.size() > most_bars) rows.resize(most_bars);
  return rows;
}

/// Differences to FP32 as bars: each row's name, mean, interval and word.
OrderedJson bars_json(const WorkloadMaterial& material, const Answers& answers) {
  const WorkloadSummary& summary = material.summary;
  OrderedJson bars = OrderedJson::array();
  for (const std::size_t i : bars_of(summary, answers)) {
    const SummaryRow& row = summary.rows[i];
    const analysis::Judgement& judgement = *row.against_reference;
    bars.push_back(
        {{"name", shown_mark(material.workload->configurations[i], row)},
         {"mean", judgement.pairs > 0 ? number_or_null(judgement.mean) : OrderedJson(nullptr)},
         {"interval", judgement.interval ? OrderedJson{judgement.interval->lower, judgement.interval->upper}
                                         : OrderedJson(nullptr)},
         {"difference", difference_text(summary.metric, judgement)},
         {"class", css_class_of(judgement.word)},
         {"tip", plain(verdict_text(summary, judgement))},
         {"word", analysis::short_words_of(judgement)}});
  }
  return bars;
}

/// The verdict: its word in the largest letters, and in a line against what and by how much.
OrderedJson tile_json(const WorkloadMaterial& material, const Answers& answers) {
  const WorkloadSummary& summary = material.summary;
  if (!answers.configuration)
    return {{"class", ""},
            {"verdict", "nothing yet"},
            {"lines", OrderedJson::array()},
            {"bars", OrderedJson::array()}};
  const SummaryRow& row = summary.rows[*answers.configuration];
  const std::string name = strong(shown_mark(material.workload->configurations[*answers.configuration], row));
  if (!row.against_reference)
    return {{"class", ""},
            {"soft", true},
            {"verdict", "no verdict"},
            {"lines", OrderedJson::array({name + " has no pair with FP32."})},
            {"bars", OrderedJson::array()}};
  const analysis::Judgement& judgement = *row.against_reference;
  // Without a verdict the difference is in the largest letters.
  const bool few = judgement.word == analysis::Word::cannot_tell && judgement.pairs < analysis::fewest_pairs;
  const std::string measured = judgement.pairs == 0 ? "" : difference_text(summary.metric, judgement),
                    said = words_of(judgement, summary.metric.unit());
  const std::string largest = few && !measured.empty() ? measured : std::string(short_words_of(judgement));
  std::string rest = few && judgement.pairs == 0 ? "no two runs of one seed" : few ? said : measured;
  if (judgement.diverged > 0)
    rest += fmt::format("{}{} of {} runs diverged", rest.empty() ? "" : ", ", judgement.diverged,
                        judgement.diverged + judgement.pairs);
  OrderedJson lines = OrderedJson::array({fmt::format(
      "{} against FP32, by {}: {}{}", name, plain(summary.metric.name), strong(plain(rest)),
      judgement.interval ? " " + explained(fmt::format("{} {}", analysis::interval_text(judgement.interval),
                                                       summary.metric.unit()),
                                           "Student’s 95 % interval of the mean difference to the FP32 run "
                                           "of the same seed, as if it "
                                           "were the only one on this page.")
                         : "")});
  if (summary.twin_band)
    lines.push_back(
        "FP32’s own noise: " +
        explained(fmt::format("{} {}", analysis::interval_text(summary.twin_band), summary.metric.unit()),
                  "One more run of FP32’s twin, which is FP32 with every initial weight changed in its last "
                  "bit, would end in this interval with 95 % probability, as a difference to FP32."));
  return {{"class", css_class_of(judgement.word)},
          {"verdict", largest},
          {"lines", std::move(lines)},
          {"bars", bars_json(material, answers)}};
}

}  // namespace

OrderedJson screen_json(const WorkloadMaterial& material, bool gradients) {
  const Answers answers = answers_of(material);
  const WorkloadSummary named = quoted(material.summary);
  OrderedJson word = nullptr;
  if (answers.configuration)
    if (const auto& judgement = material.summary.rows[*answers.configuration].against_reference)
      word = {{"class", css_class_of(judgement->word)}, {"text", analysis::short_words_of(*judgement)}};
  return {{"ranking", named.ranking ? OrderedJson(strong(plain(pretty(ranking_text(named)))) + " " +
                                                  plain(pretty(leader_text(named))))
                                    : OrderedJson(nullptr)},
          {"word", std::move(word)},
          {"tile", tile_json(material, answers)},
          {"answers", {{"wrong", answers.wrong}, {"costs", answers.costs}, {"fixes", answers.fixes}}},
          {"gradients", gradients}};
}

}  // namespace fp16lab::reports
