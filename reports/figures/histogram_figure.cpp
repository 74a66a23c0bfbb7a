#include "reports/figures/histogram_figure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "analysis/range_report.hpp"
#include "numerics/formats/format_range.hpp"
#include "reports/data/rate_text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// A format's edges as exponents of the scaled value.
struct Edges {
  double lost = 0, normal = 0, overflow = 0;
  explicit Edges(const FormatRange& range)
      : lost(range.tie_to_zero),
        normal(range.smallest_normal),
        overflow(std::log2(range.overflow_threshold())) {}
};

struct ZoneStyle {
  std::string_view color, fill, cut_fill;
};
constexpr std::array<ZoneStyle, Zone::count> styles{{{lost_color, "fs pattern 4", "fs pattern 4"},
                                                     {subnormal_color, "fs solid 0.55", "fs pattern 5"},
                                                     {normal_color, "fs solid 0.95", "fs pattern 5"},
                                                     {overflow_color, "fs solid 0.95", "fs pattern 5"}}};

/// The zone that a bin is drawn in; + Zone::count if an edge lies inside.
std::size_t drawn_zone(const ExponentHistogram& values, int bin, const ZoneEdges<Binary32>& edges) {
  const BinZones zones = zones_of_bin(values, bin, edges);
  if (zones.first == zones.last) return zones.first;
  // The edge to infinity mostly lies just below the upper end of a bin, at any power of two.
  if (zones.last == Zone::overflow) return Zone::overflow + Zone::count;
  const std::uint32_t low = ExponentHistogram::smallest_of_bin(bin),
                      high = ExponentHistogram::greatest_of_bin(bin);
  if (edges.zone_of(high - 1) == zones.first) return zones.first;  // its upper end alone lies beyond
  return edges.zone_of(low + (high - low) / 2) + Zone::count;
}

/// The data blocks, and what the axes must show.
struct Blocks {
  std::string data =
      "# log2 of the lower end of the bin (2^e, 2^(e+1)], scale included; last Inf and NaN\tpercent of the "
      "non-zero values\tzone (+4: an edge lies inside); one block a tensor\n";
  double low = 0, high = 0, tallest = 1;
  bool cut = false;                     ///< bars lie outside of the axis
  std::optional<double> at_infinity{};  ///< where Inf and NaN are drawn, beyond all numbers
};

std::uint64_t nonfinite(const HistogramPanel& panel) { return panel.values.infinite + panel.values.nan; }

Blocks blocks_of(std::span<const HistogramPanel> panels, double factor) {
  Blocks blocks;
  // What is always there: FP16's edges; wider formats show where their values are.
  const Edges fp16(fp16_range);
  blocks.low = fp16.lost - 10;
  blocks.high = std::ceil(fp16.overflow) + 3;
  /// bar(lower end of the bin, percent, bin) of each.
  const auto for_each_bar = [&](const HistogramPanel& panel, const auto& bar) {
    const auto total = static_cast<double>(panel.values.finite_nonzero() + nonfinite(panel));
    const double shift = std::log2(panel.factor.value_or(factor));
    for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin)
      if (const std::uint64_t count = panel.values.bins[static_cast<std::size_t>(bin)]; count != 0)
        bar(bin + ExponentHistogram::min_exponent + shift, 100 * static_cast<double>(count) / total, bin);
    blocks.tallest =
        std::max(blocks.tallest, 100 * static_cast<double>(nonfinite(panel)) / std::max(total, 1.0));
  };
  // Far outside of all formats nothing differs any more: all zero, or all overflow.
  double lowest = fp16.lost, highest = std::ceil(fp16.overflow);
  for (const HistogramPanel& panel : panels) {
    lowest = std::min(lowest, Edges(panel.range).lost);
    highest = std::max(highest, std::ceil(Edges(panel.range).overflow));
    for_each_bar(panel, [&](double from, double share, int) {
      if (share > 0.05) {
        blocks.low = std::min(blocks.low, std::floor(from) - 1);
        blocks.high = std::max(blocks.high, std::ceil(from) + 2);
      }
      blocks.tallest = std::max(blocks.tallest, share);
    });
  }
  const double low = std::max(blocks.low, lowest - 26), high = std::min(blocks.high, highest + 26);
  blocks.cut = low > blocks.low || high < blocks.high;
  blocks.low = low;
  blocks.high = high;
  if (std::ranges::any_of(panels, [](const HistogramPanel& panel) { return nonfinite(panel) > 0; }))
    blocks.at_infinity = (blocks.high += 3) - 2;
  for (const HistogramPanel& panel : panels) {
    const ZoneEdges<Binary32> edges(panel.range, panel.factor.value_or(factor));
    blocks.data += gnuplot_comment(panel.name);
    for_each_bar(panel, [&](double from, double share, int bin) {
      blocks.data += fmt::format("{:.6g}\t{:.6g}\t{}\n", from, share, drawn_zone(panel.values, bin, edges));
    });
    if (nonfinite(panel) > 0)
      blocks.data += fmt::format("{:.6g}\t{:.6g}\t{}\n", *blocks.at_infinity,
                                 100 * static_cast<double>(nonfinite(panel)) /
                                     static_cast<double>(panel.values.finite_nonzero() + nonfinite(panel)),
                                 static_cast<std::size_t>(Zone::overflow));
    else if (panel.values.finite_nonzero() == 0)
      blocks.data += "nan\tnan\tnan\n";
    blocks.data += "\n\n";
  }
  return blocks;
}

/// Pixels around and between the panels.
constexpr int panel_width = 366, panel_height = 130, between = 80, left_edge = 64, right_edge = 14;

struct Layout {
  int rows = 1, columns = 1, width = 0, height = 0, above = 0, below = 0;
};

Layout layout_of(std::size_t panels) {
  const int count = static_cast<int>(panels);
  Layout layout;
  layout.columns = count <= 2 ? count : count == 4 ? 2 : 3;
  layout.rows = (count + layout.columns - 1) / layout.columns;
  // One panel needs the width of the words above it.
  layout.width = layout.columns == 1 ? 780 : (panel_width + 14) * layout.columns + left_edge;
  return layout;
}

std::string frame(const HistogramFigure& figure, std::span<const HistogramPanel> panels, Layout& layout,
                  const Blocks& blocks) {
  const FigureTitle title = figure_title(figure.title, layout.width);
  const FigureNote note((figure.of_updates ? "Percent of the weights that moved against how far they did"
                                           : "Percent of the non-zero values against magnitude, scale "
                                             "included") +
                            std::string(blocks.cut ? "; bars outside of the axis are in the rates. " : ". ") +
                            (blocks.at_infinity ? "The bar at the right edge: Inf and NaN. " : "") +
                            figure.caption,
                        layout.width);
  layout.above = 84 + title.extra_height;
  layout.below = 40 + note.height();
  layout.height = layout.above + layout.below + layout.rows * panel_height + (layout.rows - 1) * between;
  const double width = layout.width, height = layout.height;
  std::string body = fmt::format(
      "  set multiplot layout {},{} title {} noenhanced font \",14\" margins {:.4f},{:.4f},{:.4f},{:.4f} "
      "spacing {:.4f},{:.4f}\n",
      layout.rows, layout.columns, title.quoted, left_edge / width, 1 - right_edge / width,
      layout.below / height, 1 - layout.above / height, 14 / width, between / height);
  double x = left_edge;
  const auto legend = [&](int label, const std::string& zone, std::string_view color) {
    body += fmt::format("  set label {} {} at screen {:.4f},screen {:.4f} left tc rgb \"{}\"\n", label,
                        gnuplot_bold(zone), x / width, 1 - (layout.above - 46) / height, color);
    x += text_width(zone, 12, true) + 18;
  };
  // The edges stand in the legend where all panels have the same ones.
  const FormatRange& range = panels.front().range;
  const bool one = std::all_of(panels.begin(), panels.end(),
                               [&](const HistogramPanel& panel) { return panel.range == range; });
  if (figure.of_updates) {
    legend(100, pretty(fmt::format("lost: to 2^{} of the weight", range.tie_to_zero)), lost_color);
    legend(101, pretty(fmt::format("depends on the weight: to 2^{}", range.smallest_normal)),
           subnormal_color);
    legend(102, "moves it", normal_color);
  } else {
    legend(100, one ? pretty(fmt::format("rounds to zero: to 2^{}", range.tie_to_zero)) : "rounds to zero",
           lost_color);
    legend(101, one ? pretty(fmt::format("subnormal: below 2^{}", range.smallest_normal)) : "subnormal",
           subnormal_color);
    legend(102, "normal", normal_color);
    const double threshold = range.overflow_threshold();
    legend(103,
           one ? fmt::format("overflow: {} {}", range.threshold_overflows ? "from" : "above",
                             threshold < 1e6 ? fmt::format("{}", threshold)
                                             : pretty(fmt::format("about 2^{:.0f}", std::log2(threshold))))
               : "overflow",
           overflow_color);
  }
  body += note.commands(layout.height);
  body += fmt::format(
      "  set key off\n  set boxwidth 0.92\n  unset grid\n  set xrange [{}:{}]\n  set yrange [0:{:.3g}]\n  "
      "set xtics {} format \"2^{{%.0f}}\"\n",
      blocks.low, blocks.high, 1.12 * blocks.tallest,
      blocks.high - blocks.low > 160  ? 64
      : blocks.high - blocks.low > 60 ? 16
                                      : 8);
  return body;
}

/// The zones behind a panel's bars.
std::string zone_commands(const Edges& edges, const Blocks& blocks) {
  std::string body;
  const auto inside = [&](double e) { return std::clamp(e, blocks.low, blocks.high); };
  const std::array<double, 5> ends{blocks.low, inside(edges.lost), inside(edges.normal),
                                   inside(edges.overflow), blocks.high};
  for (std::size_t zone = 0; zone < styles.size(); ++zone)
    body += fmt::format(
        "  set object {} rectangle from first {},graph 0 to first {},graph 1 behind fc rgb \"{}\" fs solid "
        "0.09 noborder\n",
        zone + 1, ends[zone], ends[zone + 1], styles[zone].color);
  for (std::size_t edge = 1; edge < 4; ++edge)
    body += fmt::format(
        "  set arrow {} from first {},graph 0 to first {},graph 1 nohead back lc rgb \"#888888\" lw 0.8 dt "
        "2\n",
        edge, ends[edge], ends[edge]);
  return body;
}

std::string panel_commands(const HistogramPanel& panel, const HistogramFigure& figure, const Layout& layout,
                           const Blocks& blocks, std::size_t block) {
  const Edges edges(panel.range);
  const analysis::ZoneRates rates = analysis::rates_of(
      panel.counts.value_or(count_ranges(panel.values, panel.range, panel.factor.value_or(figure.factor))));
  const std::uint64_t infinite = panel.values.infinite, nan = panel.values.nan;
  std::string zeros = "exact zeros " + rate_text(rates.zero);
  if (nan > 0) zeros = fmt::format("{} NaN, ", nan) + zeros;
  if (infinite > 0) zeros = fmt::format("{} Inf, ", infinite) + zeros;
  const int width = layout.columns == 1 ? layout.width - left_edge - right_edge : panel_width - 10;
  std::string body = zone_commands(edges, blocks);
  body += fmt::format(
      "  set label 1 {} at graph 0,graph 1.17 left\n"
      "  set label 2 {} at graph 1,graph 1.17 right font \"DejaVu Sans,10\" tc rgb \"{}\"\n",
      gnuplot_bold(shortened(panel.name, width - text_width(zeros, 10) - 16, 12, true)),
      gnuplot_string(zeros), infinite + nan > 0 ? overflow_color : "#555555");
  // Each zone has its rate above it, in its colour; the last one is too narrow to be centred over.
  const auto zone_rate = [&](int label, const analysis::RateInterval& rate, const std::string& x,
                             std::string_view alignment, std::string_view color) {
    body += fmt::format("  set label {} \"{}\" at {},graph 1.055 {} font \"DejaVu Sans,10\" tc rgb \"{}\"\n",
                        label, rate_text(rate), x, alignment, color);
  };
  // Zones that the axis does not reach have no middle to stand over.
  const auto middle = [&](double from, double to) {
    return fmt::format("first {}", 0.5 * (std::clamp(from, blocks.low, blocks.high) +
                                          std::clamp(to, blocks.low, blocks.high)));
  };
  zone_rate(3, rates.lost, "graph 0", "left", lost_color);
  const bool subnormals = edges.normal > blocks.low + 4;
  zone_rate(4, rates.subnormal, subnormals ? middle(edges.lost, edges.normal) : "graph 0.2", "center",
            subnormal_color);
  zone_rate(5, rates.normal, middle(edges.normal, edges.overflow), "center", normal_color);
  zone_rate(6, rates.overflow, "graph 1", "right", overflow_color);
  // All panels have the same axes: the first of a row names the heights.
  const bool first_of_row = block % static_cast<std::size_t>(layout.columns) == 0;
  body += fmt::format("  set ytics format \"{}\"\n  plot \\\n", first_of_row ? "%g %%" : "");
  for (std::size_t zone = 0; zone < 2 * Zone::count; ++zone) {
    const ZoneStyle& style = styles.at(zone % Zone::count);
    body += fmt::format(
        "    {}.\".dat\" index {} using ($3=={} ? $1+0.5 : 1/0):2 with boxes {} lc rgb \"{}\"{}\n",
        gnuplot_string(figure.stem), block, zone, zone < Zone::count ? style.fill : style.cut_fill,
        style.color, zone + 1 < 2 * Zone::count ? ", \\" : "");
  }
  return body;
}

}  // namespace

void write_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                            const std::filesystem::path& folder) {
  if (panels.empty() || panels.size() > max_histogram_panels)
    throw std::invalid_argument(fmt::format("write_histogram_figure: {} panels, expected 1 to {}",
                                            panels.size(), max_histogram_panels));
  const Blocks blocks = blocks_of(panels, figure.factor);
  Layout layout = layout_of(panels.size());
  std::string body = frame(figure, panels, layout, blocks);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (i == 1) body += "  do for [i=100:103] { unset label i }\n  unset label 900\n";  // they are there once
    body += panel_commands(panels[i], figure, layout, blocks, i);
  }
  body += "  unset multiplot\n";
  write_pair(folder, figure.stem, blocks.data,
             gnuplot_script(figure.stem, figure.title, layout.width, layout.height, body));
}

std::string draw_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                                  const std::filesystem::path& folder, const std::string& gnuplot) {
  write_histogram_figure(figure, panels, folder);
  return run_gnuplot(gnuplot, folder / (figure.stem + ".gp"));
}

}  // namespace fp16lab::reports
