#include "reports/page/report_data.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/question_figures.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/data/series.hpp"
#include "reports/page/answers.hpp"
#include "reports/page/emulation.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"

namespace fp16lab::reports {

namespace {

OrderedJson numbers(const std::vector<double>& values) {
  OrderedJson array = OrderedJson::array();
  for (const double value : values) array.push_back(number_or_null(value));
  return array;
}

OrderedJson band_json(const Band& band) {
  return {{"step", drawn_numbers(band.step)},
          {"mean", drawn_numbers(band.mean)},
          {"low", drawn_numbers(band.low)},
          {"high", drawn_numbers(band.high)}};
}

OrderedJson changes_json(const std::vector<ScaleTrace::Change>& changes) {
  OrderedJson array = OrderedJson::array();
  for (const auto& change : changes)
    array.push_back(OrderedJson::array({change.step, number_or_null(change.scale)}));
  return array;
}

/// The row's part in the figure of final quality: against the reference where there is one, in the metric's
/// unit. Null for the reference itself, and where no run has ended.
OrderedJson outcome_json(const Metric& metric, const SummaryRow& row, const SummaryRow* reference) {
  if (row.final_values.empty() || &row == reference) return nullptr;
  std::vector<double> values;
  double mean = NAN;
  int diverged = 0, seeds = static_cast<int>(row.final_values.size());
  OrderedJson interval = nullptr;
  if (reference != nullptr) {
    if (!row.against_reference) return nullptr;
    const analysis::PairedSample pairs = pairs_of(metric, row, *reference);
    values = pairs.differences;
    if (pairs.is_of_losses)
      for (double& value : values) value = analysis::percent_of(value);
    // The table's mean: that of the ratios' logarithms, which is tested.
    mean = row.against_reference->mean;
    if (row.against_reference->interval)
      interval = {row.against_reference->interval->lower, row.against_reference->interval->upper};
    diverged = row.against_reference->diverged;
    seeds = diverged + row.against_reference->pairs;
  } else {
    for (const double value : row.final_values)
      if (std::isfinite(value)) values.push_back(metric.higher_is_better() ? 100 * value : value);
    mean = analysis::quality_of(values).mean;
    diverged = seeds - static_cast<int>(values.size());
  }
  return {{"values", numbers(values)},
          {"mean", values.empty() ? OrderedJson(nullptr) : number_or_null(mean)},
          {"interval", std::move(interval)},
          {"diverged", diverged},
          {"of", seeds},
          {"against", reference != nullptr}};
}

/// The reference with which rows are compared: one that has not diverged in all of its runs.
const SummaryRow* reference_of(const WorkloadSummary& summary) {
  for (const SummaryRow& row : summary.rows)
    if (row.is_reference &&
        analysis::quality_of(row.final_values).non_finite < static_cast<int>(row.final_values.size()))
      return &row;
  return nullptr;
}

OrderedJson configuration_json(const RunSet& set, const Configuration& configuration, const SummaryRow& row,
                               const LineStyle& style, const std::string& split, Quantity quantity,
                               const PageDetail& detail) {
  OrderedJson json = {
      {"label", pretty(row.label)},
      {"slug", slug(configuration.label)},
      {"fp32", configuration.id.fp32},
      {"reference", row.is_reference},
      {"style",
       {{"color", style.color},
        {"width", style.width},
        {"dash", style.gap == 0 ? OrderedJson::array() : OrderedJson::array({style.dash, style.gap})}}},
      {"final_values", numbers(row.final_values)},
      {"steps", row.steps},
      {"skipped", row.skipped},
      {"last_scale", number_or_null(row.last_scale)},
      {"underflow_rate", row.casts ? number_or_null(row.casts->underflow_rate()) : OrderedJson(nullptr)}};
  json["mean"] = number_or_null(analysis::quality_of(row.final_values).mean);
  json["level"] = value_or(set.runs[configuration.runs.front()].config, "amp.level", "");
  json["format"] = format_name(value_or(set.runs[configuration.runs.front()].config, "amp.dtype", "f16"));
  json["twin"] = row.is_twin;
  json["seconds"] = row.seconds_per_step;
  if (row.memory)
    json["memory"] = {row.memory->parameters + row.memory->masters, row.memory->gradients,
                      row.memory->optimizer, row.memory->activations, row.memory->peak};
  if (row.against_reference) {
    json["difference"] = number_or_null(Metric{"", quantity}.badness(row.against_reference->mean));
    json["diverged"] = row.against_reference->diverged;
    json["word"] = analysis::name_of(row.against_reference->word);
  }
  json["curve"] = band_json(training_loss(set, configuration, detail.curve_points));
  if (!split.empty()) {
    json["evaluation"] = band_json(evaluation_curve(set, configuration, split, Quantity::loss));
    if (quantity != Quantity::loss)
      json["quality"] = band_json(evaluation_curve(set, configuration, split, quantity));
  }
  if (OrderedJson blocks = blocks_json(set.runs[configuration.runs.front()], detail.curve_points);
      !blocks.is_null())
    json["blocks"] = std::move(blocks);
  for (const std::size_t run : configuration.runs)
    if (OrderedJson causes = mismatch_json(set.runs[run]); !causes.is_null()) {
      json["mismatch"] = std::move(causes);
      break;
    }
  const ScaleTrace trace =
      thinned(scale_trace(set.runs[configuration.runs.front()].folder.steps), detail.trace_points);
  json["trace"] = {{"changes", changes_json(trace.changes)}, {"skipped", changes_json(trace.skipped)}};
  return json;
}

}  // namespace

std::string evaluation_split(const RunSet& set, const Workload& workload) {
  std::string split;
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t index : configuration.runs)
      for (const EvaluationRow& row : set.runs[index].folder.evaluations)
        if (split.empty() || row.split == "test") split = row.split;
  return split;
}

std::string report_data(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                        std::span<const ReplayFile> replays, const PageHead& head, const PageDetail& detail) {
  OrderedJson workloads = OrderedJson::array(), runs = OrderedJson::array(), replayed = OrderedJson::array();
  for (const WorkloadMaterial& item : material) {
    const std::vector<LineStyle> styles = styles_of(*item.workload);
    const std::string split = evaluation_split(set, *item.workload);
    OrderedJson configurations = OrderedJson::array(), start;
    const Answers answers = answers_of(item);
    std::size_t explored = 0;
    OrderedJson unexplored = OrderedJson::array();  // omitted for lack of space
    for (std::size_t i = 0; i < item.workload->configurations.size(); ++i) {
      const Configuration& configuration = item.workload->configurations[i];
      configurations.push_back(configuration_json(set, configuration, item.summary.rows[i], styles[i], split,
                                                  item.summary.metric.quantity, detail));
      configurations.back()["outcome"] =
          outcome_json(item.summary.metric, item.summary.rows[i], reference_of(item.summary));
      if (item.gradients[i].snapshots.empty()) continue;
      if (answers.configuration == i) start = OrderedJson::array({runs.size(), answers.tensor.value_or(0)});
      if (explored++ >= detail.configurations) {
        unexplored.push_back(pretty(item.summary.rows[i].label));
        continue;
      }
      const std::vector<ExploredRun>& seeds = item.explored[i];
      for (std::size_t k = 0; k < std::min(seeds.size(), detail.seeds); ++k)
        runs.push_back(gradients_json(*seeds[k].run, item.workload->name, item.summary.rows[i].label,
                                      k == 0 ? item.gradients[i] : seeds[k].tensors.at(Observed::gradients),
                                      seeds[k].tensors, k == 0 ? detail.snapshots : detail.seed_snapshots));
    }
    if (!start.empty() && start[0] >= runs.size()) start = nullptr;  // omitted for lack of space
    const std::optional<analysis::Interval>& band = item.summary.twin_band;
    workloads.push_back(
        {{"name", item.workload->name},
         {"slug", slug(item.workload->name)},
         {"metric", item.summary.metric.name},
         {"split", split},
         {"quantity", words_of(item.summary.metric.quantity)},
         {"unit", item.summary.metric.unit()},
         {"margin", item.summary.metric.margin},
         {"higher_is_better", item.summary.metric.higher_is_better()},
         {"band", band ? OrderedJson::array({band->lower, band->upper}) : OrderedJson(nullptr)},
         {"start", std::move(start)},
         {"emulated", is_emulated(set, *item.workload)},
         {"configurations", std::move(configurations)},
         {"unexplored", std::move(unexplored)}});
    const bool gradients =
        std::ranges::any_of(item.gradients, [](const RunGradients& g) { return !g.snapshots.empty(); });
    workloads.back().update(workload_json(set, item, gradients, detail));
  }
  for (const ReplayFile& replay : replays)
    replayed.push_back({{"run", replay.run},
                        {"slug", slug(replay.run)},
                        {"traces", traces_figure(replay, detail.trace_points)},
                        {"section", league_json(replay)}});
  OrderedJson formats = OrderedJson::array(), update_formats = OrderedJson::array();
  for (const DType format : {DType::f32, DType::f16, DType::bf16, DType::e5m2, DType::e4m3}) {
    formats.push_back(format_json(format, Observed::gradients));
    update_formats.push_back(format_json(format, Observed::updates));
  }
  const OrderedJson json = {{"title", plain(head.title)},
                            {"subtitle", plain(head.subtitle)},
                            {"follow", head.follow_seconds},
                            {"notes", notes_json(set, material)},
                            {"extent", plain(head.extent)},
                            {"overview", overview_json(set, material)},
                            {"observed", observed_json(set, material)},
                            {"provenance", set.runs.empty() ? OrderedJson(nullptr) : provenance_json(set)},
                            {"scales", {analysis::min_log2_scale, analysis::max_log2_scale}},
                            {"formats", std::move(formats)},
                            {"update_formats", std::move(update_formats)},
                            {"workloads", std::move(workloads)},
                            {"runs", std::move(runs)},
                            {"replays", std::move(replayed)}};
  // In a script element "<!--" and "<script" change where it ends, and "</script" ends it: no '<' is left as
  // it is. JSON has it only in strings.
  std::string text;
  for (const char c : json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace fp16lab::reports
