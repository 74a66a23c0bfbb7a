#include "reports/figures/comparison_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view stem = "compare";
constexpr std::string_view color_a = "#555555";  // broad, under the other one
constexpr std::string_view color_b = normal_color;

/// gnuplot reads "nan" as a gap; logarithms want numbers above zero.
std::string cell(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "nan"; }
std::string positive(double value) {
  return std::isfinite(value) && value > 0 ? fmt::format("{}", value) : "nan";
}

/// Columns: step, loss A and B, |loss difference|, relative difference of grad_norm, scale A and B.
std::string data_of(const analysis::StepsComparison& steps) {
  std::string data =
      "# step\tloss A\tloss B\t|loss difference|\trelative grad_norm difference\tscale A\tscale B\n";
  for (const auto& [a, b] : steps.common)
    data += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", a.step, cell(a.loss), cell(b.loss),
                        positive(std::fabs(a.loss - b.loss)),
                        positive(analysis::relative_difference(a.grad_norm, b.grad_norm)),
                        positive(a.loss_scale), positive(b.loss_scale));
  return data;
}

std::string name_of(char which, const std::string& path) {
  return fmt::format("{}: {}", which, std::filesystem::path(path).filename().string());
}

/// A vertical line where the states part.
std::string parting_mark(const analysis::StepsComparison& steps) {
  if (!steps.first_state_difference) return {};
  return fmt::format("  set arrow 1 from {0},graph 0 to {0},graph 1 nohead dt (6,4) lw 1.4 lc rgb \"{1}\"\n",
                     *steps.first_state_difference, overflow_color);
}

std::string growth_curve(const std::optional<analysis::ErrorGrowth>& growth) {
  if (!growth || !growth->doubling_steps()) return {};
  return fmt::format(
      ", \\\n    [{0}:{1}] 10**({2} + {3} * (x - {0})) with lines lw 1.6 dt (3,3) lc rgb \"black\" title {4}",
      growth->first_step, growth->last_step, growth->log10_at_first, growth->log10_per_step,
      gnuplot_string(fmt::format("doubles every {:.3g} steps", *growth->doubling_steps())));
}

std::string differences_panel(const analysis::StepsComparison& steps, const std::string& file) {
  std::string body = "  set ylabel \"difference\"\n";
  if (steps.column("loss").differing + steps.column("grad_norm").differing == 0)
    return body +
           "  set label 1 \"losses and gradient norms are equal in every step\" at graph 0.5,0.5 center\n"
           "  set yrange [0:1]\n  set format y \"\"\n  plot NaN notitle\n  unset label 1\n  set format y "
           "\"%g\"\n  set yrange [*:*]\n";
  body += "  set logscale y\n  set format y \"10^{%L}\"\n";
  body += fmt::format(
      "  plot {0} using 1:4 with points pt 7 ps 0.45 lc rgb \"{1}\" title \"|loss A - loss B|\", \\\n"
      "    {0} using 1:5 with points pt 6 ps 0.45 lc rgb \"{2}\" title \"grad\\\\_norm, relative\"{3}\n"
      "  unset logscale y\n  set format y \"%g\"\n",
      file, lost_color, subnormal_color, growth_curve(steps.growth));
  return body;
}

}  // namespace

std::string draw_comparison(const analysis::RunComparison& comparison, const std::filesystem::path& folder,
                            const std::string& gnuplot) {
  const analysis::StepsComparison& steps = comparison.steps;
  if (steps.common.empty()) return "no step that both runs have: no figure";
  const std::string file = gnuplot_string(std::string(stem) + ".dat");
  const std::uint64_t first = steps.common.front().a.step, last = steps.common.back().a.step;
  const std::string parting = steps.first_state_difference
                                  ? fmt::format("states part at step {}", *steps.first_state_difference)
                                  : std::string("states are the same in every step");
  constexpr int width = 1000, key_width = 420;
  const FigureTitle title =
      figure_title(fmt::format("{} and {}: {} steps of both runs, {}", name_of('A', comparison.name_a),
                               name_of('B', comparison.name_b), steps.common.size(), parting),
                   width);
  const int height = 820 + title.extra_height;
  // The key of a panel has room for two names.
  const auto key_name = [&](char which, const std::string& path) {
    return gnuplot_string(shortened(name_of(which, path), key_width, 12));
  };
  const std::string title_a = key_name('A', comparison.name_a), title_b = key_name('B', comparison.name_b);
  std::string body = fmt::format(
      "  set multiplot layout 3,1 title {3} noenhanced font \",14\" margins 0.09,0.98,0.08,{2:.4f} spacing "
      "0,0.09\n"
      "  set xrange [{0}:{1}]\n"
      "  set key at graph 1,1.02 right bottom horizontal samplen 3\n",
      first, last > first ? last : first + 1, 1 - (68.0 + title.extra_height) / height, title.quoted);
  body += parting_mark(steps);
  body += fmt::format(
      "  set ylabel \"loss\"\n"
      "  plot {0} using 1:2 with lines lw 4 lc rgb \"{1}\" title {2}, \\\n"
      "    {0} using 1:3 with lines lw 1.6 lc rgb \"{3}\" title {4}\n",
      file, color_a, title_a, color_b, title_b);
  body += "  set key enhanced\n" + differences_panel(steps, file) + "  set key noenhanced\n";
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const auto& [a, b] : steps.common)
    for (const double scale : {a.loss_scale, b.loss_scale}) {
      low = std::min(low, scale);
      high = std::max(high, scale);
    }
  body += fmt::format(
      "  set ylabel \"loss scale\"\n  set xlabel \"step\"\n  set logscale y 2\n  set format y \"2^{{%L}}\"\n"
      "  set yrange [{5}:{6}]\n"
      "  plot {0} using 1:6 with steps lw 4 lc rgb \"{1}\" title {2}, \\\n"
      "    {0} using 1:7 with steps lw 1.6 lc rgb \"{3}\" title {4}\n"
      "  unset multiplot\n",
      file, color_a, title_a, color_b, title_b, low / 2, high * 2);
  return draw_pair(folder, std::string(stem), data_of(steps),
                   gnuplot_script(stem, "Two runs compared", width, height, body), gnuplot);
}

}  // namespace fp16lab::reports
