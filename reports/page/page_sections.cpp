#include "reports/page/page_sections.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/page/emulation.hpp"
#include "reports/page/html.hpp"
#include "reports/page/html_table.hpp"
#include "reports/page/shown_names.hpp"

namespace fp16lab::reports {
namespace {

std::string drawing_of(const WorkloadMaterial& material, const PageDetail& detail) {
  const auto& [stem, svg] = material.network;
  if (svg.empty()) return "";
  if (!detail.still_figures)
    return fmt::format("<p class=\"soft\">The drawing of it is figures/{}.svg.</p>\n", stem);
  return fmt::format(
      "<figure><img class=\"still\" alt=\"The network of {}\" src=\"{}\"><figcaption>The network as a graph; "
      "figures/{}.svg is the same picture.</figcaption></figure>\n",
      html_escape(material.workload->name), data_url("image/svg+xml", svg), stem);
}

/// "cannot tell" with its details in smaller print behind it.
TableCell verdict_cell(const WorkloadSummary& summary, const SummaryRow& row) {
  if (!row.against_reference)
    return {row.is_reference && !row.final_values.empty() ? "reference" : unjudged_words(row)};
  const analysis::Judgement& judgement = *row.against_reference;
  const std::string text = verdict_text(summary, judgement);
  const std::size_t word = std::min(text.find(" ("), text.size());
  TableCell cell{html_escape(text.substr(0, word))};
  if (word < text.size()) cell.html += fmt::format(" <small>{}</small>", html_escape(text.substr(word + 1)));
  cell.css_class = fmt::format("verdict {}", css_class_of(judgement.word));
  if (judgement.adjusted)
    cell.tip = fmt::format("At the level of its test among those of this page: {} {}.",
                           analysis::interval_text(judgement.adjusted), summary.metric.unit());
  return cell;
}

/// Its short name, and in smaller print what its runs are called where that is something else.
std::string name_cell(const LineStyle& style, const Configuration& configuration, const SummaryRow& row) {
  const std::string given = given_name(configuration, row.label);
  return fmt::format("<span class=\"swatch\" style=\"--color:{}\"></span>{}{}", style.color,
                     html_escape(pretty(row.label)),
                     given.empty() ? "" : fmt::format(" <small>{}</small>", html_escape(given)));
}

/// Is it worse than FP32's own noise?
TableCell noise_cell(const WorkloadSummary& summary, const SummaryRow& row) {
  const std::optional<bool> noise = row.worse_than_noise();
  if (!row.against_twin) return {"–"};
  return {.html = !noise   ? "cannot tell"
                  : *noise ? "worse"
                           : "not worse",
          .css_class = noise.value_or(false) ? "worse" : "",
          .tip = fmt::format("Against the twin: {}, {}.", measured_text(summary.metric, *row.against_twin),
                             analysis::words_of(*row.against_twin, summary.metric.unit()))};
}

std::string summary_html(const RunSet& set, const WorkloadMaterial& material) {
  const WorkloadSummary& summary = material.summary;
  const std::vector<LineStyle> styles = styles_of(*material.workload);
  const bool loss_too = summary.metric.quantity != Quantity::loss;
  const bool twins = material.workload->twin() != nullptr;
  std::vector<TableColumn> columns{
      {"configuration", "Precision and loss scaling; FP32’s twin began with every weight moved by one ulp.",
       true},
      {"seeds", "Seeds whose runs ended, of those that were begun or planned."},
      {html_escape(summary.metric.name), "Mean over seeds, at the end of training."}};
  if (loss_too) columns.push_back({"loss", "The loss of the same evaluation, mean over seeds."});
  columns.insert(columns.end(),
                 {{"against FP32",
                   "Mean over pairs of runs with the same seed, in the metric’s own sign; where not all "
                   "seeds have a pair, how many do."},
                  {"95 % of pairs, unadjusted",
                   "Student’s interval of the mean difference to the FP32 run of the same seed, as if it "
                   "were the only one."},
                  {"verdict",
                   "Equal within the margin, better, worse, or cannot tell; all pairs of this page are one "
                   "family of tests.",
                   true}});
  if (twins)
    columns.push_back(
        {"against the FP32 twin",
         "The twin is FP32 run again with every initial weight changed in its last bit: what differs is "
         "noise. Worse is what is worse than FP32 and worse than the twin; not worse is what is equal to "
         "one of them, within the margin, or better.",
         true});
  columns.insert(
      columns.end(),
      {{"underflow",
        "Recorded: share of all non-zero gradients, of all tensors, steps and seeds together, that "
        "the casts made zero. One tensor alone may lose far more."},
       {"skipped", "Steps without an update because a gradient overflowed, over all seeds."},
       {"last scale", "The loss scale of the last step of the first seed."},
       {time_title("ms/step", is_emulated(set, *material.workload)),
        "The median step, on the machine that trained."},
       {"peak MiB", "Most bytes of tensors alive at once in the first two steps."}});
  std::vector<TableRow> rows;
  for (std::size_t i = 0; i < summary.rows.size(); ++i) {
    const SummaryRow& row = summary.rows[i];
    const bool fp32 = material.workload->configurations[i].id.fp32;
    const analysis::Quality quality = analysis::quality_of(row.final_values);
    TableCell difference{row.is_reference ? "reference" : "–"}, pairs{"–"};
    if (row.against_reference && row.against_reference->pairs > 0)
      difference = {difference_text(summary, row), row.against_reference->mean};
    if (row.against_reference && row.against_reference->interval)
      pairs = {fmt::format("{} {}", analysis::interval_text(row.against_reference->interval),
                           summary.metric.unit()),
               row.against_reference->interval->upper};
    const auto seen = [](bool known, double value) {
      return known ? std::optional<double>(value) : std::nullopt;
    };
    TableRow cells{
        {{name_cell(styles[i], material.workload->configurations[i], row)},
         {seeds_text(row), static_cast<double>(row.different_seeds)},
         {.html = row.final_values.empty() ? "–" : value_text(summary.metric, quality.mean),
          .value = seen(!row.final_values.empty(), quality.mean),
          .starred = summary.ranking && summary.ranking->leads() && summary.ranking->order[0] == i}},
        row.is_reference};
    if (loss_too) {
      const double loss = analysis::quality_of(row.final_losses).mean;
      cells.cells.push_back({fmt::format("{:.4g}", loss), loss});
    }
    cells.cells.insert(cells.cells.end(), {difference, pairs, verdict_cell(summary, row)});
    if (twins) cells.cells.push_back(noise_cell(summary, row));
    cells.cells.insert(
        cells.cells.end(),
        {{row.casts ? underflow_text(row) : "–",
          seen(row.casts.has_value(), row.casts.value_or(CastCounts{}).underflow_rate())},
         {row.skipped > 0 ? fmt::format("{} of {}", row.skipped, row.steps) : "0",
          static_cast<double>(row.skipped)},
         {fp32 ? "–" : pretty(scale_text(row.last_scale)), seen(!fp32, row.last_scale)},
         {fmt::format("{:.3g}", 1e3 * row.seconds_per_step), row.seconds_per_step},
         {row.memory ? fmt::format("{:.3g}", static_cast<double>(row.memory->peak) / (1 << 20)) : "–",
          seen(row.memory.has_value(), static_cast<double>(row.memory.value_or(RunMemory{}).peak))}});
    rows.push_back(std::move(cells));
  }
  const std::string band =
      summary.twin_band
          ? fmt::format(
                " One FP32 run whose initial weights were moved by one ulp ends within {} {} of FP32 "
                "(95 %): a single run inside that band differs by no more than that does by itself.",
                analysis::interval_text(summary.twin_band), summary.metric.unit())
          : "";
  return fmt::format(
             "<p class=\"soft\">At the end of training: {}, paired with the FP32 run of the same seed, in "
             "the metric’s own sign. “Equal” means within {}, a margin that was fixed before the runs. All "
             "pairs of this page are one family of tests: of such tables without any difference at most 5 % "
             "say one (Holm). Intervals are not adjusted for it, those of “worse” and “better” on hover "
             "are.{} Underflow is of all gradients together and recorded: what the runs' own casts made "
             "zero, at the scale of each step; FP32 casts nothing.</p>\n",
             html_escape(summary.metric.name),
             analysis::with_unit(summary.metric.margin, summary.metric.unit()), band) +
         html_table(summary.name, columns, rows);
}

/// "Overflows, first seed: FP16 dynamic in 3 steps, first in step 7 (fc1.weight, fc1.bias and 2 more)." Empty
/// without any.
std::string overflow_words(const RunSet& set, const WorkloadMaterial& material) {
  constexpr std::size_t shown = 3;
  std::string words;
  for (std::size_t c = 0; c < material.summary.rows.size(); ++c) {
    const Configuration& configuration = material.workload->configurations[c];
    const std::vector<OverflowRow> rows = read_overflows(set.runs[configuration.runs.front()].folder.path);
    if (rows.empty()) continue;
    const std::vector<std::string>& names = rows.front().parameters;
    std::string what = rows.front().kind == OverflowKind::gradient ? "" : "the loss";
    for (std::size_t i = 0; i < std::min(shown, names.size()); ++i)
      what += (what.empty() ? "" : ", ") + names[i];
    if (names.size() > shown) what += fmt::format(" and {} more", names.size() - shown);
    words += fmt::format("{}“{}” in {}, first in step {}{}", words.empty() ? "" : "; ",
                         material.summary.rows[c].label, counted(rows.size(), "step"), rows.front().step,
                         what.empty() ? "" : " (" + what + ")");
  }
  if (words.empty()) return "";
  return "<p class=\"soft\">Overflows, first seed: " + html_escape(pretty(words)) + ".</p>\n";
}

}  // namespace

std::string_view css_class_of(analysis::Word word) {
  return word == analysis::Word::cannot_tell ? "soft" : analysis::name_of(word);
}

std::string words_section(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                          const std::string& extent) {
  std::string html = "<section id=\"words\">\n<h2>In words</h2>\n<div class=\"prose\">\n";
  for (const WorkloadMaterial& item : material)
    html += fmt::format("<p><strong>{}.</strong> {}</p>\n", html_escape(item.workload->name),
                        html_escape(pretty(item.summary.words)));
  html += "</div>\n";
  std::string notes;
  std::size_t count = 0;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& note : more) notes += fmt::format("<li>{}</li>\n", html_escape(note));
    count += more.size();
  };
  add(set.notes);
  for (const WorkloadMaterial& item : material) add(item.summary.notes);
  if (!notes.empty())
    html += fmt::format(
        "<details{}><summary>{} about these runs</summary>\n<ul class=\"notes soft\">\n{}</ul>\n"
        "</details>\n",
        count > 4 ? "" : " open", counted(count, "note"), notes);
  return html + extent + "</section>\n";
}

std::string scales_of(const RunSet& set, const WorkloadMaterial& material, std::size_t index) {
  return fmt::format(
      "<div><h3>Loss scale over steps: {0}</h3>\n<figure data-chart=\"scale\" "
      "data-workload=\"{1}\"></figure>\n{2}</div>",
      html_escape(material.workload->name), index, overflow_words(set, material));
}

std::string tables_of(const RunSet& set, const WorkloadMaterial& material, std::size_t index,
                      const PageDetail& detail) {
  const std::string& name = material.workload->name;
  return fmt::format("<h3>{}</h3>\n", html_escape(name)) + summary_html(set, material) +
         fmt::format("<div class=\"pair\" data-costs=\"{}\"></div>\n", index) +
         network_section(set, material, drawing_of(material, detail));
}

}  // namespace fp16lab::reports
