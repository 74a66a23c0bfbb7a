#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "numerics/text/text.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {
namespace {

/// How each pair looks; colours of Okabe and Ito (2008). The first two have bands over the seeds behind all
/// lines.
struct Look {
  const char* color;
  double width;
  const char* dash;
};
constexpr std::array<Look, 8> looks{{{"#A0A0A0", 2.2, ""},
                                     {"#000000", 2.2, ""},
                                     {"#D55E00", 1.5, ""},
                                     {"#0072B2", 1.5, ""},
                                     {"#009E73", 1.5, ""},
                                     {"#A8457F", 1.5, "dt (8,4)"},
                                     {"#C98A00", 1.5, "dt (2,3)"},
                                     {"#3A9BD6", 1.5, "dt (1,3,6,3)"}}};
constexpr std::array band_colors{"#E2E2E2", "#BDBDBD"};

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

struct Range {
  double low = nothing, high = nothing, mean = nothing;
};
/// Over seeds, of one pair after one step; zeros are not on a logarithmic axis.
Range range_of(const std::vector<const DistanceRow*>& curves, std::size_t step) {
  Range range;
  double logs = 0;
  for (const DistanceRow* curve : curves) {
    if (step >= curve->distances.size() || !(curve->distances[step] > 0)) return {};
    const double x = curve->distances[step];
    logs += std::log(x);
    range.low = std::fmin(range.low, x);
    range.high = std::fmax(range.high, x);
  }
  if (!curves.empty()) range.mean = std::exp(logs / static_cast<double>(curves.size()));
  return range;
}

constexpr int width = 800, height = 640;
constexpr std::size_t legend_columns = 4;

/// Along the lower edge: what each curve is.
std::string legend(const DistanceFigure& figure, const std::vector<std::size_t>& drawn) {
  std::string body;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Look& look = looks.at(drawn[i]);
    const double x = 0.03 + 0.24 * static_cast<double>(i % legend_columns),
                 y = 0.064 - 0.036 * static_cast<double>(i / legend_columns);
    if (drawn[i] < band_colors.size())
      body += fmt::format(
          "  set object rectangle from screen {:.4f},{:.4f} to screen {:.4f},{:.4f} fc rgb \"{}\" fs solid 1 "
          "noborder\n",
          x, y - 0.012, x + 0.036, y + 0.012, band_colors.at(drawn[i]));
    body += fmt::format(
        "  set arrow from screen {0:.4f},{1:.4f} to screen {2:.4f},{1:.4f} nohead lw {3} {4} lc rgb \"{5}\" "
        "front\n"
        "  set label {6} at screen {7:.4f},{1:.4f} left font \",10\" noenhanced\n",
        x, y, x + 0.036, look.width, look.dash, look.color, gnuplot_string(figure.pairs[drawn[i]]),
        x + 0.044);
  }
  return body;
}

/// Beside FP32's twin, which lies apart from the others until late.
std::string twin_label(std::string_view words, const std::vector<const DistanceRow*>& twin,
                       std::size_t steps) {
  const std::size_t step = steps * 3 / 4;
  const double at = range_of(twin, step).low;
  if (!std::isfinite(at)) return {};
  return fmt::format("  set label {} at first {},{:.3g} center noenhanced font \",10\" tc rgb \"#6E6E6E\"\n",
                     gnuplot_string(words), step, std::max(at / 5, 5e-8));
}

}  // namespace

std::string draw_distances(const DistanceFigure& figure, std::span<const DistanceRow> curves,
                           const std::filesystem::path& folder) {
  std::vector<std::string_view> workloads;
  std::vector<std::int64_t> seeds;
  for (const DistanceRow& curve : curves) {
    if (std::ranges::find(workloads, curve.workload) == workloads.end()) workloads.push_back(curve.workload);
    if (std::ranges::find(seeds, curve.seed) == seeds.end()) seeds.push_back(curve.seed);
  }
  if (curves.empty()) return {};
  std::string data =
      "# step; lowest and highest of one ulp in FP32 and on hopper; geometric means over seeds of every "
      "pair: ||a - b|| / ||a||; a block a workload\n";
  std::string panels;
  std::vector<std::size_t> drawn;
  const std::size_t rows = (workloads.size() + 1) / 2;
  for (std::size_t block = 0; block < workloads.size(); ++block) {
    std::vector<std::vector<const DistanceRow*>> of_pairs(figure.pairs.size());
    std::size_t steps = 0;
    for (const DistanceRow& curve : curves) {
      if (curve.workload != workloads[block]) continue;
      of_pairs[curve.pair].push_back(&curve);
      steps = std::max(steps, curve.distances.size());
    }
    data += gnuplot_comment(workloads[block]);
    for (std::size_t step = 0; step < steps; ++step) {
      data += fmt::format("{}", step);
      for (std::size_t i = 0; i < band_colors.size(); ++i) {
        const Range band = range_of(of_pairs[i], step);
        data += fmt::format("\t{:.4g}\t{:.4g}", band.low, band.high);
      }
      for (const auto& pair : of_pairs) data += fmt::format("\t{:.4g}", range_of(pair, step).mean);
      data += '\n';
    }
    data += "\n\n";
    const bool left = block % 2 == 0, lowest = block / 2 + 1 == rows;
    std::string plot;
    const auto add = [&](const std::string& curve) {
      plot += fmt::format("{}\"distances.dat\" index {} using {} notitle",
                          plot.empty() ? "  plot " : ", \\\n    ", block, curve);
    };
    for (std::size_t i = 0; i < band_colors.size(); ++i)
      if (!of_pairs[i].empty())
        add(fmt::format("1:{}:{} with filledcurves fs solid 1 noborder lc rgb \"{}\"", 2 + 2 * i, 3 + 2 * i,
                        band_colors.at(i)));
    for (std::size_t i = 0; i < of_pairs.size(); ++i) {
      if (of_pairs[i].empty()) continue;
      if (std::ranges::find(drawn, i) == drawn.end()) drawn.push_back(i);
      const Look& look = looks.at(i);
      add(fmt::format("1:{} with lines lw {} {} lc rgb \"{}\"", 2 + 2 * band_colors.size() + i, look.width,
                      look.dash, look.color));
    }
    panels += fmt::format(
                  "  set title {} noenhanced offset 0,-0.6\n  set xlabel {}\n  set ylabel {} offset 1,0\n"
                  "  set xrange [0:{}]\n",
                  gnuplot_string(workloads[block]), lowest ? "\"step\" offset 0,0.4" : "\"\"",
                  left ? "\"relative distance of the weights\"" : "\"\"", steps - 1) +
              twin_label(figure.pairs[0], of_pairs[0], steps) + plot +
              "\n  unset object\n  unset label\n  unset arrow\n";
  }
  std::ranges::sort(drawn);
  const std::string words = fmt::format(
      "Relative distance of the weights of two trainings that differ in one thing only (mean and band of {})",
      counted(seeds.size(), "seed"));
  const std::string body =
      fmt::format("  set label {} at screen 0.5,0.938 center font \",11\" tc rgb \"#444444\" noenhanced\n",
                  gnuplot_string(words)) +
      legend(figure, drawn) +
      fmt::format(
          "  set multiplot layout {},2 margins 0.095,0.975,0.165,0.865 spacing 0.085,0.1 title {} font "
          "\",13\"\n"
          "  set logscale y\n  set format y \"10^{{%T}}\"\n  set yrange [2e-8:1]\n  set ytics 100\n",
          rows, gnuplot_bold(figure.title)) +
      panels + "  unset multiplot\n";
  return draw_pair(folder, "distances", data, gnuplot_script("distances", figure.title, width, height, body));
}

}  // namespace fp16lab::reports
