#include "analysis/range_output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/interval_json.hpp"
#include "analysis/percent_text.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::analysis {
namespace {

std::string scale_names(const std::vector<double>& ascending) {
  if (ascending.size() < 2) return ascending.empty() ? "" : scale_text(ascending.front());
  return scale_text(ascending.front()) + " .. " + scale_text(ascending.back());
}

/// The casts of one tensor, or one sum over all tensors a dtype.
std::vector<RecordedCast> casts_of(const RangeReport& report, const std::string* tensor) {
  std::vector<RecordedCast> casts;
  for (const RecordedCast& cast : report.casts()) {
    if (tensor != nullptr && cast.tensor != *tensor) continue;
    const auto same = std::find_if(casts.begin(), casts.end(),
                                   [&cast](const RecordedCast& other) { return other.dtype == cast.dtype; });
    if (same == casts.end())
      casts.push_back({tensor != nullptr ? *tensor : "all tensors", cast.dtype, cast.counts});
    else
      same->counts += cast.counts;
  }
  return casts;
}

// ---- table ------------------------------------------------------------------------------------------------

/// "2^4 .. 2^18": from where rounding is harmless to where nothing overflows.
std::string fitting_scales(const ScaledHistograms& gradients, DType format) {
  const RangeCounts counts = gradients.at_scale(range_of(format), 1.0);
  const bool odd = counts.infinite + counts.nan > 0;
  if (gradients.empty()) return odd ? "unknown" : "any";
  const SuggestedScale suggestion = suggest_scale(gradients, format);
  const std::optional<int>&least = suggestion.least, &greatest = suggestion.greatest;
  std::string text;
  if (!greatest)
    text = fmt::format("none: overflows even at 2^{}", least_log2_scale);
  else if (!least)
    text = fmt::format("none: not even 2^{}", greatest_log2_scale);
  else if (*least > *greatest)
    text = fmt::format("none: only from 2^{} on, overflows beyond 2^{}", *least, *greatest);
  else if (suggestion.needs_none)
    text = "any that is usual";
  else
    text = fmt::format("2^{} .. 2^{}", *least, *greatest);
  return odd ? text + " (by its finite values)" : text;
}

/// " (step 40 alone)" where all is of one step of a run.
std::string step_alone(const RangeReport& report) {
  return report.step() ? fmt::format(" (step {} alone)", *report.step()) : "";
}

/// The largest number of 6 decimals that is not above the bound.
std::string cosine_text(const std::optional<MassInterval>& cosine) {
  return cosine ? fmt::format("{:.6f}", std::floor(cosine->lower * 1e6) * 1e-6) : "unknown";
}

std::string at_scale_text(const std::optional<double>& scale) {
  return scale ? "loss scale " + scale_text(*scale) : "the loss scale that each tensor carried";
}

std::size_t name_width(const RangeReport& report) {
  std::size_t width = std::string_view("all tensors").size();
  for (const std::string& name : report.tensors()) width = std::max(width, name.size());
  return width;
}

template <class Row>
void for_each_row(const RangeReport& report, const Row& row) {
  for (const std::string& name : report.tensors()) row(name, report.tensor(name));
  row("all tensors", report.merged());
}

void print_counts(std::ostream& out, const RangeReport& report, const RangeView& view, std::size_t width) {
  out << fmt::format("Gradients in {} at {}, percent of the finite non-zero values\n", title_of(view.format),
                     at_scale_text(view.scale));
  out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}{}\n", "tensor", width, "values",
                     "zero %", "rounds to 0", "subnormal", "normal", "overflow",
                     view.scale ? "" : "  loss scale");
  for_each_row(report, [&](const std::string& name, const ScaledHistograms& gradients) {
    const RangeCounts counts = gradients.at_scale(range_of(view.format), view.scale);
    const ZoneRates rates = rates_of(counts);
    const bool any = !gradients.empty();
    out << fmt::format("{:<{}}  {:>13} {:>7}  {:>11} {:>11} {:>11} {:>11}", name, width, counts.total,
                       percent(rates.zero), percent(any, rates.lost), percent(any, rates.subnormal),
                       percent(any, rates.normal), percent(any, rates.overflow));
    if (!view.scale) out << "  " << scale_names(gradients.recorded_scales());
    if (counts.infinite + counts.nan > 0)
      out << fmt::format("  ({} Inf, {} NaN)", counts.infinite, counts.nan);
    out << '\n';
  });
}

/// The tensors that lose values, those that lose the largest shares first, by the upper bounds.
std::vector<std::pair<std::string, RateInterval>> worst_losers(const RangeReport& report,
                                                               const RangeView& view) {
  std::vector<std::pair<std::string, RateInterval>> losers;
  for (const std::string& name : report.tensors()) {
    const RateInterval lost = rates_of(report.tensor(name).at_scale(range_of(view.format), view.scale)).lost;
    if (lost.upper > 0) losers.emplace_back(name, lost);
  }
  std::ranges::stable_sort(losers, std::greater(), [](const auto& loser) { return loser.second.upper; });
  return losers;
}

void print_worst(std::ostream& out, const RangeReport& report, const RangeView& view) {
  auto losers = worst_losers(report, view);
  if (losers.empty()) return;
  if (losers.size() > 3) losers.resize(3);
  std::string text;
  for (const auto& [name, lost] : losers)
    text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", name, percent(true, lost));
  out << "Most rounds to 0 in " << text << ".\n";
}

void print_masses(std::ostream& out, const RangeReport& report, const RangeView& view, std::size_t width) {
  const FormatRange range = range_of(view.format);
  out << fmt::format(
      "\nBy magnitude: percent of L1 and of the sum of squares{}; the cosine to what {} keeps\n",
      report.merged().exact_zones(range, view.scale) ? "" : ", as bounds", title_of(view.format));
  out << fmt::format("{:<{}}  {:>15} {:>15} {:>15} {:>15}  {:>9}  {}\n", "tensor", width, "lost L1",
                     "lost squares", "subnormal L1", "overflow L1",
                     "cosine >=", "scales that fit" + step_alone(report));
  for_each_row(report, [&](const std::string& name, const ScaledHistograms& gradients) {
    const ZoneMass mass = gradients.mass_at(range, view.scale);
    const bool any = !gradients.empty();
    out << fmt::format("{:<{}}  {:>15} {:>15} {:>15} {:>15}  {:>9}  {}\n", name, width,
                       percent(any, mass.l1.lost.share()), percent(any, mass.l2_squared.lost.share()),
                       percent(any, mass.l1.subnormal.share()), percent(any, mass.l1.overflow.share()),
                       cosine_text(gradients.cosine_at(range, view.scale)),
                       fitting_scales(gradients, view.format));
  });
  out << fmt::format(
      "At scales that fit nothing overflows, and rounding costs at most {:g} times what {}'s precision does "
      "by itself.\n",
      fit_limit, title_of(view.format));
}

double share(double part, double total) { return total == 0 ? 0 : part / total; }

ExactMass total_of(const std::array<ExactMass, 4>& zones) {
  ExactMass total;
  for (const ExactMass& zone : zones) total += zone;
  return total;
}

void print_exact(std::ostream& out, const RangeReport& report, const RangeView& view, std::size_t width) {
  out << "\nExactly, value by value: what is lost in percent of the values, of L1 and of the sum of squares, "
         "what "
         "overflows in\npercent of the values, and L1 and L2 themselves\n";
  out << fmt::format("{:<{}}  {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}\n", "tensor", width, "lost",
                     "lost L1", "lost squares", "overflow", "L1", "L2");
  for (const std::string& name : report.tensors()) {
    const auto zones = report.tensor(name).exact_zones(range_of(view.format), view.scale);
    if (!zones) continue;
    const auto& [lost, subnormal, normal, overflow] = *zones;
    const ExactMass total = total_of(*zones);
    const double l1 = total.l1.nearest(), squares = total.l2_squared.nearest();
    const double count = static_cast<double>(total.count);
    out << fmt::format("{:<{}}  {:>13} {:>13} {:>13} {:>13} {:>13.6g} {:>13.6g}\n", name, width,
                       percent(share(static_cast<double>(lost.count), count)),
                       percent(share(lost.l1.nearest(), l1)),
                       percent(share(lost.l2_squared.nearest(), squares)),
                       percent(share(static_cast<double>(overflow.count), count)), l1, std::sqrt(squares));
  }
}

// ---- JSON -------------------------------------------------------------------------------------------------

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
  return {{"fits", suggestion.fits()},
          {"least", optional_int(suggestion.least)},
          {"greatest", optional_int(suggestion.greatest)},
          {"asks_most", suggestion.asks_most},
          {"overflows_first", suggestion.overflows_first},
          {"unknown", suggestion.unknown},
          {"suggested", optional_int(suggestion.suggested)},
          {"needs_none", suggestion.needs_none},
          {"reasoning", suggestion.reasoning}};
}

Json exact_json(const std::string& name, const ScaledHistograms& gradients, const RangeView& view) {
  const auto zones = *gradients.exact_zones(range_of(view.format), view.scale);
  const ExactMass total = total_of(zones);
  const double l1 = total.l1.nearest(), squares = total.l2_squared.nearest();
  const auto zone_json = [&](const ExactMass& mass) {
    return Json{{"count", mass.count},
                {"l1", mass.l1.nearest()},
                {"l2_squared", mass.l2_squared.nearest()},
                {"l1_share", share(mass.l1.nearest(), l1)},
                {"l2_squared_share", share(mass.l2_squared.nearest(), squares)}};
  };
  const RangeCounts counts = gradients.at_scale(range_of(view.format), view.scale);
  const std::vector<double> recorded = gradients.recorded_scales();
  const Json factor =
      view.scale && recorded.size() == 1 ? Json(*view.scale / recorded.front()) : Json(nullptr);
  return {{"tensor", name},
          {"scale", view.scale ? factor : Json(1.0)},
          {"zero", counts.zero},
          {"infinite", counts.infinite},
          {"nan", counts.nan},
          {"lost", zone_json(zones[0])},
          {"subnormal", zone_json(zones[1])},
          {"normal", zone_json(zones[2])},
          {"overflow", zone_json(zones[3])},
          {"total", {{"count", total.count}, {"l1", l1}, {"l2_squared", squares}}}};
}

/// The exact sums of one tensor, or of all together.
Json casts_json(const RangeReport& report, const std::string* tensor) {
  Json casts = Json::array();
  for (const auto& [name, dtype, counts] : casts_of(report, tensor))
    casts.push_back({{"dtype", name_of(dtype)},
                     {"values", counts.values},
                     {"underflow", counts.underflow},
                     {"overflow", counts.overflow}});
  return casts;
}

Json tensor_json(const std::string& name, const ScaledHistograms& gradients, const RangeView& view,
                 const std::optional<std::uint64_t>& step, Json casts) {
  const FormatRange range = range_of(view.format);
  const RangeCounts counts = gradients.at_scale(range, view.scale);
  Json json = {{"tensor", name},
               {"recorded_scales", gradients.recorded_scales()},
               {"total", counts.total},
               {"zero", counts.zero},
               {"infinite", counts.infinite},
               {"nan", counts.nan}};
  add_zones(json, counts);
  json["casts"] = std::move(casts);
  const ZoneMass mass = gradients.mass_at(range, view.scale);
  json["l1"] = sums_json(mass.l1);
  json["l2_squared"] = sums_json(mass.l2_squared);
  json["cosine"] = interval(gradients.cosine_at(range, view.scale));
  Json points = Json::array();
  for (const WhatIf& point : what_if(gradients, range)) {
    Json entry = {{"log2_scale", point.log2_scale}};
    add_zones(entry, point.counts);
    const double its_scale = std::scalbn(1.0, point.log2_scale);
    const ZoneMass its_mass = gradients.mass_at(range, its_scale);
    entry["lost_l1"] = interval(its_mass.l1.lost.share());
    entry["lost_l2_squared"] = interval(its_mass.l2_squared.lost.share());
    entry["cosine"] = interval(gradients.cosine_at(range, its_scale));
    points.push_back(std::move(entry));
  }
  json["what_if"] = std::move(points);
  json["suggestion"] = suggestion_json(suggest_scale(gradients, view.format, step));
  return json;
}

}  // namespace

void print_table(std::ostream& out, const RangeReport& report, const RangeView& view,
                 const SuggestedScale& suggestion) {
  const std::size_t width = name_width(report);
  print_counts(out, report, view, width);
  if (report.tensors().size() > 1) print_worst(out, report, view);
  print_masses(out, report, view, width);
  if (view.exact_mass) print_exact(out, report, view, width);
  out << '\n' << suggestion.reasoning << '\n';
}

void print_formats(std::ostream& out, const RangeReport& report, std::span<const RangeView> views,
                   std::span<const SuggestedScale> suggestions) {
  out << fmt::format("All tensors at {}, by format: percent of the finite non-zero values, and of L1\n",
                     at_scale_text(views.front().scale));
  out << fmt::format("{:<6}  {:>11} {:>11} {:>11} {:>11} {:>15}  {:>9}  {}\n", "format", "rounds to 0",
                     "subnormal", "normal", "overflow", "lost L1",
                     "cosine >=", "suggested scale" + step_alone(report));
  const bool any = !report.merged().empty();
  for (std::size_t i = 0; i < views.size(); ++i) {
    const FormatRange range = range_of(views[i].format);
    const ZoneRates rates = rates_of(report.merged().at_scale(range, views[i].scale));
    const std::optional<int>& suggested = suggestions[i].suggested;
    out << fmt::format("{:<6}  {:>11} {:>11} {:>11} {:>11} {:>15}  {:>9}  {}\n", title_of(views[i].format),
                       percent(any, rates.lost), percent(any, rates.subnormal), percent(any, rates.normal),
                       percent(any, rates.overflow),
                       percent(any, report.merged().mass_at(range, views[i].scale).l1.lost.share()),
                       cosine_text(report.merged().cosine_at(range, views[i].scale)),
                       suggestions[i].needs_none ? "needs none"
                       : suggested               ? fmt::format("2^{}", *suggested)
                       : any                     ? "none"
                                                 : "unknown");
  }
  out << '\n';
}

void print_short(std::ostream& out, const RangeReport& report, std::span<const RangeView> views,
                 std::span<const SuggestedScale> suggestions, std::optional<int> for_run) {
  const bool any = !report.merged().empty();
  out << fmt::format("\nIn short, all tensors{}, percent\n", step_alone(report));
  out << fmt::format("{:<6}  {:<18} {:>11} {:>11} {:>15}  {}\n", "format", "loss scale", "rounds to 0",
                     "overflow", "lost L1", "most rounds to 0 in");
  const auto row = [&](DType format, const std::optional<double>& scale, const char* which) {
    const FormatRange range = range_of(format);
    const ZoneRates rates = rates_of(report.merged().at_scale(range, scale));
    const auto worst = worst_losers(report, {format, scale});
    out << fmt::format("{:<6}  {:<18} {:>11} {:>11} {:>15}  {}\n", title_of(format),
                       scale ? scale_text(*scale) + which : "each as recorded", percent(any, rates.lost),
                       percent(any, rates.overflow),
                       percent(any, report.merged().mass_at(range, scale).l1.lost.share()),
                       worst.empty() ? "none" : worst.front().first + " " + percent(worst.front().second));
  };
  for (std::size_t i = 0; i < views.size(); ++i) {
    const DType format = views[i].format;
    const std::optional<int>& suggested = suggestions[i].suggested;
    row(format, views[i].scale, "");
    if (suggested)
      row(format, std::scalbn(1.0, *suggested), suggestions[i].needs_none ? ", needs none" : " suggested");
    if (i == 0 && for_run && for_run != suggested) row(format, std::scalbn(1.0, *for_run), " for the run");
  }
}

void print_casts(std::ostream& out, const RangeReport& report) {
  if (report.casts().empty()) return;
  std::size_t width = name_width(report);
  for (const RecordedCast& cast : report.casts()) width = std::max(width, cast.tensor.size());
  const std::vector<double> scales(report.cast_scales().begin(), report.cast_scales().end());
  out << fmt::format(
      "\nThe casts{} as they were recorded, at {}: of the finite non-zero values, those that became zero, "
      "and "
      "Inf or NaN\n",
      report.step() ? fmt::format(" of step {}", *report.step()) : "",
      scales.size() == 1 ? fmt::format("loss scale {}", scale_text(scales.front()))
                         : fmt::format("loss scales {}", scale_names(scales)));
  out << fmt::format("{:<{}}  {:<6} {:>13} {:>13} {:>13}\n", "tensor", width, "format", "values",
                     "rounded to 0", "overflowed");
  const auto row = [&](const RecordedCast& cast) {
    out << fmt::format("{:<{}}  {:<6} {:>13} {:>13} {:>13}\n", cast.tensor, width, title_of(cast.dtype),
                       cast.counts.values, cast.counts.underflow, cast.counts.overflow);
  };
  for (const RecordedCast& cast : report.casts()) row(cast);
  for (const RecordedCast& cast : casts_of(report, nullptr)) row(cast);
}

void write_json(std::ostream& out, const RangeReport& report, const RangeView& view,
                const SuggestedScale& suggestion) {
  Json tensors = Json::array(), exact = Json::array();
  for (const std::string& name : report.tensors()) {
    const ScaledHistograms& gradients = report.tensor(name);
    tensors.push_back(tensor_json(name, gradients, view, report.step(), casts_json(report, &name)));
    if (view.exact_mass && gradients.exact_zones(range_of(view.format), view.scale))
      exact.push_back(exact_json(name, gradients, view));
  }
  Json json = {{"format", name_of(view.format)},
               {"scale", view.scale ? Json(*view.scale) : Json(nullptr)},
               {"tensors", std::move(tensors)},
               {"merged", tensor_json("all tensors", report.merged(), view, report.step(),
                                      casts_json(report, nullptr))},
               {"suggestion", suggestion_json(suggestion)}};
  if (view.exact_mass) json["exact"] = std::move(exact);
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace fp16lab::analysis
