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
#include "analysis/tensor_state.hpp"
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

/// "2^4 .. 2^18": from where rounding is harmless to where nothing overflows; for several steps, in each of
/// them.
std::string fitting_scales(std::span<const ScaledHistograms* const> steps, DType format) {
  std::optional<int> least, greatest;
  bool odd = false, empty = true, too_small = false, too_large = false;
  for (const ScaledHistograms* gradients : steps) {
    const RangeCounts counts = gradients->at_scale(range_of(format), 1.0);
    odd = odd || counts.infinite + counts.nan > 0;
    if (gradients->empty()) continue;
    const SuggestedScale suggestion = suggest_scale(*gradients, format);
    too_large = too_large || !suggestion.greatest;
    too_small = too_small || !suggestion.least;
    if (suggestion.least && (!least || *suggestion.least > *least)) least = suggestion.least;
    if (suggestion.greatest && (!greatest || *suggestion.greatest < *greatest))
      greatest = suggestion.greatest;
    empty = false;
  }
  if (empty) return odd ? "unknown" : "any";
  std::string text;
  if (too_large)
    text = fmt::format("none: overflows even at 2^{}", least_log2_scale);
  else if (too_small)
    text = fmt::format("none: not even 2^{}", greatest_log2_scale);
  else if (*least > *greatest)
    text = fmt::format("none: only from 2^{} on, overflows beyond 2^{}", *least, *greatest);
  else
    text = fmt::format("2^{} .. 2^{}", *least, *greatest);
  return odd ? text + " (by its finite values)" : text;
}

std::string fitting_scales(const ScaledHistograms& gradients, DType format) {
  const ScaledHistograms* const one = &gradients;
  return fitting_scales(std::span(&one, 1), format);
}

/// The scales that fit a tensor in all its steps.
std::string fitting_scales(const RangeReport& report, const std::string& tensor, DType format) {
  std::vector<const ScaledHistograms*> steps;
  for (const std::string& entry : report.tensors())
    if (report.tensor_of(entry) == tensor) steps.push_back(&report.tensor(entry));
  return fitting_scales(steps, format);
}

/// "1.8e-05..7e-05"
std::string magnitudes_text(const std::optional<ScaledHistograms::Magnitudes>& magnitudes) {
  if (!magnitudes || magnitudes->greatest == 0) return "-";
  return fmt::format("{:.2g}..{:.2g}", magnitudes->smallest, magnitudes->greatest);
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
  return scale ? "loss scale " + scale_text(*scale) : "each tensor's own loss scale";
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
                       &gradients == &report.merged() ? "" : fitting_scales(gradients, view.format));
  });
  out << fmt::format(
      "At scales that fit nothing overflows, and rounding costs at most {:g} times what {}'s precision costs "
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
         "what overflows in\npercent of the values, and L1 and L2 themselves\n";
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

void print_worst(std::ostream& out, const RangeReport& report, const RangeView& view, std::size_t most) {
  const std::vector<TensorState> states = states_of(report, range_of(view.format), view.scale);
  const std::span<const TensorState> shown(states.data(), std::min(states.size(), most));
  const bool steps =
      std::ranges::any_of(states, [](const TensorState& state) { return state.step.has_value(); });
  std::size_t width = std::string_view("all tensors").size();
  for (const TensorState& state : shown) width = std::max(width, state.name.size());
  out << fmt::format(
      "{} in {} at {}, percent of the finite non-zero values (error 1.00: what {}'s precision costs)\n",
      states.size() == 1      ? std::string("Its values")
      : states.size() <= most ? fmt::format("All {} tensors, the worst first,", states.size())
                              : fmt::format("The {} worst of {} tensors", most, states.size()),
      title_of(view.format), at_scale_text(view.scale), title_of(view.format));
  out << fmt::format("{:<{}}{}  {:>13} {:>9}  {:>17}  {:>9} {:>11} {:>11} {:>8}  {}\n", "tensor", width,
                     steps ? "      step" : "", "values", "Inf, NaN", "magnitudes", "overflow", "rounds to 0",
                     "subnormal", "error",
                     steps ? "scales that fit all steps" : "scales that fit" + step_alone(report));
  const auto row = [&](const TensorState& state, const std::string& scales) {
    const ZoneRates rates = rates_of(state.counts);
    const bool any = rates.zero + rates.infinite + rates.nan < 1;
    const double ratio = state.fit.ratio();
    out << fmt::format("{:<{}}{}  {:>13} {:>9}  {:>17}  {:>9} {:>11} {:>11} {:>8}  {}\n", state.name, width,
                       !steps       ? ""
                       : state.step ? fmt::format("{:>10}", *state.step)
                                    : std::string(10, ' '),
                       state.counts.total, state.nonfinite(), magnitudes_text(state.magnitudes),
                       percent(any, rates.overflow), percent(any, rates.lost), percent(any, rates.subnormal),
                       !any || rates.overflow.upper > 0 ? "-"
                       : ratio < 1000                   ? fmt::format("{:.2f}", std::max(ratio, 1.0))
                                                        : std::string("> 1000"),
                       scales);
  };
  for (const TensorState& state : shown) row(state, fitting_scales(report, state.name, view.format));
  if (states.size() > 1)
    row({.name = "all tensors",
         .counts = report.merged().at_scale(range_of(view.format), view.scale),
         .fit = report.merged().fit_at(range_of(view.format), view.scale),
         .magnitudes = report.merged().magnitudes()},
        "");
}

void print_changes(std::ostream& out, const RangeReport& report) {
  if (std::ranges::none_of(report.tensors(),
                           [&](const std::string& name) { return report.step_of(name).has_value(); }))
    return;
  constexpr std::size_t told_at_most = 3;
  const std::vector<StepChange> changes = step_changes(report);
  if (changes.empty())
    out << fmt::format("No tensor's largest magnitude changed {:g} times from one step to the next.\n",
                       least_told_change);
  for (std::size_t i = 0; i < std::min(changes.size(), told_at_most); ++i) {
    const auto& [tensor, from, to, before, after] = changes[i];
    out << fmt::format("From step {} to {} the largest magnitude of {} {}{}, from {:.2g} to {:.2g}", from, to,
                       tensor, after > before ? "rose" : "fell",
                       before == 0 || after == 0 ? "" : fmt::format(" {:.3g} times", changes[i].ratio()),
                       before, after);
    const std::size_t others = changes.size() - told_at_most;
    out << (i + 1 == told_at_most && changes.size() > told_at_most
                ? fmt::format("; {} more changed at least {:g} times.\n", others, least_told_change)
                : ".\n");
  }
}

void print_casts(std::ostream& out, const RangeReport& report) {
  if (report.casts().empty()) return;
  std::size_t width = name_width(report);
  for (const RecordedCast& cast : report.casts()) width = std::max(width, cast.tensor.size());
  const std::vector<double> scales(report.cast_scales().begin(), report.cast_scales().end());
  out << fmt::format(
      "\nThe casts{} as they were recorded, at {}: of the finite non-zero values, those that became zero, "
      "and Inf or NaN\n",
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
