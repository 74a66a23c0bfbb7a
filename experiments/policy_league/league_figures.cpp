#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>

#include "analysis/comparison.hpp"
#include "experiments/policy_league/league.hpp"
#include "numerics/files/atomic_file.hpp"
#include "reports/figure_style.hpp"
#include "reports/gnuplot.hpp"

namespace fp16lab::experiments {
namespace {

/// Writes a figure's two files and draws it.
std::string draw(const std::filesystem::path& folder, const std::string& stem, const std::string& title,
                 int width, int height, const std::string& data, const std::string& body) {
  write_file_atomically(folder / (stem + ".dat"), data);
  const std::filesystem::path script = folder / (stem + ".gp");
  write_file_atomically(script, reports::gnuplot_script(stem, title, width, height, body));
  return reports::run_gnuplot("gnuplot", script);
}

std::string draw_highest_scales(const League& league, const std::filesystem::path& folder) {
  const std::string stem = "highest-scale", file = "\"highest-scale.dat\"";
  std::string data =
      "# step, log2 of the largest scale without overflow, smallest that loses at most 1 % of L1; a block a "
      "run\n";
  std::string panels;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  int block = 0, shown = 0;
  for (const std::string& workload : league.workloads) {
    std::string plot;
    std::size_t seed = 0;
    for (const AllowedScales& allowed : league.allowed) {
      if (allowed.workload != workload || allowed.band.steps.empty()) continue;
      data += fmt::format("# {} seed {}\n", workload, allowed.seed);
      for (std::size_t i = 0; i < allowed.band.steps.size(); ++i) {
        data += fmt::format("{}\t{}\t{}\n", allowed.band.steps[i], allowed.band.log2_highest[i],
                            allowed.band.log2_one_percent[i]);
        low = std::min(low, allowed.band.log2_highest[i]);
        high = std::max(high, allowed.band.log2_highest[i]);
      }
      data += "\n\n";
      // Seeds mostly agree: each lies narrower on the ones before it, so that all are to be seen.
      const double width = std::max(1.0, 5.4 - 2.2 * static_cast<double>(seed));
      plot +=
          fmt::format("{}{} index {} using 1:2 with fsteps lw {:.1f} lc rgb \"{}\" {}",
                      plot.empty() ? "  plot " : ", \\\n    ", file, block, width, reports::layer_color(seed),
                      shown == 0 ? fmt::format("title \"seed {}\"", allowed.seed) : std::string("notitle"));
      ++block;
      ++seed;
    }
    if (plot.empty()) continue;
    ++shown;
    panels += fmt::format("  set title {} noenhanced\n", reports::gnuplot_string(workload)) + plot + '\n';
  }
  if (block == 0) return {};
  const int columns = std::min(shown, 2), rows = (shown + 1) / 2;
  const std::string body = fmt::format(
                               "  set multiplot layout {},{} title \"Largest power of two without overflow, "
                               "step by step (FP32 runs)\" font "
                               "\",12\"\n  set xlabel \"step\"\n  set ylabel \"log2 of scale\"\n  set yrange "
                               "[{}:{}]\n  set ytics {}\n"
                               "  set key bottom left horizontal\n",
                               rows, columns, low - 2, high + 1, high - low > 8 ? 2 : 1) +
                           panels + "  unset multiplot\n";
  return draw(folder, stem, "Largest scale without overflow", 450 * columns + (columns == 1 ? 150 : 0),
              60 + 280 * rows, data, body);
}

std::string draw_prediction(const League& league, const std::filesystem::path& folder) {
  const std::string stem = "what-predicts-the-loss", file = "\"what-predicts-the-loss.dat\"";
  // A logarithmic axis has no zero: nothing lost is drawn at its left end.
  const double floor = 1e-10;
  const auto percent = [floor](const ReplayInterval& interval) {
    return std::max(floor, 50 * (interval.lower + interval.upper));
  };
  std::string data =
      "# lost values %, lost L1 %, final test loss above FP32 %, log2 of scale; a block a workload\n";
  std::string left, right;
  int block = 0;
  for (const std::string& workload : league.workloads) {
    std::string points;
    for (const FixedScale& fixed : league.fixed) {
      const TrainedRuns& trained = fixed.trained;
      if (fixed.workload != workload || trained.differences.empty() || 10 * trained.skipped >= trained.steps)
        continue;
      const double mean = analysis::quality_of(trained.differences).mean;
      if (std::isfinite(mean))
        points += fmt::format("{}\t{}\t{}\t{}\n", percent(fixed.lost_count), percent(fixed.lost_l1), mean,
                              fixed.log2_scale);
    }
    if (points.empty()) continue;
    data += fmt::format("# {}\n{}\n\n", workload, points);
    const auto curve = [&](int column, bool titled) {
      return fmt::format("{} index {} using {}:3 with linespoints pt {} ps 0.9 lw 1.3 lc rgb \"{}\" {}", file,
                         block, column, 4 + 2 * block, reports::layer_color(static_cast<std::size_t>(block)),
                         titled ? "title " + reports::gnuplot_string(workload) : std::string("notitle"));
    };
    left += (left.empty() ? "  plot " : ", \\\n    ") + curve(1, true);
    right += (right.empty() ? "  plot " : ", \\\n    ") + curve(2, false);
    ++block;
  }
  if (block == 0) return {};
  const std::string body = fmt::format(
      "  set multiplot layout 1,2 title \"Fixed scales: what was lost against what it cost\" font \",12\"\n"
      "  set logscale x\n  set format x \"10^{{%T}}\"\n  set xrange [{}:100]\n"
      "  set ylabel \"final test loss above FP32, %\"\n  set key top left\n"
      "  set xlabel \"share of non-zero gradients that become zero, %\"\n{}\n"
      "  set ylabel \"\"\n  set xlabel \"share of their L1 norm, %\"\n{}\n  unset multiplot\n",
      floor, left, right);
  return draw(folder, stem, "What predicts the loss", 960, 420, data, body);
}

}  // namespace

std::string draw_league(const League& league, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string problem = draw_highest_scales(league, folder);
  return problem.empty() ? draw_prediction(league, folder) : problem;
}

}  // namespace fp16lab::experiments
