#include "reports/figures/range_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "analysis/observed_output.hpp"
#include "analysis/tensor_state.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/histogram_figure.hpp"

namespace fp16lab::reports {
namespace {

using Tensors = std::span<const ScaledTensor>;

double factor_of(const ScaledTensor& tensor, const std::optional<double>& scale) {
  return scale ? *scale / tensor.recorded_scale : 1;
}

/// All values in one panel; none if factors differ by what is no power of two, because then bins do not meet
/// bins.
std::optional<HistogramPanel> merged_panel(Tensors tensors, const analysis::RangeReport& report,
                                           const std::optional<double>& scale, const FormatRange& range) {
  // In units of the greatest factor, values only move down, where the lowest bin holds all that is below it.
  double greatest = 0;
  for (const ScaledTensor& tensor : tensors) greatest = std::max(greatest, factor_of(tensor, scale));
  HistogramPanel all{fmt::format("all {} tensors", tensors.size()),
                     {},
                     greatest,
                     range,
                     report.merged().at_scale(range, scale)};
  for (const ScaledTensor& tensor : tensors) {
    const double ratio = factor_of(tensor, scale) / greatest;
    const int shift = std::ilogb(ratio);
    if (std::scalbn(1.0, shift) != ratio) return std::nullopt;
    all.values += times_power_of_two(tensor.values, shift);
  }
  return all;
}

std::vector<HistogramPanel> panels_of(Tensors tensors, const analysis::RangeReport& report,
                                      const std::optional<double>& scale, const FormatRange& range) {
  const auto panel = [&](const ScaledTensor& tensor) -> HistogramPanel {
    return {tensor.name, tensor.values, factor_of(tensor, scale), range,
            report.tensor(tensor.name).at_scale(range, scale)};
  };
  if (tensors.size() == 1) return {panel(tensors.front())};
  std::vector<std::size_t> order;
  std::vector<analysis::TensorState> states;
  for (const ScaledTensor& tensor : tensors) {
    order.push_back(order.size());
    states.push_back(analysis::state_of(report, tensor.name, range, scale));
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return states[a].worse_than(states[b]); });
  order.resize(std::min(order.size(), max_histogram_panels - 1));
  std::vector<HistogramPanel> panels;
  if (std::optional<HistogramPanel> merged = merged_panel(tensors, report, scale, range))
    panels.push_back(std::move(*merged));
  for (const std::size_t i : order) panels.push_back(panel(tensors[i]));
  return panels;
}

std::string title_of(const RangeFigure& figure) {
  const std::string format = fp16lab::title_of(figure.format);
  if (figure.observed == Observed::updates)
    return fmt::format("Updates as parts of their weights, judged for {} weights, {}", format,
                       figure.subject);
  if (figure.observed != Observed::gradients)
    return fmt::format("{} in {}, {}", analysis::title_of(figure.observed), format, figure.subject);
  return fmt::format(
      "Gradient magnitudes in {}, {}, at {}", format, figure.subject,
      figure.scale ? "loss scale " + pretty(scale_text(*figure.scale)) : "the loss scales that they carried");
}

std::string stem_of(const RangeFigure& figure) {
  std::string name = figure.subject;
  if (figure.observed != Observed::gradients) name += fmt::format(" {}", name_of(figure.observed));
  if (figure.name_has_format) name += fmt::format(" {}", name_of(figure.format));
  return "hist-" + slug(name);
}

}  // namespace

DrawnFigure draw_range_figure(const RangeFigure& figure, Tensors tensors, const analysis::RangeReport& report,
                              const std::filesystem::path& folder) {
  const std::size_t shown = std::min(tensors.size(), max_histogram_panels - 1);
  const HistogramFigure histogram{
      .stem = stem_of(figure),
      .title = printable(title_of(figure)),
      .caption = shown < tensors.size()
                     ? fmt::format("The {} of {} tensors with which most is wrong.", shown, tensors.size())
                     : "",
      .of_updates = figure.observed == Observed::updates};
  make_folders(folder);
  return {histogram.stem,
          draw_histogram_figure(histogram,
                                panels_of(tensors, report, figure.scale,
                                          analysis::judged_range(figure.observed, figure.format)),
                                folder)};
}

}  // namespace fp16lab::reports
