// What a visitor sees first of a workload: verdicts, three answers, the worst tensor and the curves.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reports/figures/figure_style.hpp"
#include "reports/page/answers.hpp"
#include "reports/page/html.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/shown_names.hpp"

namespace fp16lab::reports {
namespace {

/// More bars than these are a table, which stands below.
constexpr std::size_t most_bars = 6;

/// Where differences lie on the bars: zero, the twin's band and the intervals of the rows that are shown.
struct Axis {
  double low = 0, high = 0;
  void take(double x) {
    if (!std::isfinite(x)) return;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  double percent(double x) const { return 100 * (x - low) / (high - low); }
  std::string span(double from, double to) const {
    return fmt::format("left:{:.2f}%;width:{:.2f}%", percent(from), percent(to) - percent(from));
  }
};

std::string bar_html(const WorkloadSummary& summary, const SummaryRow& row, const Axis& axis) {
  std::string html = "<span class=\"bar\" aria-hidden=\"true\">";
  if (summary.twin_band)
    html += fmt::format("<i class=\"band\" style=\"{}\"></i>",
                        axis.span(summary.twin_band->lower, summary.twin_band->upper));
  html += fmt::format("<i class=\"zero\" style=\"left:{:.2f}%\"></i>", axis.percent(0));
  if (row.against_reference && row.against_reference->interval)
    html += fmt::format(
        "<i class=\"interval\" style=\"{}\"></i>",
        axis.span(row.against_reference->interval->lower, row.against_reference->interval->upper));
  if (row.against_reference && row.against_reference->pairs > 0)
    html += fmt::format("<i class=\"mean\" style=\"left:{:.2f}%\"></i>",
                        axis.percent(row.against_reference->mean));
  return html + "</span>";
}

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

std::string bars_html(const WorkloadMaterial& material, const Answers& answers) {
  const WorkloadSummary& summary = material.summary;
  const std::vector<std::size_t> rows = bars_of(summary, answers);
  if (rows.empty()) return "";
  Axis axis;
  if (summary.twin_band) axis.take(summary.twin_band->lower), axis.take(summary.twin_band->upper);
  for (const std::size_t i : rows) {
    const auto& judgement = *summary.rows[i].against_reference;
    if (judgement.pairs > 0) axis.take(judgement.mean);
    if (judgement.interval) axis.take(judgement.interval->lower), axis.take(judgement.interval->upper);
  }
  const double room = std::max(1e-12, 0.04 * (axis.high - axis.low));
  axis = {axis.low - room, axis.high + room};
  const std::string_view worse_side = summary.metric.higher_is_better() ? "left" : "right";
  std::string html =
      fmt::format("<ul class=\"bars\" aria-label=\"Differences to FP32, in {} of {}; to the {} is worse\">\n",
                  summary.metric.unit(), html_escape(summary.metric.name), worse_side);
  for (const std::size_t i : rows) {
    const SummaryRow& row = summary.rows[i];
    const analysis::Judgement& judgement = *row.against_reference;
    html += fmt::format(
        "<li><span class=\"name\">{}</span>{}<span class=\"difference\">{}</span>"
        "<span class=\"word {} tip\" tabindex=\"0\" data-tip=\"{}\">{}</span></li>\n",
        name_html(material.workload->configurations[i], row), bar_html(summary, row, axis),
        difference_text(summary.metric, judgement), css_class_of(judgement.word),
        html_escape(verdict_text(summary, judgement)), analysis::short_words_of(judgement));
  }
  html += "</ul>\n";
  std::string legend = fmt::format(
      "Dot: mean of the pairs of seeds; bar: its 95 % interval; line: FP32, worse to the {}", worse_side);
  if (summary.twin_band)
    legend +=
        "; grey: noise, where FP32 ends that is run again with every initial weight changed in its last bit "
        "(95 %; the seeds’ spread is not in it)";
  return html + fmt::format("<p class=\"soft\">{}.</p>\n", legend);
}

std::string tile_html(const WorkloadMaterial& material, const Answers& answers) {
  const WorkloadSummary& summary = material.summary;
  if (!answers.configuration) return "<div class=\"tile\"><p class=\"verdict\">nothing yet</p></div>\n";
  const SummaryRow& row = summary.rows[*answers.configuration];
  const std::string name = name_html(material.workload->configurations[*answers.configuration], row);
  if (!row.against_reference)
    return fmt::format(
        "<div class=\"tile\"><p class=\"verdict soft\">no verdict</p>\n<p><strong>{}</strong> has no "
        "pair with FP32.</p></div>\n",
        name);
  const analysis::Judgement& judgement = *row.against_reference;
  // Without a verdict the difference is what there is to say, in the largest letters.
  const bool few = judgement.word == analysis::Word::cannot_tell && judgement.pairs < analysis::fewest_pairs;
  const std::string measured = judgement.pairs == 0 ? "" : difference_text(summary.metric, judgement),
                    said = words_of(judgement, summary.metric.unit());
  const std::string largest = few && !measured.empty() ? measured : std::string(short_words_of(judgement));
  std::string rest = few && judgement.pairs == 0 ? "no two runs of one seed" : few ? said : measured;
  if (judgement.diverged > 0)
    rest += fmt::format("{}{} of {} runs diverged", rest.empty() ? "" : ", ", judgement.diverged,
                        judgement.diverged + judgement.pairs);
  std::string html = fmt::format(
      "<div class=\"tile {}\">\n<p class=\"verdict {}\">{}</p>\n"
      "<p class=\"against\"><strong>{}</strong> against FP32, by {}: <strong>{}</strong>{}</p>\n",
      css_class_of(judgement.word), css_class_of(judgement.word), largest, name,
      html_escape(summary.metric.name), rest,
      judgement.interval
          ? fmt::format(" <span class=\"tip\" tabindex=\"0\" data-tip=\"Student’s 95 % interval of "
                        "the mean difference to the FP32 run of the same seed, as if it were the "
                        "only one on this page.\">{} {}</span>",
                        analysis::interval_text(judgement.interval), summary.metric.unit())
          : "");
  if (summary.twin_band)
    html += fmt::format(
        "<p class=\"against\">FP32’s own noise: <span class=\"tip\" tabindex=\"0\" data-tip=\"One more "
        "run of FP32’s twin, which is FP32 with every initial weight changed in its last bit, would end in "
        "this interval with 95 % probability, as a difference to FP32.\">{} {}</span></p>\n",
        analysis::interval_text(summary.twin_band), summary.metric.unit());
  return html + bars_html(material, answers) + "</div>\n";
}

std::string answer(std::size_t index, std::string_view kind, std::string_view question,
                   const std::string& sentence) {
  return fmt::format("<dt>{}</dt>\n<dd id=\"{}-{}\">{}</dd>\n", question, kind, index, sentence);
}

}  // namespace

std::string workload_choice(const std::vector<WorkloadMaterial>& material) {
  if (material.size() < 2) return "";
  constexpr std::size_t most_buttons = 5;
  if (material.size() > most_buttons) {
    std::string html = "<p class=\"choice\"><label>Workload <select id=\"workload\">";
    for (std::size_t i = 0; i < material.size(); ++i)
      html += fmt::format("<option value=\"{}\">{}</option>", i, html_escape(material[i].workload->name));
    return html + "</select></label></p>\n";
  }
  std::string html = "<div class=\"choice\" role=\"group\" aria-label=\"Workload\">";
  for (std::size_t i = 0; i < material.size(); ++i) {
    const Answers answers = answers_of(material[i]);
    std::string word;
    if (answers.configuration)
      if (const auto& judgement = material[i].summary.rows[*answers.configuration].against_reference)
        word = fmt::format(" <span class=\"word {}\">{}</span>", css_class_of(judgement->word),
                           analysis::short_words_of(*judgement));
    html += fmt::format("<button type=\"button\" data-choose=\"{}\" aria-pressed=\"{}\">{}{}</button>", i,
                        i == 0, html_escape(material[i].workload->name), word);
  }
  return html + "</div>\n";
}

std::string first_screen(const WorkloadMaterial& material, std::size_t index, bool gradients) {
  const Answers answers = answers_of(material);
  const std::string name = html_escape(material.workload->name);
  std::string html = fmt::format(
      "<section class=\"screen\" id=\"workload-{0}\" data-screen=\"{0}\" aria-label=\"{1}\">\n"
      "<h2 class=\"only-print\">{1}</h2>\n",
      index, name);
  const WorkloadSummary named = quoted(material.summary);
  if (named.ranking)
    html += fmt::format("<p class=\"ranking\"><strong>{}</strong> {}</p>\n",
                        html_escape(pretty(ranking_text(named))), html_escape(pretty(leader_text(named))));
  html += "<div class=\"facts\">\n";
  html += tile_html(material, answers);
  html += "<dl class=\"answers\">\n";
  html += answer(index, "wrong", "What is wrong, and how much?", answers.wrong);
  html += answer(index, "costs", "What does it cost, against FP32 and against its own noise?", answers.costs);
  html += answer(index, "fixes", "Which scale or policy fixes it?", answers.fixes);
  html += "</dl>\n</div>\n<div class=\"views\">\n";
  if (gradients)
    html += fmt::format(
        "<figure class=\"zones\" data-zones=\"{0}\">\n<figcaption></figcaption>\n<div "
        "class=\"histogram\"></div>\n<div class=\"scale-control\"><label for=\"scale-{0}\">Loss scale "
        "<output id=\"scale-value-{0}\" for=\"scale-{0}\"></output></label><button type=\"button\" "
        "class=\"recorded\" aria-pressed=\"true\">as recorded</button><input type=\"range\" id=\"scale-{0}\" "
        "min=\"-10\" max=\"24\" step=\"1\" value=\"0\"><div class=\"ticks\" "
        "aria-hidden=\"true\"></div></div>\n</figure>\n",
        index);
  html += fmt::format("<figure class=\"training\" data-curves=\"{}\"></figure>\n</div>\n</section>\n", index);
  return html;
}

}  // namespace fp16lab::reports
