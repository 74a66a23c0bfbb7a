// The explorer's part of the page's JSON.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/data/run_config.hpp"
#include "reports/page/page_json.hpp"

namespace fp16lab::reports {
namespace {

/// [zero, infinite, nan, first exponent, counts, smallest, greatest]: the last two as FP32 bits, 0 where not
/// known
Json histogram_json(const ExponentHistogram& histogram) {
  int first = ExponentHistogram::min_exponent, last = ExponentHistogram::max_exponent;
  while (first <= last && histogram.at(first) == 0) ++first;
  while (last >= first && histogram.at(last) == 0) --last;
  Json counts = Json::array();
  for (int e = first; e <= last; ++e) counts.push_back(histogram.at(e));
  return Json::array({histogram.zero, histogram.infinite, histogram.nan, counts.empty() ? 0 : first,
                      std::move(counts), histogram.smallest, histogram.greatest});
}

/// What page/zones.js computes with.
Json format_json(DType format) {
  const FormatRange range = range_of(format);
  return {{"name", format_name(name_of(format))}, {"tie", range.tie_to_zero},
          {"normal", range.smallest_normal},      {"overflow", range.overflow_threshold()},
          {"reached", range.threshold_overflows}, {"rounds", format != DType::f32}};
}

Json what_if_json(const RunGradients& gradients) {
  const auto each_scale = [](auto rate) {
    std::vector<double> rates;
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; ++k)
      rates.push_back(rate(std::ldexp(1.0, k)));
    return drawn_numbers(rates);
  };
  Json per_tensor = Json::array();
  for (std::size_t tensor = 0; tensor < gradients.tensors.size(); ++tensor)
    per_tensor.push_back(each_scale(
        [&](double scale) { return analysis::rates_of(gradients.at_scale(tensor, scale)).lost.middle(); }));
  return {{"lost", std::move(per_tensor)},
          {"merged_lost", each_scale([&](double scale) {
             return analysis::rates_of(gradients.at_scale(scale)).lost.middle();
           })},
          {"merged_overflow", each_scale([&](double scale) {
             return analysis::rates_of(gradients.at_scale(scale)).overflow.upper;
           })}};
}

/// [snapshot, log2 scale, lost, subnormal, normal, overflow as lower and upper], all tensors together that
/// are rounded.
Json check_json(const RunGradients& gradients, const std::vector<std::size_t>& snapshots) {
  Json checks = Json::array();
  const std::set<std::size_t> chosen{0, snapshots.size() / 2, snapshots.size() - 1};
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[snapshots[index]];
    constexpr int every = 4;
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; k += every) {
      RangeCounts c;
      for (std::size_t i = 0; i < snapshot.histograms.size(); ++i)
        if (gradients.formats[i] != DType::f32)
          c += count_ranges(snapshot.histograms[i], range_of(gradients.formats[i]),
                            std::scalbn(1.0, k) / snapshot.scales[i]);
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
  Json steps = Json::array(), scales = Json::array(), histograms = Json::array(), casts = Json::array(),
       formats = Json::array();
  for (const DType format : gradients.formats) formats.push_back(format_json(format));
  const std::vector<std::size_t> chosen = evenly_chosen(gradients.snapshots.size(), detail.snapshots);
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[index];
    steps.push_back(snapshot.step);
    scales.push_back(snapshot.one_scale() ? Json(snapshot.loss_scale) : Json(snapshot.scales));
    Json row = Json::array();
    for (const ExponentHistogram& histogram : snapshot.histograms) row.push_back(histogram_json(histogram));
    histograms.push_back(std::move(row));
    Json cast = Json::array();
    for (const std::optional<CastCounts>& counts : snapshot.casts)
      cast.push_back(counts ? Json::array({counts->values, counts->underflow, counts->overflow})
                            : Json(nullptr));
    casts.push_back(std::move(cast));
  }
  return {{"name", run.name},
          {"workload", workload},
          {"label", pretty(label)},
          {"fp32", run.id.precision == Precision::fp32},
          {"seed", run.seed},
          {"tensors", gradients.tensors},
          {"kinds", gradients.kinds},
          {"formats", std::move(formats)},
          {"rounded", gradients.rounded},
          {"observed", gradients.observed_steps},
          {"steps", std::move(steps)},
          {"scales", std::move(scales)},
          {"histograms", std::move(histograms)},
          {"casts", std::move(casts)},
          {"what_if", what_if_json(gradients)},
          {"check", check_json(gradients, chosen)}};
}

}  // namespace fp16lab::reports
