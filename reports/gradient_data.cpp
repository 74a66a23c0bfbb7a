// The explorer's part of the page's JSON.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/page_json.hpp"

namespace fp16lab::reports {
namespace {

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
    for (const analysis::WhatIf& point : analysis::what_if(histograms, fp16_range))
      rates.push_back(analysis::rates_of(point.counts).lost.middle());
    return rates;
  };
  Json per_tensor = Json::array();
  for (const std::string& tensor : gradients.tensors)
    per_tensor.push_back(drawn_numbers(lost(gradients.report.tensor(tensor))));
  std::vector<double> overflow;
  for (const analysis::WhatIf& point : analysis::what_if(gradients.report.merged(), fp16_range))
    overflow.push_back(analysis::rates_of(point.counts).overflow.upper);
  return {{"lost", std::move(per_tensor)},
          {"merged_lost", drawn_numbers(lost(gradients.report.merged()))},
          {"merged_overflow", drawn_numbers(overflow)}};
}

/// [snapshot, log2 scale, lost, subnormal, normal, overflow as lower and upper], all tensors together.
Json check_json(const RunGradients& gradients, const std::vector<std::size_t>& snapshots) {
  Json checks = Json::array();
  const std::set<std::size_t> chosen{0, snapshots.size() / 2, snapshots.size() - 1};
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[snapshots[index]];
    analysis::ScaledHistograms merged;
    for (std::size_t i = 0; i < snapshot.histograms.size(); ++i)
      merged.add(snapshot.histograms[i], snapshot.scales[i]);
    constexpr int every = 4;
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; k += every) {
      const RangeCounts c = merged.at_scale(fp16_range, std::scalbn(1.0, k));
      checks.push_back(
          Json::array({index, k, c.lost.lower, c.lost.upper, c.subnormal.lower, c.subnormal.upper,
                       c.normal.lower, c.normal.upper, c.overflow.lower, c.overflow.upper}));
    }
  }
  return checks;
}

}  // namespace

Json gradients_json(const Run& run, const std::string& workload, const std::string& label,
                    const RunGradients& gradients, const PageDetail& detail) {
  Json steps = Json::array(), scales = Json::array(), histograms = Json::array();
  const std::vector<std::size_t> chosen = evenly_chosen(gradients.snapshots.size(), detail.snapshots);
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[index];
    steps.push_back(snapshot.step);
    scales.push_back(snapshot.one_scale() ? Json(snapshot.loss_scale) : Json(snapshot.scales));
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
          {"observed", gradients.observed_steps},
          {"steps", std::move(steps)},
          {"scales", std::move(scales)},
          {"histograms", std::move(histograms)},
          {"what_if", what_if_json(gradients)},
          {"check", check_json(gradients, chosen)}};
}

}  // namespace fp16lab::reports
