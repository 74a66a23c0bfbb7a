#include "reports/page/page_sections.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/page/emulation.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/shown_names.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

/// "cannot tell" with its details in smaller print after it.
TableCell verdict_cell(const WorkloadSummary& summary, const SummaryRow& row) {
  if (!row.against_reference)
    return {row.is_reference && !row.final_values.empty() ? "reference" : unjudged_words(row)};
  const analysis::Judgement& judgement = *row.against_reference;
  const std::string text = verdict_text(summary, judgement);
  const std::size_t word = std::min(text.find(" ("), text.size());
  TableCell cell{plain(text.substr(0, word))};
  if (word < text.size()) cell.text += " " + small(plain(text.substr(word + 1)));
  cell.css_class = fmt::format("verdict {}", css_class_of(judgement.word));
  if (judgement.adjusted)
    cell.tip = fmt::format("Adjusted for the tests on this page: {} {}.",
                           analysis::interval_text(judgement.adjusted), summary.metric.unit());
  return cell;
}

/// Its short name, and in smaller print what its runs are called where that is something else.
TableCell name_cell(const LineStyle& style, const Configuration& configuration, const SummaryRow& row) {
  const std::string given = given_name(configuration, row.label);
  return {.text = plain(pretty(row.label)) + (given.empty() ? "" : " " + small(plain(given))),
          .swatch = style.color};
}

/// Is it worse than FP32's own noise?
TableCell noise_cell(const WorkloadSummary& summary, const SummaryRow& row) {
  const std::optional<bool> noise = row.worse_than_noise();
  if (!row.against_twin) return {"–"};
  return {.text = !noise   ? "cannot tell"
                  : *noise ? "worse"
                           : "not worse",
          .css_class = noise.value_or(false) ? "worse" : "",
          .tip = fmt::format("Against the twin: {}, {}.", measured_text(summary.metric, *row.against_twin),
                             analysis::words_of(*row.against_twin, summary.metric.unit()))};
}

OrderedJson summary_json(const RunSet& set, const WorkloadMaterial& material) {
  const WorkloadSummary& summary = material.summary;
  const std::vector<LineStyle> styles = styles_of(*material.workload);
  const bool loss_too = summary.metric.quantity != Quantity::loss;
  const bool twins = material.workload->twin() != nullptr;
  std::vector<TableColumn> columns{
      {"configuration", "Precision and loss scaling; FP32’s twin starts with every weight moved by one ulp.",
       true},
      {"seeds", "Seeds whose runs ended, out of those started or planned."},
      {plain(summary.metric.name), "Mean over seeds, at the end of training."}};
  if (loss_too) columns.push_back({"loss", "The loss of the same evaluation, mean over seeds."});
  columns.insert(columns.end(),
                 {{"against FP32",
                   "Mean over pairs of runs with the same seed, in the metric’s own sign; and the number of "
                   "pairs where seeds lack one."},
                  {"95 % of pairs, unadjusted",
                   "Student’s interval of the mean difference to the FP32 run of the same seed, as if it "
                   "were the only one."},
                  {"verdict",
                   "Equal within the margin, better, worse, or cannot tell; all pairs of this page are one "
                   "family of tests.",
                   true}});
  if (twins)
    columns.push_back({"against the FP32 twin",
                       "The twin is FP32 with every initial weight changed in its last bit: differences "
                       "between them are noise. “Worse” means worse than FP32 and than the twin; “not worse” "
                       "means equal to one of them, within the margin, or better.",
                       true});
  columns.insert(columns.end(),
                 {{"underflow",
                   "Recorded: share of all non-zero gradients, over all tensors, steps and seeds, that the "
                   "casts made zero. A single tensor may lose far more."},
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
        {name_cell(styles[i], material.workload->configurations[i], row),
         {seeds_text(row), static_cast<double>(row.different_seeds)},
         {.text = row.final_values.empty() ? "–" : value_text(summary.metric, quality.mean),
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
                " One FP32 run whose initial weights were moved by one ulp ends within {} {} of FP32 (95 %): "
                "a single run inside that band differs by no more than this noise.",
                analysis::interval_text(summary.twin_band), summary.metric.unit())
          : "";
  return {
      {"words",
       fmt::format("At the end of training: {}, paired with the FP32 run of the same seed, in the metric’s "
                   "own sign. “Equal” means within {}, a margin that was fixed before the runs. All pairs of "
                   "this page are one family of tests: if nothing differs, at most 5 % of such tables report "
                   "a difference (Holm). Intervals are not adjusted for it; those shown on hover over "
                   "“worse” and “better” are.{} Underflow is recorded, over all gradients: the share that "
                   "the runs' own casts made zero, at the scale of each step; FP32 casts nothing.",
                   plain(summary.metric.name),
                   analysis::with_unit(summary.metric.margin, summary.metric.unit()), band)},
      {"table", table_json(summary.name, columns, rows)}};
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
  return plain("Overflows, first seed: " + pretty(words) + ".");
}

}  // namespace

std::string_view css_class_of(analysis::Word word) {
  return word == analysis::Word::cannot_tell ? "soft" : analysis::name_of(word);
}

OrderedJson workload_json(const RunSet& set, const WorkloadMaterial& material, bool gradients,
                          const PageDetail& detail) {
  return {{"words", plain(pretty(material.summary.words))},
          {"screen", screen_json(material, gradients)},
          {"overflows", overflow_words(set, material)},
          {"summary", summary_json(set, material)},
          {"network", network_json(set, material, detail.still_figures)}};
}

OrderedJson notes_json(const RunSet& set, const std::vector<WorkloadMaterial>& material) {
  OrderedJson notes = OrderedJson::array();
  for (const std::string& note : set.notes) notes.push_back(plain(note));
  for (const WorkloadMaterial& item : material)
    for (const std::string& note : item.summary.notes) notes.push_back(plain(note));
  return notes;
}

}  // namespace fp16lab::reports
