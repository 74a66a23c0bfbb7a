#include "experiments/summary_output.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/comparison.hpp"

namespace fp16lab::experiments {
namespace {

using reports::SummaryRow;
using reports::WorkloadSummary;
using Json = nlohmann::ordered_json;

/// Absent and non-finite numbers of a CSV are empty and "nan", "inf".
std::string number(std::optional<double> x) { return x ? fmt::format("{}", *x) : ""; }

Json json_number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";  // JSON has no such numbers
}

}  // namespace

std::string summary_csv(const std::vector<WorkloadSummary>& summaries) {
  std::string text =
      "workload,configuration,runs,metric,mean,min,max,difference_percent,paired_lower,paired_upper,verdict,"
      "underflow_rate,steps,"
      "skipped,last_scale,"
      "seconds_per_step,missing\n";
  for (const WorkloadSummary& summary : summaries) {
    for (const SummaryRow& row : summary.rows) {
      const analysis::Quality quality = analysis::quality_of(row.final_values);
      // Names hold commas where configurations had to be told apart, so they are quoted.
      text += fmt::format(
          "\"{}\",\"{}\",{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", summary.name, row.label, row.runs,
          summary.metric.name, quality.mean, quality.minimum, quality.maximum,
          row.against_reference ? number(row.against_reference->difference_percent) : "",
          row.paired ? number(row.paired->lower) : "", row.paired ? number(row.paired->upper) : "",
          row.against_reference ? analysis::name_of(row.against_reference->verdict) : "",
          row.casts ? fmt::format("{}", row.casts->underflow_rate()) : "", row.steps, row.skipped,
          row.last_scale, row.seconds_per_step, row.missing.size());
    }
  }
  return text;
}

std::string summary_json(const std::vector<WorkloadSummary>& summaries) {
  Json json = Json::array();
  for (const WorkloadSummary& summary : summaries) {
    Json rows = Json::array();
    for (const SummaryRow& row : summary.rows) {
      Json values = Json::array();
      for (const double value : row.final_values) values.push_back(json_number(value));
      Json entry = {{"configuration", row.label}, {"runs", row.runs}, {"final_values", values}};
      entry["mean"] = json_number(analysis::quality_of(row.final_values).mean);
      if (row.against_reference) {
        entry["difference_percent"] = json_number(row.against_reference->difference_percent);
        entry["spread"] = json_number(row.against_reference->spread);
        entry["verdict"] = analysis::name_of(row.against_reference->verdict);
      }
      if (row.paired)
        entry["paired_difference"] = {{"pairs", row.paired->pairs},
                                      {"mean", json_number(row.paired->mean)},
                                      {"confidence", 0.95},
                                      {"lower", json_number(row.paired->lower)},
                                      {"upper", json_number(row.paired->upper)}};
      entry["underflow_rate"] = row.casts ? json_number(row.casts->underflow_rate()) : Json();
      entry["steps"] = row.steps;
      entry["skipped"] = row.skipped;
      entry["last_scale"] = json_number(row.last_scale);
      entry["seconds_per_step"] = json_number(row.seconds_per_step);
      entry["missing"] = row.missing;
      rows.push_back(std::move(entry));
    }
    json.push_back({{"workload", summary.name},
                    {"metric", summary.metric.name},
                    {"better", summary.metric.better == analysis::Better::lower ? "lower" : "higher"},
                    {"configurations", rows},
                    {"findings", summary.words}});
  }
  return json.dump(2) + "\n";
}

}  // namespace fp16lab::experiments
