#include "reports/report_data.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/figure_style.hpp"
#include "reports/series.hpp"

namespace fp16lab::reports {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json numbers(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(number(value));
  return array;
}

/// Six significant digits are enough to draw with and halve the page.
Json drawn(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) {
    const double magnitude = value == 0 ? 1 : std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
    array.push_back(number(std::isfinite(magnitude) ? std::round(value * magnitude) / magnitude : value));
  }
  return array;
}

Json band_json(const Band& band) {
  return {{"step", drawn(band.step)},
          {"mean", drawn(band.mean)},
          {"low", drawn(band.low)},
          {"high", drawn(band.high)}};
}

Json changes_json(const std::vector<ScaleTrace::Change>& changes) {
  Json array = Json::array();
  for (const auto& change : changes) array.push_back(Json::array({change.step, number(change.scale)}));
  return array;
}

Json configuration_json(const RunSet& set, const Configuration& configuration, const SummaryRow& row,
                        const LineStyle& style, const std::string& split, Quantity quantity) {
  Json json = {{"label", pretty(row.label)},
               {"fp32", configuration.id.precision == Precision::fp32},
               {"reference", row.is_reference},
               {"style",
                {{"color", style.color},
                 {"width", style.width},
                 {"dash", style.gap == 0 ? Json::array() : Json::array({style.dash, style.gap})}}},
               {"final_values", numbers(row.final_values)},
               {"steps", row.steps},
               {"skipped", row.skipped},
               {"last_scale", number(row.last_scale)},
               {"underflow_rate", row.underflow_rate ? number(*row.underflow_rate) : Json(nullptr)}};
  if (row.against_reference) {
    json["mean"] = number(row.against_reference->candidate.mean);
    json["difference_percent"] = number(row.against_reference->difference_percent);
    json["spread"] = number(row.against_reference->spread);
    json["verdict"] = analysis::name_of(row.against_reference->verdict);
  } else {
    json["mean"] = number(analysis::quality_of(row.final_values).mean);
  }
  json["curve"] = band_json(training_loss(set, configuration, 150));
  if (!split.empty()) {
    json["evaluation"] = band_json(evaluation_curve(set, configuration, split, Quantity::loss));
    if (quantity != Quantity::loss)
      json["quality"] = band_json(evaluation_curve(set, configuration, split, quantity));
  }
  const ScaleTrace trace = scale_trace(set.runs[configuration.runs.front()].folder.steps);
  json["trace"] = {{"changes", changes_json(trace.changes)}, {"skipped", changes_json(trace.skipped)}};
  return json;
}

/// [zero, infinite, nan, first exponent, counts]
Json histogram_json(const ExponentHistogram& histogram) {
  int first = ExponentHistogram::min_exponent, last = ExponentHistogram::max_exponent;
  while (first <= last && histogram.at(first) == 0) ++first;
  while (last >= first && histogram.at(last) == 0) --last;
  Json counts = Json::array();
  for (int e = first; e <= last; ++e) counts.push_back(histogram.at(e));
  return Json::array(
      {histogram.zero, histogram.infinite, histogram.nan, counts.empty() ? 0 : first, std::move(counts)});
}

Json what_if_json(const RunGradients& gradients) {
  const auto lost = [](const analysis::ScaledHistograms& histograms) {
    std::vector<double> rates;
    for (const analysis::WhatIf& point : analysis::what_if(histograms))
      rates.push_back(analysis::rates_of(point.counts).lost.middle());
    return rates;
  };
  Json per_tensor = Json::array();
  for (const std::string& tensor : gradients.tensors)
    per_tensor.push_back(drawn(lost(gradients.report.tensor(tensor))));
  std::vector<double> overflow;
  for (const analysis::WhatIf& point : analysis::what_if(gradients.report.merged()))
    overflow.push_back(analysis::rates_of(point.counts).overflow.upper);
  return {{"lost", std::move(per_tensor)},
          {"merged_lost", drawn(lost(gradients.report.merged()))},
          {"merged_overflow", drawn(overflow)}};
}

/// [snapshot, log2 scale, lost, subnormal, normal, overflow as lower and upper], all tensors together.
Json check_json(const RunGradients& gradients) {
  Json checks = Json::array();
  const std::set<std::size_t> chosen{0, gradients.snapshots.size() / 2, gradients.snapshots.size() - 1};
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[index];
    analysis::ScaledHistograms merged;
    for (const ExponentHistogram& histogram : snapshot.histograms) merged.add(histogram, snapshot.loss_scale);
    for (const analysis::WhatIf& point : analysis::what_if(merged)) {
      const RangeCounts& c = point.counts;
      checks.push_back(Json::array({index, point.log2_scale, c.lost.lower, c.lost.upper, c.subnormal.lower,
                                    c.subnormal.upper, c.normal.lower, c.normal.upper, c.overflow.lower,
                                    c.overflow.upper}));
    }
  }
  return checks;
}

Json run_json(const Run& run, const std::string& workload, const std::string& label,
              const RunGradients& gradients) {
  Json steps = Json::array(), scales = Json::array(), histograms = Json::array();
  for (const GradientSnapshot& snapshot : gradients.snapshots) {
    steps.push_back(snapshot.step);
    scales.push_back(snapshot.loss_scale);
    Json row = Json::array();
    for (const ExponentHistogram& histogram : snapshot.histograms) row.push_back(histogram_json(histogram));
    histograms.push_back(std::move(row));
  }
  return {{"name", run.name},
          {"workload", workload},
          {"label", pretty(label)},
          {"fp32", run.id.precision == Precision::fp32},
          {"seed", run.seed},
          {"tensors", gradients.tensors},
          {"kinds", gradients.kinds},
          {"steps", std::move(steps)},
          {"scales", std::move(scales)},
          {"histograms", std::move(histograms)},
          {"what_if", what_if_json(gradients)},
          {"check", check_json(gradients)}};
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

std::string report_data(const RunSet& set, const std::vector<WorkloadMaterial>& material) {
  Json workloads = Json::array(), runs = Json::array();
  for (const WorkloadMaterial& item : material) {
    const std::vector<LineStyle> styles = styles_of(*item.workload);
    const std::string split = evaluation_split(set, *item.workload);
    Json configurations = Json::array();
    for (std::size_t i = 0; i < item.workload->configurations.size(); ++i) {
      const Configuration& configuration = item.workload->configurations[i];
      configurations.push_back(configuration_json(set, configuration, item.summary.rows[i], styles[i], split,
                                                  item.summary.metric.quantity));
      if (!item.gradients[i].snapshots.empty())
        runs.push_back(run_json(*representative(set, configuration), item.workload->name, configuration.label,
                                item.gradients[i]));
    }
    workloads.push_back({{"name", item.workload->name},
                         {"metric", item.summary.metric.name},
                         {"configurations", std::move(configurations)}});
  }
  const Json json = {{"scales", {analysis::min_log2_scale, analysis::max_log2_scale}},
                     {"workloads", std::move(workloads)},
                     {"runs", std::move(runs)}};
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at))
    text.insert(at + 1, 1, '\\');
  return text;
}

}  // namespace fp16lab::reports
