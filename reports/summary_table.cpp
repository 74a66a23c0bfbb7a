// The summary as aligned text.
#include <fmt/core.h>

#include <algorithm>

#include "reports/report.hpp"
#include "reports/summary.hpp"

namespace fp16lab::reports {
namespace {

using Cells = std::vector<std::string>;

/// First column to the left, the last too (it is text), all others to the right.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Cells& row : rows) {
    std::string line = "  ";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool left = c == 0 || c + 1 == row.size();
      line += left ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("{:>{}}", row[c], widths[c]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

Cells cells_of(const SummaryRow& row, const Metric& metric, bool fp32) {
  const analysis::Quality quality = analysis::quality_of(row.final_values);
  Cells cells{row.label,
              row.runs > quality.seeds ? fmt::format("{} of {}", quality.seeds, row.runs)
                                       : fmt::format("{}", quality.seeds),
              row.final_values.empty() ? "-" : value_text(metric, quality.mean)};
  std::string difference = "-", pairs = "-", spread = "-", verdict = row.final_values.empty() ? "no finished run" : "";
  if (row.is_reference && !row.final_values.empty()) verdict = "reference";
  if (row.against_reference) {
    difference = difference_text(metric, *row.against_reference);
    pairs = paired_text(metric, row);
    spread = spread_text(metric, *row.against_reference);
    verdict = analysis::name_of(row.against_reference->verdict);
  }
  cells.insert(cells.end(), {difference, pairs, spread, row.casts ? underflow_text(row) : "-",
                             fmt::format("{}", row.skipped), fp32 ? "-" : scale_text(row.last_scale),
                             fmt::format("{:.3g}", row.seconds_per_step), verdict});
  return cells;
}

}  // namespace

std::string summary_table(const RunSet& set) {
  std::string text;
  for (const Workload& workload : set.workloads) {
    const WorkloadSummary summary = summarise(set, workload);
    std::vector<Cells> rows{{"configuration", "seeds", summary.metric.name, "vs FP32", "95 % of pairs", "spread", "underflow",
                             "skipped", "last scale", "s/step", "verdict"}};
    for (std::size_t i = 0; i < summary.rows.size(); ++i)
      rows.push_back(cells_of(summary.rows[i], summary.metric,
                              workload.configurations[i].id.precision == Precision::fp32));
    text += workload.name + "\n" + aligned(rows) + "\n";
  }
  if (!text.empty())
    text +=
        "95 % of pairs: Student's interval of the mean difference to the FP32 run of the same seed\n"
        "underflow: non-zero gradients that the run's own casts made zero, of those that they took\n";
  for (const std::string& note : set.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace fp16lab::reports
