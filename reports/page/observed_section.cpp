// What runs have recorded of tensors other than gradients.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/observed_output.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "reports/data/rate_text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

constexpr ObservedSet others{Observed::activations, Observed::weights, Observed::updates,
                             Observed::optimizer_state};

/// Rows of the last step in which each kind was recorded.
using LastRows = std::map<Observed, std::vector<HistogramRow>>;

LastRows last_rows(const Run& run) {
  LastRows last;
  if (other_tensors(run).empty()) return last;  // need not be read again
  const auto keep = [&last](const HistogramRow& row) {
    std::vector<HistogramRow>& rows = last[row.observed];
    if (!rows.empty() && rows.front().step != row.step) rows.clear();
    rows.push_back(row);
  };
  for_each_histogram(run.folder.path, keep, others);
  return last;
}

std::string_view words_of_kind(Observed observed) {
  static constexpr std::array<std::string_view, every<Observed>.size()> words{
      "", "Inputs and outputs of layers, before the cast to the dtype in which they are stored.",
      "As stored, and what their 16-bit copies lost.",
      "Unmoved: the stored weight did not change although its gradient was not zero. For weights that moved: "
      "the relative change, and what a weight without a master copy would keep of it.",
      "What 16 bits would keep of the moments and momenta, which are FP32."};
  return words.at(static_cast<std::size_t>(observed));
}

TableCell rate_cell(const analysis::RateInterval& rate) { return {rate_text(rate), rate.upper}; }
TableCell share_cell(std::uint64_t part, std::uint64_t of) {
  if (of == 0) return {"–"};
  const double share = static_cast<double>(part) / static_cast<double>(of);
  return {rate_text(share), share};
}

OrderedJson table_of(Observed observed, const std::vector<HistogramRow>& rows, bool watched) {
  const bool updates = observed == Observed::updates;
  std::vector<TableColumn> columns{
      {"tensor", "Layer and part, as checkpoints name it.", true},
      {"stored", "The format that holds it.", true},
      {"values", "Number of counted values."},
      {updates ? "still" : "zero", updates ? "Share of the weights that did not move at all."
                                           : "Share that is exactly zero before any cast."}};
  if (updates)
    columns.insert(
        columns.end(),
        {{"unmoved", "Share of the weights that did not change although their gradient was not zero."},
         {"lost in FP16", "Weights that moved by at most 2^-12 of themselves, which FP16 cannot hold."},
         {"moves in FP16", "Weights that moved by more than 2^-11 of themselves."},
         {"lost in BF16", "Weights that moved by at most 2^-9 of themselves, which BF16 cannot hold."},
         {"moves in BF16", "Weights that moved by more than 2^-8 of themselves."}});
  else
    columns.insert(columns.end(),
                   {{"lost by the cast", "Recorded: share of the non-zero values that became zero."},
                    {"zero in FP16", "Share of the non-zero values that FP16 rounds to zero."},
                    {"subnormal in FP16", "Share that FP16 keeps with fewer than 11 significant bits."},
                    {"overflow in FP16", "Share that FP16 makes infinite."},
                    {"zero in BF16", "Share of the non-zero values that BF16 rounds to zero."}});
  std::vector<TableRow> table;
  for (const HistogramRow& row : rows) {
    const std::uint64_t total = row.before.total();
    const auto rates = [&](DType format) {
      return analysis::rates_of(count_ranges(row.before, analysis::judged_range(observed, format), 1.0));
    };
    const analysis::ZoneRates half = rates(DType::f16), brain = rates(DType::bf16);
    std::vector<TableCell> cells{{plain(row.tensor)},
                                 {title_of(row.dtype)},
                                 {fmt::format("{}", total), static_cast<double>(total)},
                                 share_cell(row.before.zero, total)};
    if (updates) {
      cells.insert(cells.end(), {share_cell(row.unmoved.value_or(0), total), rate_cell(half.lost),
                                 rate_cell(half.normal), rate_cell(brain.lost), rate_cell(brain.normal)});
    } else {
      const std::optional<CastCounts> cast = cast_counts(row.dtype, row.before, row.after, watched);
      cells.insert(cells.end(),
                   {cast ? share_cell(cast->underflow, cast->values) : TableCell{"–"}, rate_cell(half.lost),
                    rate_cell(half.subnormal), rate_cell(half.overflow), rate_cell(brain.lost)});
    }
    table.push_back({std::move(cells)});
  }
  return table_json(analysis::title_of(observed), columns, table);
}

}  // namespace

OrderedJson blocks_json(const Run& run, std::size_t points) {
  struct Operand {
    std::string_view product, part, label;
  };
  static constexpr std::array<Operand, 6> operands{{{"forward", "input", "x, forward"},
                                                    {"forward", "weight", "weight, forward"},
                                                    {"dx", "output", "gradient, dx"},
                                                    {"dx", "weight", "weight, dx"},
                                                    {"dw", "output", "gradient, dw"},
                                                    {"dw", "input", "x, dw"}}};
  std::map<std::uint64_t, std::array<RecipeRow, operands.size()>> steps;
  for (const RecipeRow& row : read_recipe(run.folder.path)) {
    const std::string_view part = std::string_view(row.tensor).substr(row.tensor.rfind('.') + 1);
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i].product == row.product && operands[i].part == part) steps[row.step][i] += row;
  }
  if (steps.empty()) return nullptr;
  std::vector<double> numbers;
  std::map<std::string_view, std::array<std::vector<double>, operands.size()>> drawn;
  const std::size_t stride = (steps.size() + points - 1) / points;
  for (std::size_t index = 0; const auto& [step, sums] : steps) {
    if (index++ % stride != 0) continue;
    numbers.push_back(static_cast<double>(step));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto percent = [values = static_cast<double>(sums[i].values)](std::uint64_t part) {
        return 100 * static_cast<double>(part) / values;
      };
      drawn["zeroed"][i].push_back(percent(sums[i].made_zero));
      drawn["saturated"][i].push_back(percent(sums[i].saturated));
      drawn["headroom"][i].push_back(sums[i].mean_headroom.value_or(NAN));
    }
  }
  OrderedJson json = OrderedJson::array();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    json.push_back({{"label", operands[i].label}});
    for (const auto& [name, lines] : drawn) json.back()[std::string(name)] = drawn_numbers(lines[i]);
  }
  return {{"step", drawn_numbers(numbers)}, {"operands", std::move(json)}};
}

OrderedJson observed_json(const RunSet& set, const std::vector<WorkloadMaterial>& material) {
  OrderedJson tables = OrderedJson::array();
  for (const WorkloadMaterial& item : material)
    for (std::size_t i = 0; i < item.summary.rows.size(); ++i) {
      const Run* const run = representative(set, item.workload->configurations[i]);
      if (run == nullptr) continue;
      for (const auto& [observed, rows] : last_rows(*run))
        tables.push_back({{"summary", plain(fmt::format("{}, {}: {} of step {}", item.workload->name,
                                                        pretty(item.summary.rows[i].label),
                                                        analysis::title_of(observed), rows.front().step))},
                          {"words", words_of_kind(observed)},
                          {"table", table_of(observed, rows, is_watched(run->folder.manifest))}});
    }
  return tables;
}

}  // namespace fp16lab::reports
