#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {

std::string draw_highest_scales(std::span<const std::string> workloads, std::span<const AllowedScaleRow> rows,
                                const std::filesystem::path& folder) {
  const std::string stem = "highest-scale", file = "\"highest-scale.dat\"";
  std::string data =
      "# step, log2 of the largest scale without overflow: smallest, mean and largest over seeds; a block a "
      "workload\n";
  std::string panels;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  int shown = 0;
  for (const std::string& workload : workloads) {
    struct OverSeeds {
      double least, sum, most;
      int seeds;
    };
    std::map<std::uint64_t, OverSeeds> steps;
    std::size_t seeds = 0;
    for (const AllowedScaleRow& allowed : rows) {
      if (allowed.workload != workload || allowed.band.steps.empty()) continue;
      ++seeds;
      for (std::size_t i = 0; i < allowed.band.steps.size(); ++i) {
        const double scale = allowed.band.log2_highest[i];
        OverSeeds& step =
            steps.try_emplace(allowed.band.steps[i], OverSeeds{scale, 0, scale, 0}).first->second;
        step.least = std::min(step.least, scale);
        step.most = std::max(step.most, scale);
        step.sum += scale;
        ++step.seeds;
      }
    }
    if (steps.empty()) continue;
    data += gnuplot_comment(fmt::format("{}, {} seeds", workload, seeds));
    for (const auto& [step, over] : steps) {
      data += fmt::format("{}\t{}\t{:.6g}\t{}\n", step, over.least, over.sum / over.seeds, over.most);
      low = std::min(low, over.least);
      high = std::max(high, over.most);
    }
    data += "\n\n";
    const auto title = [&](std::string_view words) {
      return shown == 0 ? fmt::format("title \"{}\"", words) : std::string("notitle");
    };
    panels += fmt::format(
        "  set title {0} noenhanced\n  plot {1} index {2} using 1:2:4 with filledcurves fs solid 0.22 "
        "noborder lc rgb \"{3}\" {4}, \\\n    {1} index {2} using 1:3 with lines lw 2 lc rgb \"{3}\" {5}\n",
        gnuplot_string(fmt::format("{} ({} seeds)", workload, seeds)), file, shown, layer_color(0),
        title("smallest to largest of the seeds"), title("their mean"));
    ++shown;
  }
  if (shown == 0) return {};
  const int columns = std::min(shown, 2), lines = (shown + 1) / 2;
  const std::string body = fmt::format(
                               "  set multiplot layout {},{} title \"Largest power of two without overflow, "
                               "step by step (FP32 runs)\" font \",12\"\n  set xlabel \"step\"\n  set ylabel "
                               "\"log2 of scale\"\n  set yrange [{}:{}]\n  set ytics {}\n"
                               "  set key bottom left\n",
                               lines, columns, low - 2, high + 1, high - low > 8 ? 2 : 1) +
                           panels + "  unset multiplot\n";
  return draw_pair(folder, stem, data,
                   gnuplot_script(stem, "Largest scale without overflow",
                                  450 * columns + (columns == 1 ? 150 : 0), 60 + 280 * lines, body));
}

std::string draw_prediction(std::span<const std::string> workloads, std::span<const LossCostRow> rows,
                            const std::filesystem::path& folder) {
  const std::string stem = "what-predicts-the-loss", file = "\"what-predicts-the-loss.dat\"";
  // A logarithmic axis has no zero: nothing lost is drawn at its left end.
  const double floor = 1e-10;
  std::string data =
      "# lost values %, lost L1 %, final test loss above FP32 %: mean, 95 % over seeds (lower, upper); log2 "
      "of scale; a block a workload\n";
  std::string left, right;
  int block = 0;
  for (const std::string& workload : workloads) {
    std::string points;
    for (const LossCostRow& row : rows)
      if (row.workload == workload)
        points += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", std::max(floor, row.lost_values),
                              std::max(floor, row.lost_l1), row.excess, row.interval.lower,
                              row.interval.upper, row.log2_scale);
    if (points.empty()) continue;
    data += gnuplot_comment(workload) + points + std::string(block_end);
    const auto curve = [&](int column, bool titled) {
      return fmt::format(
          "{0} index {1} using {2}:3:4:5 with yerrorlines pt {3} ps 0.9 lw 1.3 lc rgb \"{4}\" {5}", file,
          block, column, 4 + 2 * block, layer_color(static_cast<std::size_t>(block)),
          titled ? "title " + gnuplot_string(workload) : std::string("notitle"));
    };
    left += (left.empty() ? "  plot " : ", \\\n    ") + curve(1, true);
    right += (right.empty() ? "  plot " : ", \\\n    ") + curve(2, false);
    ++block;
  }
  if (block == 0) return {};
  const std::string body = fmt::format(
      "  set multiplot layout 1,2 title \"Fixed scales: what was lost against what it cost (bars: 95 % over "
      "seeds)\" font \",12\"\n"
      "  set logscale x\n  set format x \"10^{{%T}}\"\n  set xrange [{}:100]\n"
      "  set ylabel \"final test loss above FP32, %\"\n  set key top left\n"
      "  set xlabel \"share of non-zero gradients that become zero, %\"\n{}\n"
      "  set ylabel \"\"\n  set xlabel \"share of their L1 norm, %\"\n{}\n  unset multiplot\n",
      floor, left, right);
  return draw_pair(folder, stem, data, gnuplot_script(stem, "What predicts the loss", 960, 420, body));
}

}  // namespace fp16lab::reports
