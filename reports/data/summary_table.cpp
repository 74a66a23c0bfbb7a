// The summary as aligned text.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "numerics/text/scale_text.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {
namespace {

using Cells = std::vector<std::string>;

constexpr std::size_t widest_verdict = 56;
constexpr std::size_t widest_sentence = 116;

/// In lines of at most `width`, broken at spaces.
std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    const std::size_t space = text.rfind(' ', width);
    if (space == std::string::npos || space == 0) break;
    lines.push_back(text.substr(0, space));
    text.erase(0, space + 1);
  }
  lines.push_back(std::move(text));
  return lines;
}

/// First column to the left, the last too (it is text, in several lines if need be), all others to the right.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& row : rows)
    for (std::size_t c = 0; c + 1 < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Cells& row : rows) {
    std::string line = "  ";
    for (std::size_t c = 0; c + 1 < row.size(); ++c)
      line += (c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("{:>{}}", row[c], widths[c])) +
              "  ";
    const std::string indent(line.size(), ' ');
    for (const std::string& part : wrapped(row.back(), widest_verdict)) {
      line += part;
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
      line = indent;
    }
  }
  return text;
}

Cells cells_of(const WorkloadSummary& summary, const SummaryRow& row, bool fp32, bool twins) {
  const analysis::Quality quality = analysis::quality_of(row.final_values);
  std::string difference = "-", pairs = "-", verdict(unjudged_words(row));
  if (row.is_reference && !row.final_values.empty()) verdict = "reference";
  if (row.against_reference) {
    difference = difference_text(summary, row);
    if (row.against_reference->interval) pairs = analysis::interval_text(row.against_reference->interval);
    verdict = verdict_text(summary, *row.against_reference);
  }
  Cells cells{row.label,
              seeds_text(row),
              row.final_values.empty() ? "-" : value_text(summary.metric, quality.mean),
              difference,
              pairs,
              row.casts ? underflow_text(row) : "-",
              fmt::format("{}", row.skipped),
              fp32 ? "-" : scale_text(row.last_scale),
              fmt::format("{:.3g}", 1e3 * row.seconds_per_step),
              row.memory ? fmt::format("{:.3g}", static_cast<double>(row.memory->peak) / (1 << 20)) : "-"};
  if (twins) {
    const std::optional<bool> noise = row.worse_than_noise();
    cells.emplace_back(noise ? *noise ? "worse" : "not worse" : row.against_twin ? "cannot tell" : "-");
  }
  cells.push_back(verdict);
  return cells;
}

}  // namespace

std::string summary_table(const RunSet& set, const std::vector<WorkloadSummary>& summaries) {
  std::string text, notes;
  bool any_twin = false;
  for (std::size_t w = 0; w < summaries.size(); ++w) {
    const WorkloadSummary& summary = summaries[w];
    const Workload& workload = set.workloads[w];
    const bool twins = workload.twin() != nullptr;
    any_twin |= twins;
    std::vector<Cells> rows{{"configuration", "seeds", summary.metric.name, "vs FP32",
                             "95 % of pairs, unadjusted", "underflow", "skipped", "last scale", "ms/step",
                             "peak MiB", "verdict"}};
    if (twins) rows.front().insert(rows.front().end() - 1, "FP32's noise");
    for (std::size_t i = 0; i < summary.rows.size(); ++i)
      rows.push_back(cells_of(summary, summary.rows[i], workload.configurations[i].id.fp32, twins));
    text += workload.name + "\n" + aligned(rows);
    if (summary.twin_band)
      text += fmt::format("  one FP32 run moved by one ulp ends within {} {} of FP32 (95 %)\n",
                          analysis::interval_text(summary.twin_band), summary.metric.unit());
    std::vector<std::string> sentences{ranking_text(summary), leader_text(summary), skips_text(summary)};
    std::ranges::copy(troubles_of(summary), std::back_inserter(sentences));
    for (const std::string& trouble : sentences) {
      if (trouble.empty()) continue;
      const char* begin = "  ";
      for (const std::string& line : wrapped(trouble, widest_sentence)) {
        text += begin + line + "\n";
        begin = "    ";
      }
    }
    text += "\n";
    for (const std::string& note : summary.notes) notes += "note: " + note + "\n";
  }
  if (!text.empty())
    text +=
        "vs FP32: mean difference to the FP32 run of the same seed, in the metric's own sign; then Student's "
        "interval of it, as\n  if it were the only pair. Verdicts take all pairs together (Holm, 5 %); the "
        "detectable difference and the number of seeds\n  that would decide (both with a power of 80 %) do "
        "not\nms/step: the median, including other load on the machine; peak: the most bytes of tensors "
        "alive at once in the first two steps\nunderflow: share of the non-zero gradients that the run's own "
        "casts rounded to zero\n";
  if (any_twin)
    text +=
        "FP32's noise: \"worse\" means worse than FP32 and than its twin, whose weights were moved by one "
        "ulp\n";
  for (const std::string& note : set.notes) text += "note: " + note + "\n";
  return text + notes;
}

}  // namespace fp16lab::reports
