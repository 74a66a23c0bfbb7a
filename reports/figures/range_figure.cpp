#include "reports/figures/range_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "analysis/observed_output.hpp"
#include "analysis/tensor_state.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/figure_style.hpp"

namespace fp16lab::reports {
namespace {

using Tensors = std::span<const ScaledTensor>;

/// Three rows in a column of paper.
constexpr std::size_t most_panels = 6;

double factor_of(const ScaledTensor& tensor, const std::optional<double>& scale) {
  return scale ? *scale / tensor.recorded_scale : 1;
}

/// One picture of a histogram; `counts` know more than it does where values were counted at several scales.
OrderedJson panel_json(std::string_view name, const ExponentHistogram& values, double factor,
                       const FormatRange& range, const RangeFigure& figure, const RangeCounts& counts) {
  const auto bounds = [](const CountInterval& zone) { return OrderedJson{zone.lower, zone.upper}; };
  return {{"kind", "histogram"},
          {"title", name},
          {"histogram", histogram_json(values)},
          {"ratio", factor},
          {"formats", OrderedJson::array({range_json(fp16lab::title_of(figure.format), range)})},
          {"what", figure.observed == Observed::updates ? "update / weight" : "magnitude, scale included"},
          {"updates", figure.observed == Observed::updates},
          {"zones",
           {{"finite", values.finite_nonzero()},
            {"lost", bounds(counts.lost)},
            {"subnormal", bounds(counts.subnormal)},
            {"normal", bounds(counts.normal)},
            {"overflow", bounds(counts.overflow)}}}};
}

/// All values in one panel; none if factors differ by what is no power of two, because then bins do not meet
/// bins.
std::optional<OrderedJson> merged_panel(Tensors tensors, const analysis::RangeReport& report,
                                        const RangeFigure& figure, const FormatRange& range) {
  // In units of the greatest factor, values only move down, where the lowest bin holds all that is below it.
  double greatest = 0;
  for (const ScaledTensor& tensor : tensors) greatest = std::max(greatest, factor_of(tensor, figure.scale));
  ExponentHistogram values;
  for (const ScaledTensor& tensor : tensors) {
    const double ratio = factor_of(tensor, figure.scale) / greatest;
    const int shift = std::ilogb(ratio);
    if (std::scalbn(1.0, shift) != ratio) return std::nullopt;
    values += times_power_of_two(tensor.values, shift);
  }
  return panel_json(fmt::format("all {} tensors", tensors.size()), values, greatest, range, figure,
                    report.merged().at_scale(range, figure.scale));
}

OrderedJson panels_of(Tensors tensors, const analysis::RangeReport& report, const RangeFigure& figure,
                      const FormatRange& range) {
  const auto panel = [&](const ScaledTensor& tensor) {
    return panel_json(tensor.name, tensor.values, factor_of(tensor, figure.scale), range, figure,
                      report.tensor(tensor.name).at_scale(range, figure.scale));
  };
  if (tensors.size() == 1) return OrderedJson::array({panel(tensors.front())});
  std::vector<std::size_t> order;
  std::vector<analysis::TensorState> states;
  for (const ScaledTensor& tensor : tensors) {
    order.push_back(order.size());
    states.push_back(analysis::state_of(report, tensor.name, range, figure.scale));
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return states[a].worse_than(states[b]); });
  order.resize(std::min(order.size(), most_panels - 1));
  OrderedJson panels = OrderedJson::array();
  if (std::optional<OrderedJson> merged = merged_panel(tensors, report, figure, range))
    panels.push_back(std::move(*merged));
  for (const std::size_t i : order) panels.push_back(panel(tensors[i]));
  return panels;
}

/// What the figure shows, and of which run.
std::pair<std::string, std::string> titles_of(const RangeFigure& figure) {
  const std::string format = fp16lab::title_of(figure.format);
  if (figure.observed == Observed::updates)
    return {fmt::format("Updates as parts of their weights, judged for {} weights", format), figure.subject};
  if (figure.observed != Observed::gradients)
    return {fmt::format("{} in {}", analysis::title_of(figure.observed), format), figure.subject};
  return {"Gradient magnitudes in " + format,
          fmt::format(
              "{}, at {}", figure.subject,
              figure.scale ? "loss scale " + pretty(scale_text(*figure.scale)) : "their own loss scales")};
}

std::string stem_of(const RangeFigure& figure) {
  std::string name = figure.subject;
  if (figure.observed != Observed::gradients) name += fmt::format(" {}", name_of(figure.observed));
  if (figure.name_has_format) name += fmt::format(" {}", name_of(figure.format));
  return "hist-" + slug(name);
}

std::string left_out_text(std::size_t left, std::size_t all) {
  return fmt::format(
      "{} of {} tensors are left out: these are the worst, by the share of values that are Inf or NaN, then "
      "of "
      "those that overflow, then by what rounding adds to their error, then by the share that rounds to "
      "zero.",
      left, all);
}

}  // namespace

DrawnFigure draw_range_figure(const RangeFigure& figure, Tensors tensors, const analysis::RangeReport& report,
                              const std::filesystem::path& folder, const DrawingOptions& options) {
  const std::size_t shown = std::min(tensors.size(), most_panels - 1);
  const std::string stem = stem_of(figure);
  const auto [title, subject] = titles_of(figure);
  OrderedJson panels =
      panels_of(tensors, report, figure, analysis::judged_range(figure.observed, figure.format));
  const std::size_t columns = panels.size() <= 2 ? panels.size() : panels.size() == 4 ? 2 : 3;
  return {stem,
          draw_figure({{"stem", stem},
                       {"title", printable(title + ", " + subject)},
                       {"subject", printable(subject)},
                       {"caption",
                        shown < tensors.size() ? left_out_text(tensors.size() - shown, tensors.size()) : ""},
                       {"columns", columns},
                       {"axes", figure.observed == Observed::updates
                                    ? "share of the weights that moved against how far they did"
                                    : "share of the non-zero values against magnitude, scale included"},
                       {"panels", std::move(panels)}},
                      folder, options)};
}

}  // namespace fp16lab::reports
