#include "analysis/range_output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

namespace fp16lab::analysis {
namespace {

using Json = nlohmann::ordered_json;

/// Two significant digits below 1 %, so that a small rate does not read as none.
std::string percent(double rate) {
  const double value = 100 * rate;
  if (value == 0) return "0";
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.1f}", value);
}

std::string percent(const RateInterval& rate) {
  const std::string lower = percent(rate.lower), upper = percent(rate.upper);
  return lower == upper ? lower : lower + "-" + upper;
}

std::string scale_name(double scale) {
  const int k = std::ilogb(scale);
  return std::scalbn(1.0, k) == scale ? fmt::format("2^{}", k) : fmt::format("{}", scale);
}

Json interval(const CountInterval& count) { return Json::array({count.lower, count.upper}); }

void add_zones(Json& json, const RangeCounts& counts) {
  json["lost"] = interval(counts.lost);
  json["subnormal"] = interval(counts.subnormal);
  json["normal"] = interval(counts.normal);
  json["overflow"] = interval(counts.overflow);
}

Json tensor_json(const std::string& name, const ScaledHistograms& gradients, double scale) {
  const RangeCounts counts = gradients.at_scale(scale);
  Json json = {{"tensor", name},
               {"total", counts.total},
               {"zero", counts.zero},
               {"infinite", counts.infinite},
               {"nan", counts.nan}};
  add_zones(json, counts);
  Json points = Json::array();
  for (const WhatIf& point : what_if(gradients)) {
    Json entry = {{"log2_scale", point.log2_scale}};
    add_zones(entry, point.counts);
    points.push_back(std::move(entry));
  }
  json["what_if"] = std::move(points);
  return json;
}

Json optional_int(const std::optional<int>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

void print_table(std::ostream& out, const RangeReport& report, double scale,
                 const SuggestedScale& suggestion) {
  std::size_t width = 11;
  for (const std::string& name : report.tensors()) width = std::max(width, name.size());
  out << fmt::format("Gradients in FP16 at loss scale {}, percent of the finite non-zero values\n",
                     scale_name(scale));
  out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}\n", "tensor", width, "values",
                     "zero %", "rounds to 0", "subnormal", "normal", "overflow");
  const auto print_row = [&](const std::string& name, const ScaledHistograms& gradients) {
    const RangeCounts counts = gradients.at_scale(scale);
    const ZoneRates rates = rates_of(counts);
    out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}", name, width, counts.total,
                       percent(rates.zero), percent(rates.lost), percent(rates.subnormal),
                       percent(rates.normal), percent(rates.overflow));
    if (counts.infinite + counts.nan > 0)
      out << fmt::format("  ({} Inf, {} NaN)", counts.infinite, counts.nan);
    out << '\n';
  };
  for (const std::string& name : report.tensors()) print_row(name, report.tensor(name));
  print_row("all tensors", report.merged());
  out << suggestion.reasoning << '\n';
}

void write_json(std::ostream& out, const RangeReport& report, double scale,
                const SuggestedScale& suggestion) {
  Json tensors = Json::array();
  for (const std::string& name : report.tensors())
    tensors.push_back(tensor_json(name, report.tensor(name), scale));
  const Json json = {{"scale", scale},
                     {"tensors", std::move(tensors)},
                     {"merged", tensor_json("all tensors", report.merged(), scale)},
                     {"suggestion",
                      {{"largest_safe", optional_int(suggestion.largest_safe)},
                       {"smallest_sufficient", optional_int(suggestion.smallest_sufficient)},
                       {"reasoning", suggestion.reasoning}}}};
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace fp16lab::analysis
