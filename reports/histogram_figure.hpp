// One figure of exponent histograms: how the magnitudes of some tensors lie in the zones of a format at a scale.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "numerics/dtype.hpp"
#include "numerics/exponent_histogram.hpp"
#include "numerics/range_counts.hpp"

namespace fp16lab::reports {

struct HistogramPanel {
  std::string name;
  ExponentHistogram values;
  std::optional<double> factor{};  ///< of this panel alone, in place of the figure's
  std::optional<RangeCounts>
      counts{};  ///< where more is known than the histogram says: the rates above the bars
};

struct HistogramFigure {
  std::string stem;           ///< file name without ending
  std::string title;          ///< what the values are
  DType format = DType::f16;  ///< whose zones are shown: f16, bf16, e4m3 or e5m2
  double factor = 1;          ///< scale of the figure / scale that the values carry; finite, > 0
  std::string caption;        ///< one line below the title; may be empty
};

/// As many panels as one figure has room for.
inline constexpr std::size_t max_histogram_panels = 12;

/// Writes STEM.dat and STEM.gp into `folder` and draws STEM.svg and STEM.png with `gnuplot` (a program name or path).
/// Returns an empty string, or one line that says why nothing was drawn; data and script stay. A factor that is no power
/// of two puts bins across the edges of zones; such a bar has the hatching of the zone of its middle.
/// std::invalid_argument for no panels or more than max_histogram_panels.
std::string draw_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                                  const std::filesystem::path& folder,
                                  const std::string& gnuplot = "gnuplot");

}  // namespace fp16lab::reports
