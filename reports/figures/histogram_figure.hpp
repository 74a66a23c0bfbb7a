// One figure of exponent histograms: how the magnitudes of some tensors lie in the zones of their formats at
// a scale.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::reports {

struct HistogramPanel {
  std::string name;
  ExponentHistogram values;
  std::optional<double> factor{};  ///< of this panel alone, in place of the figure's
  FormatRange range = fp16_range;  ///< whose zones are shown
  std::optional<RangeCounts>
      counts{};  ///< where more is known than the histogram says: the rates above the bars
};

struct HistogramFigure {
  std::string stem;     ///< file name without ending
  std::string title;    ///< what the values are
  double factor = 1;    ///< scale of the figure / scale that the values carry; finite, > 0
  std::string caption;  ///< a sentence in the small print; may be empty
  /// The values are updates as parts of their weights, and zones what a format would make of them
  /// (analysis::judged_range): the legend says so.
  bool of_updates = false;
};

/// As many panels as one figure has room for.
inline constexpr std::size_t max_histogram_panels = 12;

/// Writes STEM.dat and STEM.gp into `folder`. A factor that is no power of two puts bins across the edges of
/// zones; such a bar has the hatching of the zone of its middle. std::invalid_argument for no panels or more
/// than max_histogram_panels.
void write_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                            const std::filesystem::path& folder);

/// Writes it and draws STEM.svg and STEM.png with `gnuplot` (a program name or path).
/// Returns an empty string, or one line that says why nothing was drawn; data and script stay.
std::string draw_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                                  const std::filesystem::path& folder,
                                  const std::string& gnuplot = "gnuplot");

}  // namespace fp16lab::reports
