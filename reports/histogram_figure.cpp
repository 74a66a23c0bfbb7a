#include "reports/histogram_figure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "analysis/range_report.hpp"
#include "numerics/files/atomic_file.hpp"
#include "numerics/format_range.hpp"
#include "reports/figure_style.hpp"
#include "reports/gnuplot.hpp"
#include "reports/rate_text.hpp"
#include "reports/run_config.hpp"

namespace fp16lab::reports {
namespace {

/// A format's edges as exponents of the scaled value.
struct Edges {
  double lost;      ///< |y| <= 2^lost rounds to zero
  double normal;    ///< |y| < 2^normal is subnormal
  double overflow;  ///< 65520 is just below 2^16
};
Edges edges_of(DType format) {
  const FormatRange range = range_of(format);
  return {static_cast<double>(range.tie_to_zero), static_cast<double>(range.smallest_normal),
          std::log2(range.overflow_threshold())};
}

enum Zone { lost, subnormal, normal, overflow, cut_zones };

struct ZoneStyle {
  std::string_view color, fill, cut_fill;
};
constexpr std::array<ZoneStyle, 4> styles{{{lost_color, "fs pattern 4", "fs pattern 4"},
                                           {subnormal_color, "fs solid 0.55", "fs pattern 5"},
                                           {normal_color, "fs solid 0.95", "fs pattern 5"},
                                           {overflow_color, "fs solid 0.95", "fs pattern 5"}}};

/// Zone of the bin (2^from, 2^(from+1)]; + cut_zones if an edge lies inside.
int zone_of(double from, const Edges& edges) {
  const double middle = from + 0.5;
  const int zone = middle < edges.lost       ? lost
                   : middle < edges.normal   ? subnormal
                   : middle < edges.overflow ? normal
                                             : overflow;
  const auto cuts = [from](double edge) { return from < edge && edge < from + 1; };
  // At any power of two: 65520, say, lies inside the bin that ends at 2^16.
  if (cuts(edges.overflow)) return overflow + cut_zones;
  return cuts(edges.lost) || cuts(edges.normal) ? zone + cut_zones : zone;
}

/// The data blocks, and what the axes must show.
struct Blocks {
  std::string data =
      "# log2 of the lower end of the bin (2^e, 2^(e+1)], scale included\tpercent of the non-zero "
      "values\tzone (+4: an edge "
      "lies inside); one block a tensor\n";
  double low = 0, high = 0, tallest = 1;
  bool cut = false;  ///< bars lie outside of the axis
};

Blocks blocks_of(std::span<const HistogramPanel> panels, double factor, const Edges& edges) {
  Blocks blocks;
  blocks.low = edges.lost - 10;
  blocks.high = std::ceil(edges.overflow) + 3;
  for (const HistogramPanel& panel : panels) {
    const auto total = static_cast<double>(panel.values.finite_nonzero());
    const double shift = std::log2(panel.factor.value_or(factor));
    std::string name = panel.name;
    std::replace(name.begin(), name.end(), '\n', ' ');
    blocks.data += fmt::format("# {}\n", name);
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
      if (panel.values.at(e) == 0) continue;
      const double share = 100 * static_cast<double>(panel.values.at(e)) / total, from = e + shift;
      blocks.data += fmt::format("{:.6g}\t{:.6g}\t{}\n", from, share, zone_of(from, edges));
      if (share > 0.05) {
        blocks.low = std::min(blocks.low, std::floor(from) - 1);
        blocks.high = std::max(blocks.high, std::ceil(from) + 2);
      }
      blocks.tallest = std::max(blocks.tallest, share);
    }
    if (total == 0) blocks.data += "nan\tnan\tnan\n";
    blocks.data += "\n\n";
  }
  // Far outside of the format nothing differs any more: all zero, or all overflow.
  const double low = std::max(blocks.low, edges.lost - 26);
  const double high = std::min(blocks.high, std::ceil(edges.overflow) + 26);
  blocks.cut = low > blocks.low || high < blocks.high;
  blocks.low = low;
  blocks.high = high;
  return blocks;
}

/// "overflow: from 65520"; of E4M3, which keeps the threshold itself, "above 464".
std::string overflow_words(const FormatRange& range) {
  const double threshold = range.overflow_threshold();
  return fmt::format("overflow: {} {}", range.threshold_overflows ? "from" : "above",
                     threshold < 1e6 ? fmt::format("{:g}", threshold) : fmt::format("{:.3g}", threshold));
}

std::string frame(const HistogramFigure& figure, int rows, int columns, int height, const Blocks& blocks) {
  std::string body = fmt::format(
      "  set multiplot layout {},{} title {} noenhanced font \",14\" margins 0.07,0.985,{:.3f},{:.3f} "
      "spacing "
      "0.035,{:.3f}\n",
      rows, columns, gnuplot_string(figure.title), 72.0 / height, 1 - 102.0 / height, 80.0 / height);
  const FormatRange range = range_of(figure.format);
  const double lost_edge = range.tie_to_zero, normal_edge = range.smallest_normal,
               overflow_edge = edges_of(figure.format).overflow;
  const auto legend = [&](int label, double x, std::string_view zone, std::string_view color) {
    body += fmt::format("  set label {} \"{{/:Bold {}}}\" at screen {},screen {:.3f} left tc rgb \"{}\"\n",
                        label, zone, x, 1 - 50.0 / height, color);
  };
  const double wide = columns == 1 ? 1.5 : 1;  // narrow figures need more of their width for the words
  legend(100, 0.07, "rounds to zero: to " + pretty(fmt::format("2^{}", range.tie_to_zero)), lost_color);
  legend(101, 0.07 + 0.2 * wide, "subnormal: to " + pretty(fmt::format("2^{}", range.smallest_normal)),
         subnormal_color);
  legend(102, 0.07 + 0.37 * wide, "normal", normal_color);
  legend(103, 0.07 + 0.45 * wide, overflow_words(range), overflow_color);
  body += fmt::format(
      "  set label 104 {} at screen 0.985,screen {:.3f} right noenhanced tc rgb \"#555555\"\n"
      "  set label 105 \"percent of the non-zero values against magnitude, scale included{}\" at screen "
      "0.07,screen {:.3f} left tc rgb \"#555555\"\n",
      gnuplot_string(figure.caption), 1 - 50.0 / height,
      blocks.cut ? "; bars outside of the axis are in the rates" : "", 18.0 / height);
  body += fmt::format(
      "  set key off\n  set boxwidth 0.92\n  unset grid\n  set xrange [{}:{}]\n  set yrange [0:{:.3g}]\n  "
      "set xtics {} "
      "format \"2^{{%.0f}}\"\n",
      blocks.low, blocks.high, 1.12 * blocks.tallest,
      blocks.high - blocks.low > 160  ? 64
      : blocks.high - blocks.low > 60 ? 16
                                      : 8);
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

std::string panel_commands(const HistogramPanel& panel, const HistogramFigure& figure, std::size_t block,
                           bool first_of_row) {
  const Edges edges = edges_of(figure.format);
  const analysis::ZoneRates rates = analysis::rates_of(panel.counts.value_or(
      count_ranges(panel.values, range_of(figure.format), panel.factor.value_or(figure.factor))));
  std::string name = panel.name;
  if (name.size() > 42) name = "..." + name.substr(name.size() - 39);  // its end tells it from its neighbours
  std::string body = fmt::format(
      "  set label 1 {} at graph 0,graph 1.17 left\n"
      "  set label 2 \"exact zeros {}\" at graph 1,graph 1.17 right font \"DejaVu Sans,10\" tc rgb "
      "\"#555555\"\n",
      gnuplot_bold(name), rate_text(rates.zero));
  // Each zone has its rate above it, in its colour; the last one is too narrow to be centred over.
  const auto zone_rate = [&](int label, const analysis::RateInterval& rate, const std::string& x,
                             std::string_view alignment, std::string_view color) {
    body += fmt::format("  set label {} \"{}\" at {},graph 1.055 {} font \"DejaVu Sans,10\" tc rgb \"{}\"\n",
                        label, rate_text(rate), x, alignment, color);
  };
  const auto middle = [](double from, double to) { return fmt::format("first {}", 0.5 * (from + to)); };
  zone_rate(3, rates.lost, "graph 0", "left", lost_color);
  // BF16 is so wide that its subnormals are beside the lost ones: their rates must not meet.
  const bool wide = edges.overflow - edges.lost > 100;
  zone_rate(4, rates.subnormal, wide ? "graph 0.16" : middle(edges.lost, edges.normal), "center",
            subnormal_color);
  zone_rate(5, rates.normal, middle(edges.normal, edges.overflow), "center", normal_color);
  zone_rate(6, rates.overflow, "graph 1", "right", overflow_color);
  // All panels have the same axes: the first of a row names the heights.
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

std::string draw_histogram_figure(const HistogramFigure& figure, std::span<const HistogramPanel> panels,
                                  const std::filesystem::path& folder, const std::string& gnuplot) {
  if (panels.empty() || panels.size() > max_histogram_panels)
    throw std::invalid_argument(fmt::format("draw_histogram_figure: {} panels, expected 1 to {}",
                                            panels.size(), max_histogram_panels));
  const Blocks blocks = blocks_of(panels, figure.factor, edges_of(figure.format));
  const int count = static_cast<int>(panels.size());
  const int columns = count <= 2 ? count : count == 4 ? 2 : 3;
  const int rows = (count + columns - 1) / columns, height = 124 + 210 * rows;
  std::string body = frame(figure, rows, columns, height, blocks);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (i == 1) body += "  do for [i=100:105] { unset label i }\n";  // the legend is there once
    body += panel_commands(panels[i], figure, i, i % static_cast<std::size_t>(columns) == 0);
  }
  body += "  unset multiplot\n";
  const int width = columns == 1 ? 780 : 380 * columns + 60;
  const std::filesystem::path script = folder / (figure.stem + ".gp");
  write_file_atomically(folder / (figure.stem + ".dat"), blocks.data);
  write_file_atomically(script, gnuplot_script(figure.stem, figure.title, width, height, body));
  return run_gnuplot(gnuplot, script);
}

}  // namespace fp16lab::reports
