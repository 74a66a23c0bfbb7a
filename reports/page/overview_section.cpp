// The retrained league: configurations that several workloads share, side by side.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/page/emulation.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

/// Short enough for a column a workload; margins, intervals and twins are in each workload's own table.
TableCell difference_cell(const WorkloadSummary& summary, const SummaryRow& row) {
  if (row.is_reference) return {row.final_values.empty() ? "–" : "reference"};
  if (!row.against_reference) return {row.final_values.empty() ? "–" : "no FP32"};
  const analysis::Judgement& judgement = *row.against_reference;
  TableCell cell{.text = std::string(analysis::short_words_of(judgement)),
                 .css_class = std::string(css_class_of(judgement.word)),
                 .tip = verdict_text(summary, judgement)};
  if (judgement.diverged > 0)
    cell.text += ", diverged";
  else if (judgement.pairs > 0) {
    // "+16.81 % worse", "-0.10 points (worse) equal".
    std::string difference = difference_text(summary.metric, judgement);
    if (const std::string said = fmt::format(" ({})", cell.text); difference.ends_with(said))
      difference.erase(difference.size() - said.size());
    cell.text = difference + " " + cell.text;
  }
  if (judgement.pairs > 0) cell.value = summary.metric.badness(judgement.mean);
  return cell;
}

struct Place {
  std::size_t workload = 0;
  const SummaryRow* row = nullptr;
};

/// Its short name, if every workload has the same one.
std::string name_of(const std::string& label, const std::vector<Place>& places) {
  const std::string& shown = places.front().row->label;
  const bool one = std::all_of(places.begin(), places.end(),
                               [&](const Place& place) { return place.row->label == shown; });
  return plain(pretty(one ? shown : label));
}

TableRow league_row(const std::string& label, const std::vector<Place>& places,
                    const std::vector<WorkloadMaterial>& material) {
  TableRow cells{{{name_of(label, places)}}, places.front().row->is_reference};
  std::size_t judged = 0, worse = 0;
  std::uint64_t skipped = 0, steps = 0;
  double slowdown = 0;
  std::size_t timed = 0;
  for (std::size_t w = 0; w < material.size(); ++w) {
    const auto found =
        std::find_if(places.begin(), places.end(), [w](const Place& place) { return place.workload == w; });
    if (found == places.end()) {
      cells.cells.push_back({"–"});
      continue;
    }
    const SummaryRow& row = *found->row;
    cells.cells.push_back(difference_cell(material[w].summary, row));
    if (row.against_reference) {
      ++judged;
      worse += row.against_reference->word == analysis::Word::worse ? 1 : 0;
    }
    skipped += row.skipped;
    steps += row.steps;
    // Against FP32's step: seconds of different workloads do not add up.
    const auto& rows = material[w].summary.rows;
    const auto reference =
        std::find_if(rows.begin(), rows.end(), [](const SummaryRow& r) { return r.is_reference; });
    if (reference != rows.end() && reference->seconds_per_step > 0 && row.seconds_per_step > 0) {
      slowdown += row.seconds_per_step / reference->seconds_per_step;
      ++timed;
    }
  }
  cells.cells.push_back(judged == 0
                            ? TableCell{"–"}
                            : TableCell{fmt::format("{} of {}", worse, judged), static_cast<double>(worse)});
  cells.cells.push_back(steps == 0 ? TableCell{"–"}
                                   : TableCell{fmt::format("{} of {}", skipped, steps),
                                               static_cast<double>(skipped) / static_cast<double>(steps)});
  const double mean = timed == 0 ? 0 : slowdown / static_cast<double>(timed);
  cells.cells.push_back(timed == 0 ? TableCell{"–"} : TableCell{fmt::format("{:.2f}×", mean), mean});
  return cells;
}

}  // namespace

OrderedJson overview_json(const RunSet& set, const std::vector<WorkloadMaterial>& material) {
  if (material.size() < 2) return nullptr;
  std::map<std::string, std::vector<Place>> places;
  std::vector<std::string> labels;  // as users named them, in the order of the workloads' tables
  for (std::size_t w = 0; w < material.size(); ++w)
    for (std::size_t i = 0; i < material[w].summary.rows.size(); ++i) {
      const std::string& label = material[w].workload->configurations[i].label;
      if (places[label].empty()) labels.push_back(label);
      places[label].push_back({w, &material[w].summary.rows[i]});
    }
  std::vector<TableColumn> columns{
      {"configuration", "Precision and loss scaling, the same in every workload.", true}};
  for (const WorkloadMaterial& item : material)
    columns.push_back(
        {plain(item.workload->name + ", " + item.summary.metric.name),
         "Mean difference to the FP32 run of the same seed, in the metric’s own sign. Then the verdict."});
  columns.push_back({"worse", "Number of workloads in which it is worse than FP32, out of those with both."});
  columns.push_back({"skipped", "Steps without an update, of the steps of all runs."});
  const bool emulated = std::any_of(material.begin(), material.end(), [&](const WorkloadMaterial& item) {
    return is_emulated(set, *item.workload);
  });
  columns.push_back({time_title("time against FP32", emulated),
                     "A step’s seconds relative to FP32 in the same workload, mean over workloads, including "
                     "other load on the machine: equal work may differ by half."});
  std::vector<TableRow> rows;
  for (const std::string& label : labels)
    if (places[label].size() > 1) rows.push_back(league_row(label, places[label], material));
  if (rows.size() < 3) return nullptr;  // FP32 and two that are compared
  return table_json("All workloads", columns, rows);
}

}  // namespace fp16lab::reports
