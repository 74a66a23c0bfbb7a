#include "analysis/range_output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
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

std::string percent(double lower_rate, double upper_rate) {
  const std::string lower = percent(lower_rate), upper = percent(upper_rate);
  return lower == upper ? lower : lower + "-" + upper;
}
std::string percent(const RateInterval& rate) { return percent(rate.lower, rate.upper); }
std::string percent(const MassInterval& share) { return percent(share.lower, share.upper); }

std::string scale_name(double scale) {
  const int k = std::ilogb(scale);
  return std::scalbn(1.0, k) == scale ? fmt::format("2^{}", k) : fmt::format("{}", scale);
}

std::string scale_names(const std::vector<double>& ascending) {
  if (ascending.size() < 2) return ascending.empty() ? "" : scale_name(ascending.front());
  return scale_name(ascending.front()) + " .. " + scale_name(ascending.back());
}

// ---- table ------------------------------------------------------------------------------------------------------

/// "2^4 .. 2^18": from where little of L1 is lost to where head-room ends.
std::string fitting_scales(const SuggestedScale& suggestion) {
  const auto name = [](const std::optional<int>& k) {
    return k ? fmt::format("2^{}", *k) : std::string("none");
  };
  if (suggestion.smallest_sufficient_l1 && suggestion.largest_safe &&
      *suggestion.smallest_sufficient_l1 > *suggestion.largest_safe)
    return fmt::format("none ({} > {})", name(suggestion.smallest_sufficient_l1),
                       name(suggestion.largest_safe));
  return name(suggestion.smallest_sufficient_l1) + " .. " + name(suggestion.largest_safe);
}

/// The largest number of 6 decimals that is not above the bound.
std::string cosine_text(double lower) { return fmt::format("{:.6f}", std::floor(lower * 1e6) * 1e-6); }

template <class Row>
void for_each_row(const RangeReport& report, const Row& row) {
  for (const std::string& name : report.tensors()) row(name, report.tensor(name));
  row("all tensors", report.merged());
}

void print_counts(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                  std::size_t width) {
  out << fmt::format("Gradients in FP16 at {}, percent of the finite non-zero values\n",
                     scale ? "loss scale " + scale_name(*scale) : "the loss scale that each tensor carried");
  out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}{}\n", "tensor", width, "values",
                     "zero %", "rounds to 0", "subnormal", "normal", "overflow", scale ? "" : "  loss scale");
  for_each_row(report, [&](const std::string& name, const ScaledHistograms& gradients) {
    const RangeCounts counts = gradients.at_scale(scale);
    const ZoneRates rates = rates_of(counts);
    out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}", name, width, counts.total,
                       percent(rates.zero), percent(rates.lost), percent(rates.subnormal),
                       percent(rates.normal), percent(rates.overflow));
    if (!scale) out << "  " << scale_names(gradients.recorded_scales());
    if (counts.infinite + counts.nan > 0)
      out << fmt::format("  ({} Inf, {} NaN)", counts.infinite, counts.nan);
    out << '\n';
  });
}

void print_masses(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                  std::size_t width) {
  out << "\nBy magnitude: percent of L1 and of the sum of squares, as bounds; the cosine to what FP16 "
         "keeps\n";
  out << fmt::format("{:<{}}  {:>15} {:>15} {:>15} {:>15}  {:>9}  {}\n", "tensor", width, "lost L1",
                     "lost squares", "subnormal L1", "overflow L1", "cosine >=", "scales that fit");
  for_each_row(report, [&](const std::string& name, const ScaledHistograms& gradients) {
    const ZoneMass mass = gradients.mass_at(scale);
    out << fmt::format("{:<{}}  {:>15} {:>15} {:>15} {:>15}  {:>9}  {}\n", name, width,
                       percent(mass.l1.lost.share()), percent(mass.l2_squared.lost.share()),
                       percent(mass.l1.subnormal.share()), percent(mass.l1.overflow.share()),
                       cosine_text(gradients.cosine_at(scale).lower),
                       fitting_scales(suggest_scale(gradients)));
  });
}

void print_casts(std::ostream& out, const RangeReport& report, std::size_t width) {
  if (!report.merged().cast_zeros()) return;
  out << "\nThe casts as they were recorded: values that became zero, beside those that had been zero "
         "before\n";
  out << fmt::format("{:<{}}  {:>13} {:>13} {:>13}\n", "tensor", width, "zero before", "zero after",
                     "rounded to 0");
  for_each_row(report, [&](const std::string& name, const ScaledHistograms& gradients) {
    if (const std::optional<CastZeros>& zeros = gradients.cast_zeros())
      out << fmt::format("{:<{}}  {:>13} {:>13} {:>13}\n", name, width, zeros->before, zeros->after,
                         zeros->lost());
  });
}

double share(double part, double total) { return total == 0 ? 0 : part / total; }

void print_exact(std::ostream& out, std::span<const NamedExactMass> exact, std::size_t width) {
  if (exact.empty()) return;
  out << "\nExactly, value by value: percent of the values, of L1 and of the sum of squares\n";
  out << fmt::format("{:<{}}  {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}\n", "tensor", width, "lost",
                     "lost L1", "lost squares", "overflow", "L1", "L2");
  for (const NamedExactMass& entry : exact) {
    const ExactMass total = entry.mass.total();
    const double l1 = total.l1.nearest(), squares = total.l2_squared.nearest();
    const double count = static_cast<double>(total.count);
    out << fmt::format("{:<{}}  {:>13} {:>13} {:>13} {:>13} {:>13.6g} {:>13.6g}\n", entry.tensor, width,
                       percent(share(static_cast<double>(entry.mass.lost().count), count)),
                       percent(share(entry.mass.lost().l1.nearest(), l1)),
                       percent(share(entry.mass.lost().l2_squared.nearest(), squares)),
                       percent(share(static_cast<double>(entry.mass.overflow().count), count)), l1,
                       std::sqrt(squares));
  }
}

// ---- JSON -------------------------------------------------------------------------------------------------------

Json interval(const CountInterval& count) { return Json::array({count.lower, count.upper}); }
Json interval(const MassInterval& mass) { return Json::array({mass.lower, mass.upper}); }

void add_zones(Json& json, const RangeCounts& counts) {
  json["lost"] = interval(counts.lost);
  json["subnormal"] = interval(counts.subnormal);
  json["normal"] = interval(counts.normal);
  json["overflow"] = interval(counts.overflow);
}

Json sums_json(const ZoneSums& sums) {
  return {{"total", interval(sums.total)},
          {"lost", interval(sums.lost.share())},
          {"subnormal", interval(sums.subnormal.share())},
          {"normal", interval(sums.normal.share())},
          {"overflow", interval(sums.overflow.share())}};
}

Json optional_int(const std::optional<int>& value) { return value ? Json(*value) : Json(nullptr); }

Json suggestion_json(const SuggestedScale& suggestion) {
  return {{"largest_safe", optional_int(suggestion.largest_safe)},
          {"smallest_sufficient", optional_int(suggestion.smallest_sufficient)},
          {"smallest_sufficient_l1", optional_int(suggestion.smallest_sufficient_l1)},
          {"suggested", optional_int(suggestion.suggested)},
          {"reasoning", suggestion.reasoning}};
}

Json exact_json(const NamedExactMass& entry) {
  const ExactMass total = entry.mass.total();
  const double l1 = total.l1.nearest(), squares = total.l2_squared.nearest();
  const auto zone = [&](const ExactMass& mass) {
    return Json{{"count", mass.count},
                {"l1", mass.l1.nearest()},
                {"l2_squared", mass.l2_squared.nearest()},
                {"l1_share", share(mass.l1.nearest(), l1)},
                {"l2_squared_share", share(mass.l2_squared.nearest(), squares)}};
  };
  return {{"tensor", entry.tensor},
          {"scale", entry.mass.scale()},
          {"zero", entry.mass.zero()},
          {"infinite", entry.mass.infinite()},
          {"nan", entry.mass.nan()},
          {"lost", zone(entry.mass.lost())},
          {"subnormal", zone(entry.mass.subnormal())},
          {"normal", zone(entry.mass.normal())},
          {"overflow", zone(entry.mass.overflow())},
          {"total", {{"count", total.count}, {"l1", l1}, {"l2_squared", squares}}}};
}

Json tensor_json(const std::string& name, const ScaledHistograms& gradients, std::optional<double> scale) {
  const RangeCounts counts = gradients.at_scale(scale);
  Json json = {{"tensor", name},
               {"recorded_scales", gradients.recorded_scales()},
               {"total", counts.total},
               {"zero", counts.zero},
               {"infinite", counts.infinite},
               {"nan", counts.nan}};
  add_zones(json, counts);
  const std::optional<CastZeros>& zeros = gradients.cast_zeros();
  json["cast_zeros"] = zeros ? Json{{"before", zeros->before}, {"after", zeros->after}} : Json(nullptr);
  const ZoneMass mass = gradients.mass_at(scale);
  json["l1"] = sums_json(mass.l1);
  json["l2_squared"] = sums_json(mass.l2_squared);
  json["cosine"] = interval(gradients.cosine_at(scale));
  Json points = Json::array();
  for (const WhatIf& point : what_if(gradients)) {
    Json entry = {{"log2_scale", point.log2_scale}};
    add_zones(entry, point.counts);
    const double its_scale = std::scalbn(1.0, point.log2_scale);
    const ZoneMass its_mass = gradients.mass_at(its_scale);
    entry["lost_l1"] = interval(its_mass.l1.lost.share());
    entry["lost_l2_squared"] = interval(its_mass.l2_squared.lost.share());
    entry["cosine"] = interval(gradients.cosine_at(its_scale));
    points.push_back(std::move(entry));
  }
  json["what_if"] = std::move(points);
  json["suggestion"] = suggestion_json(suggest_scale(gradients));
  return json;
}

}  // namespace

void print_table(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                 const SuggestedScale& suggestion, std::span<const NamedExactMass> exact) {
  std::size_t width = 11;
  for (const std::string& name : report.tensors()) width = std::max(width, name.size());
  for (const NamedExactMass& entry : exact) width = std::max(width, entry.tensor.size());
  print_counts(out, report, scale, width);
  print_masses(out, report, scale, width);
  print_casts(out, report, width);
  print_exact(out, exact, width);
  out << '\n' << suggestion.reasoning << '\n';
}

void write_json(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                const SuggestedScale& suggestion, std::span<const NamedExactMass> exact) {
  Json tensors = Json::array();
  for (const std::string& name : report.tensors())
    tensors.push_back(tensor_json(name, report.tensor(name), scale));
  Json json = {{"scale", scale ? Json(*scale) : Json(nullptr)},
               {"tensors", std::move(tensors)},
               {"merged", tensor_json("all tensors", report.merged(), scale)},
               {"suggestion", suggestion_json(suggestion)}};
  if (!exact.empty()) {
    Json entries = Json::array();
    for (const NamedExactMass& entry : exact) entries.push_back(exact_json(entry));
    json["exact"] = std::move(entries);
  }
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace fp16lab::analysis
