#include "reports/histogram_figure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "analysis/range_report.hpp"
#include "numerics/files/atomic_file.hpp"
#include "reports/figure_style.hpp"
#include "reports/gnuplot.hpp"
#include "reports/rate_text.hpp"
#include "reports/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// FP16's edges as exponents of the scaled value.
constexpr double lost_edge = Binary16::exponent_of_min_subnormal - 1;  // |y| <= 2^-25 rounds to zero
constexpr double normal_edge = Binary16::emin;                         // 2^-14
constexpr double overflow_edge = Binary16::emax + 1;                   // 65520 is just below 2^16

enum Zone { lost, subnormal, normal, overflow, cut_zones };

struct ZoneStyle {
  std::string_view color, fill, cut_fill;
};
constexpr std::array<ZoneStyle, 4> styles{{{lost_color, "fs pattern 4", "fs pattern 4"},
                                           {subnormal_color, "fs solid 0.55", "fs pattern 5"},
                                           {normal_color, "fs solid 0.95", "fs pattern 5"},
                                           {overflow_color, "fs solid 0.95", "fs pattern 5"}}};

/// Zone of the bin (2^from, 2^(from+1)]; + cut_zones if an edge lies inside.
int zone_of(double from) {
  const double middle = from + 0.5;
  const int zone = middle < lost_edge       ? lost
                   : middle < normal_edge   ? subnormal
                   : middle < overflow_edge ? normal
                                            : overflow;
  const auto cuts = [from](double edge) { return from < edge && edge < from + 1; };
  // 65520 itself lies inside the bin that ends at 2^16, at any power of two.
  if (from < overflow_edge && from + 1 >= overflow_edge) return overflow + cut_zones;
  return cuts(lost_edge) || cuts(normal_edge) ? zone + cut_zones : zone;
}

/// The data blocks, and what the axes must show.
struct Blocks {
  std::string data =
      "# log2 of the lower end of the bin (2^e, 2^(e+1)], scale included\tpercent of the non-zero "
      "values\tzone (+4: an edge "
      "lies inside); one block a tensor\n";
  double low = lost_edge - 10, high = overflow_edge + 3, tallest = 1;
  bool cut = false;  ///< bars lie outside of the axis
};

Blocks blocks_of(std::span<const HistogramPanel> panels, double factor) {
  Blocks blocks;
  for (const HistogramPanel& panel : panels) {
    const auto total = static_cast<double>(panel.values.finite_nonzero());
    const double shift = std::log2(panel.factor.value_or(factor));
    std::string name = panel.name;
    std::replace(name.begin(), name.end(), '\n', ' ');
    blocks.data += fmt::format("# {}\n", name);
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
      if (panel.values.at(e) == 0) continue;
      const double share = 100 * static_cast<double>(panel.values.at(e)) / total, from = e + shift;
      blocks.data += fmt::format("{:.6g}\t{:.6g}\t{}\n", from, share, zone_of(from));
      if (share > 0.05) {
        blocks.low = std::min(blocks.low, std::floor(from) - 1);
        blocks.high = std::max(blocks.high, std::ceil(from) + 2);
      }
      blocks.tallest = std::max(blocks.tallest, share);
    }
    if (total == 0) blocks.data += "nan\tnan\tnan\n";
    blocks.data += "\n\n";
  }
  // Far outside of FP16 nothing differs any more: all zero, or all overflow.
  const double low = std::max(blocks.low, lost_edge - 26), high = std::min(blocks.high, overflow_edge + 26);
  blocks.cut = low > blocks.low || high < blocks.high;
  blocks.low = low;
  blocks.high = high;
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

std::string frame(const HistogramFigure& figure, Layout& layout, const Blocks& blocks) {
  const FigureTitle title = figure_title(figure.title, layout.width);
  const FigureNote note("Percent of the non-zero values against magnitude, scale included" +
                            std::string(blocks.cut ? "; bars outside of the axis are in the rates. " : ". ") +
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
  const auto legend = [&](int label, std::string_view zone, std::string_view color) {
    body += fmt::format("  set label {} {} at screen {:.4f},screen {:.4f} left tc rgb \"{}\"\n", label,
                        gnuplot_bold(zone), x / width, 1 - (layout.above - 46) / height, color);
    x += text_width(zone, 12, true) + 18;
  };
  legend(100, "rounds to zero: to 2⁻²⁵", lost_color);
  legend(101, "subnormal: to 2⁻¹⁴", subnormal_color);
  legend(102, "normal", normal_color);
  legend(103, "overflow: from 65520", overflow_color);
  body += note.commands(layout.height);
  body += fmt::format(
      "  set key off\n  set boxwidth 0.92\n  unset grid\n  set xrange [{}:{}]\n  set yrange [0:{:.3g}]\n  "
      "set xtics {} "
      "format \"2^{{%.0f}}\"\n",
      blocks.low, blocks.high, 1.12 * blocks.tallest, blocks.high - blocks.low > 60 ? 16 : 8);
  int object = 1;
  const std::array<double, 5> edges{blocks.low, lost_edge, normal_edge, overflow_edge, blocks.high};
  for (std::size_t zone = 0; zone < styles.size(); ++zone, ++object)
    body += fmt::format(
        "  set object {} rectangle from first {},graph 0 to first {},graph 1 behind fc rgb \"{}\" fs solid "
        "0.09 "
        "noborder\n",
        object, edges[zone], edges[zone + 1], styles[zone].color);
  for (const double edge : {lost_edge, normal_edge, overflow_edge})
    body += fmt::format(
        "  set arrow {} from first {},graph 0 to first {},graph 1 nohead back lc rgb \"#888888\" lw 0.8 dt "
        "2\n",
        object++, edge, edge);
  return body;
}

std::string panel_commands(const HistogramPanel& panel, const HistogramFigure& figure, const Layout& layout,
                           std::size_t block) {
  const analysis::ZoneRates rates =
      analysis::rates_of(count_ranges(panel.values, fp16_range, panel.factor.value_or(figure.factor)));
  const std::string zeros = "exact zeros " + rate_text(rates.zero);
  const int width = layout.columns == 1 ? layout.width - left_edge - right_edge : panel_width - 10;
  std::string body = fmt::format(
      "  set label 1 {} at graph 0,graph 1.17 left\n"
      "  set label 2 {} at graph 1,graph 1.17 right font \"DejaVu Sans,10\" tc rgb "
      "\"#555555\"\n",
      gnuplot_bold(shortened(panel.name, width - text_width(zeros, 10) - 16, 12, true)), gnuplot_string(zeros));
  // Each zone has its rate above it, in its colour; the last one is too narrow to be centred over.
  const auto zone_rate = [&](int label, const analysis::RateInterval& rate, const std::string& x,
                             std::string_view alignment, std::string_view color) {
    body += fmt::format("  set label {} \"{}\" at {},graph 1.055 {} font \"DejaVu Sans,10\" tc rgb \"{}\"\n",
                        label, rate_text(rate), x, alignment, color);
  };
  const auto middle = [](double from, double to) { return fmt::format("first {}", 0.5 * (from + to)); };
  zone_rate(3, rates.lost, "graph 0", "left", lost_color);
  zone_rate(4, rates.subnormal, middle(lost_edge, normal_edge), "center", subnormal_color);
  zone_rate(5, rates.normal, middle(normal_edge, overflow_edge), "center", normal_color);
  zone_rate(6, rates.overflow, "graph 1", "right", overflow_color);
  // All panels have the same axes: the first of a row names the heights.
  const bool first_of_row = block % static_cast<std::size_t>(layout.columns) == 0;
  body += fmt::format("  set ytics format \"{}\"\n  plot \\\n", first_of_row ? "%g %%" : "");
  for (int zone = 0; zone < 2 * cut_zones; ++zone) {
    const ZoneStyle& style = styles.at(static_cast<std::size_t>(zone % cut_zones));
    body += fmt::format(
        "    {}.\".dat\" index {} using ($3=={} ? $1+0.5 : 1/0):2 with boxes {} lc rgb \"{}\"{}\n",
        gnuplot_string(figure.stem), block, zone, zone < cut_zones ? style.fill : style.cut_fill, style.color,
        zone + 1 < 2 * cut_zones ? ", \\" : "");
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
  std::string body = frame(figure, layout, blocks);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (i == 1) body += "  do for [i=100:103] { unset label i }\n  unset label 900\n";  // they are there once
    body += panel_commands(panels[i], figure, layout, i);
  }
  body += "  unset multiplot\n";
  write_file_atomically(folder / (figure.stem + ".dat"), blocks.data);
  write_file_atomically(folder / (figure.stem + ".gp"),
                        gnuplot_script(figure.stem, figure.title, layout.width, layout.height, body));
}

std::string draw_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                                  const std::filesystem::path& folder, const std::string& gnuplot) {
  write_histogram_figure(figure, panels, folder);
  return run_gnuplot(gnuplot, folder / (figure.stem + ".gp"));
}

}  // namespace fp16lab::reports
