#include "experiments/app/sweep/summary_output.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Judgement;
using reports::SummaryRow;
using reports::WorkloadSummary;
using Json = nlohmann::ordered_json;

/// Absent and non-finite numbers of a CSV are empty and "nan", "inf".
std::string number(std::optional<double> x) { return x ? fmt::format("{}", *x) : ""; }

/// From `difference` to `detectable` in `unit` and the metric's own sign, against FP32.
constexpr const char* csv_head =
    "workload,configuration,runs,metric,mean,min,max,unit,difference,lower,upper,adjusted_lower,adjusted_"
    "upper,p_equal,"
    "p_differs,word,margin,detectable,seeds_needed,pairs,diverged,dropped,twin_word,twin_difference,worse_"
    "than_noise,"
    "underflow_rate,steps,skipped,last_scale,seconds_per_step,missing,"
    "parameter_bytes,master_bytes,gradient_bytes,optimizer_bytes,activation_bytes,peak_bytes\n";

std::string judgement_csv(const Judgement& judgement) {
  const auto ends = [](const std::optional<analysis::Interval>& interval) {
    return interval ? fmt::format("{},{}", interval->lower, interval->upper) : std::string(",");
  };
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", judgement.pairs > 0 ? number(judgement.mean) : "",
                     ends(judgement.interval), ends(judgement.adjusted), number(judgement.p_equal),
                     number(judgement.p_differs), analysis::name_of(judgement.word), judgement.margin,
                     number(judgement.detectable),
                     judgement.seeds_needed ? fmt::format("{}", *judgement.seeds_needed) : "",
                     judgement.pairs, judgement.diverged, judgement.dropped);
}
constexpr const char* no_judgement_csv = ",,,,,,,,,,,,,";

std::string memory_csv(const std::optional<RunMemory>& memory) {
  if (!memory) return ",,,,,";
  return fmt::format("{},{},{},{},{},{}", memory->parameters, memory->masters, memory->gradients,
                     memory->optimizer, memory->activations, memory->peak);
}

Json memory_json(const std::optional<RunMemory>& memory) {
  if (!memory) return {};
  return {{"parameter_bytes", memory->parameters},   {"master_bytes", memory->masters},
          {"gradient_bytes", memory->gradients},     {"optimizer_bytes", memory->optimizer},
          {"activation_bytes", memory->activations}, {"peak_bytes", memory->peak}};
}

Json judgement_json(const Judgement& judgement) {
  const auto ends = [](const std::optional<analysis::Interval>& interval) {
    return interval ? Json{json_number(interval->lower), json_number(interval->upper)} : Json();
  };
  const auto optional = [](const std::optional<double>& x) { return x ? json_number(*x) : Json(); };
  return {{"word", analysis::name_of(judgement.word)},
          {"difference", judgement.pairs > 0 ? json_number(judgement.mean) : Json()},
          {"unadjusted_95_percent", ends(judgement.interval)},
          {"adjusted", ends(judgement.adjusted)},
          {"p_equal", optional(judgement.p_equal)},
          {"p_differs", optional(judgement.p_differs)},
          {"detectable", optional(judgement.detectable)},
          {"seeds_needed", judgement.seeds_needed ? Json(*judgement.seeds_needed) : Json()},
          {"pairs", judgement.pairs},
          {"diverged", judgement.diverged},
          {"dropped", judgement.dropped}};
}

}  // namespace

std::string summary_csv(const std::vector<WorkloadSummary>& summaries) {
  std::string text = csv_head;
  for (const WorkloadSummary& summary : summaries) {
    for (const SummaryRow& row : summary.rows) {
      const analysis::Quality quality = analysis::quality_of(row.final_values);
      const std::optional<bool> noise = row.worse_than_noise();
      // Names hold commas where configurations had to be distinct, so they are quoted.
      text +=
          fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_text(summary.name),
                      csv_text(row.label), row.runs, summary.metric.name, quality.mean, quality.minimum,
                      quality.maximum, summary.metric.unit(),
                      row.against_reference ? judgement_csv(*row.against_reference) : no_judgement_csv,
                      row.against_twin ? analysis::name_of(row.against_twin->word) : "",
                      row.against_twin && row.against_twin->pairs > 0 ? number(row.against_twin->mean) : "",
                      !noise   ? ""
                      : *noise ? "true"
                               : "false",
                      row.casts ? fmt::format("{}", row.casts->underflow_rate()) : "", row.steps, row.skipped,
                      row.last_scale, row.seconds_per_step, row.missing.size(), memory_csv(row.memory));
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
      Json entry = {
          {"configuration", row.label}, {"runs", row.runs}, {"final_values", values}, {"seeds", row.seeds}};
      entry["mean"] = json_number(analysis::quality_of(row.final_values).mean);
      if (row.against_reference) entry["against_fp32"] = judgement_json(*row.against_reference);
      if (row.against_twin) entry["against_twin"] = judgement_json(*row.against_twin);
      if (const std::optional<bool> noise = row.worse_than_noise()) entry["worse_than_noise"] = *noise;
      entry["underflow_rate"] = row.casts ? json_number(row.casts->underflow_rate()) : Json();
      entry["account"] = row.account ? Json::parse(analysis::account_json(*row.account)) : Json();
      entry["steps"] = row.steps;
      entry["skipped"] = row.skipped;
      entry["last_scale"] = json_number(row.last_scale);
      entry["seconds_per_step"] = json_number(row.seconds_per_step);
      entry["memory"] = memory_json(row.memory);
      entry["missing"] = row.missing;
      rows.push_back(std::move(entry));
    }
    Json workload = {{"workload", summary.name},
                     {"metric", summary.metric.name},
                     {"better", summary.metric.higher_is_better() ? "higher" : "lower"},
                     {"difference_unit", summary.metric.unit()},
                     {"margin", summary.metric.margin}};
    if (summary.twin_band)
      workload["twin_band"] = {json_number(summary.twin_band->lower), json_number(summary.twin_band->upper)};
    workload["configurations"] = std::move(rows);
    workload["notes"] = summary.notes;
    workload["findings"] = summary.words;
    json.push_back(std::move(workload));
  }
  return json.dump(2) + "\n";
}

}  // namespace fp16lab::experiments
