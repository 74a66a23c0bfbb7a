#include "reports/figures/comparison_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "numerics/text/text.hpp"
#include "reports/figures/figure.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/figure_style.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view color_a = "#777777";  // broad, under the other one

std::string name_of(char which, const std::string& path) {
  return fmt::format("{}: {}", which, std::filesystem::path(path).filename().string());
}

/// The points of `value` at every step that both runs have.
template <class Value>
OrderedJson points_of(const analysis::StepsComparison& steps, Value value) {
  OrderedJson points = OrderedJson::array();
  for (const auto& [a, b] : steps.common) points.push_back({a.step, number_or_null(value(a, b))});
  return points;
}

OrderedJson two_lines(const analysis::RunComparison& comparison, double (*value)(const StepRow&),
                      bool stepped) {
  const OrderedJson a = points_of(comparison.steps,
                                  [&](const StepRow&row, const StepRow&) { return value(row); }),
                    b = points_of(comparison.steps,
                                  [&](const StepRow&, const StepRow&row) { return value(row); });
  return {{{"label", name_of('A', comparison.name_a)}, {"stepped", stepped}, {"points", a}},
          {{"label", name_of('B', comparison.name_b)}, {"stepped", stepped}, {"points", b}}};
}

/// Differences that are not 0, and the line along which they grow.
OrderedJson differences(const analysis::StepsComparison& steps) {
  OrderedJson series = {
      {{"label", "|loss A − loss B|"},
       {"color", lost_color},
       {"width", 0},
       {"mark", "point"},
       {"points",
        points_of(steps, [](const StepRow& a, const StepRow& b) { return std::fabs(a.loss - b.loss); })}},
      {{"label", "grad_norm, relative"},
       {"color", subnormal_color},
       {"width", 0},
       {"mark", "ring"},
       {"points", points_of(steps, [](const StepRow& a, const StepRow& b) {
          return analysis::relative_difference(a.grad_norm, b.grad_norm);
        })}}};
  if (const auto& growth = steps.growth; growth && growth->doubling_steps()) {
    const auto at = [&](std::uint64_t step) {
      return OrderedJson{
          step, std::pow(10, growth->log10_at_first +
                                 growth->log10_per_step * static_cast<double>(step - growth->first_step))};
    };
    series.push_back({{"label", fmt::format("doubles every {:.3g} steps", *growth->doubling_steps())},
                      {"color", "#222222"},
                      {"width", 1.6},
                      {"dash", {3, 3}},
                      {"points", {at(growth->first_step), at(growth->last_step)}}});
  }
  return series;
}

}  // namespace

std::string draw_comparison(const analysis::RunComparison& comparison, const std::filesystem::path& folder,
                            const DrawingOptions& options) {
  const analysis::StepsComparison& steps = comparison.steps;
  if (steps.common.empty()) return "no step in common: no figure";
  const std::uint64_t first = steps.common.front().a.step, last = steps.common.back().a.step;
  OrderedJson lines = OrderedJson::array();
  if (steps.first_state_difference) lines.push_back({{"x", *steps.first_state_difference}});
  const auto panel = [&](std::string_view title, OrderedJson series, OrderedJson y) {
    y["title"] = title;
    return OrderedJson{
        {"kind", "plot"},
        {"series", std::move(series)},
        {"lines", lines},
        {"height", 230},
        {"x", {{"title", "step"}, {"form", "count"}, {"low", first}, {"high", std::max(last, first + 1)}}},
        {"y", std::move(y)}};
  };
  const bool differ = steps.column("loss").differing + steps.column("grad_norm").differing > 0;
  const auto log2_scale = [](const StepRow& row) { return std::log2(row.loss_scale); };
  OrderedJson panels =
      OrderedJson::array({panel("loss",
                                two_lines(
                                    comparison, [](const StepRow& row) { return row.loss; }, false),
                                OrderedJson::object())});
  if (differ) panels.push_back(panel("difference, logarithmic", differences(steps), {{"log", true}}));
  const double scale = steps.common.front().a.loss_scale;
  if (std::ranges::any_of(steps.common, [&](const auto& rows) {
        return rows.a.loss_scale != scale || rows.b.loss_scale != scale;
      }))
    panels.push_back(panel("loss scale", two_lines(comparison, log2_scale, true), {{"form", "power2"}}));
  return draw_figure(
      {{"stem", "compare"},
       {"title", fmt::format("{} and {}: {} steps of both runs, {}", name_of('A', comparison.name_a),
                             name_of('B', comparison.name_b), steps.common.size(),
                             steps.first_state_difference
                                 ? fmt::format("states diverge at step {}", *steps.first_state_difference)
                                 : "states are the same in every step")},
       {"caption", std::string(differ ? "" : "Losses and gradient norms are equal in every step. ") +
                       (steps.first_state_difference ? "The dashed line is where the states diverge." : "")},
       {"styles",
        {{name_of('A', comparison.name_a), {{"color", color_a}, {"width", 4}}},
         {name_of('B', comparison.name_b), {{"color", normal_color}, {"width", 1.6}}}}},
       {"panels", std::move(panels)}},
      folder, options);
}

}  // namespace fp16lab::reports
