#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <system_error>

#include "analysis/paired_verdict.hpp"
#include "experiments/policy_league/league.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"

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
      "# step, log2 of the largest scale without overflow: smallest, mean and largest over seeds; a block a "
      "workload\n";
  std::string panels;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  int shown = 0;
  for (const std::string& workload : league.workloads) {
    struct OverSeeds {
      double least, sum, most;
      int seeds;
    };
    std::map<std::uint64_t, OverSeeds> steps;
    std::size_t seeds = 0;
    for (const AllowedScales& allowed : league.allowed) {
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
    data += fmt::format("# {}, {} seeds\n", workload, seeds);
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
        "noborder lc rgb "
        "\"{3}\" {4}, \\\n    {1} index {2} using 1:3 with lines lw 2 lc rgb \"{3}\" {5}\n",
        reports::gnuplot_string(fmt::format("{} ({} seeds)", workload, seeds)), file, shown,
        reports::layer_color(0), title("smallest to largest of the seeds"), title("their mean"));
    ++shown;
  }
  if (shown == 0) return {};
  const int columns = std::min(shown, 2), rows = (shown + 1) / 2;
  const std::string body = fmt::format(
                               "  set multiplot layout {},{} title \"Largest power of two without overflow, "
                               "step by step (FP32 runs)\" font "
                               "\",12\"\n  set xlabel \"step\"\n  set ylabel \"log2 of scale\"\n  set yrange "
                               "[{}:{}]\n  set ytics {}\n"
                               "  set key bottom left\n",
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
      "# lost values %, lost L1 %, final test loss above FP32 %: mean, 95 % over seeds (lower, upper); log2 "
      "of scale; a "
      "block a workload\n";
  std::string left, right;
  int block = 0;
  for (const std::string& workload : league.workloads) {
    std::string points;
    for (const FixedScale& fixed : league.fixed) {
      if (fixed.workload != workload || !fixed.excess() || fixed.overflows()) continue;
      // Without an interval (fewer than two seeds) the bar has no length.
      const analysis::Interval interval = analysis::mean_interval(fixed.differences)
                                              .value_or(analysis::Interval{*fixed.excess(), *fixed.excess()});
      points += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", percent(fixed.lost_count), percent(fixed.lost_l1),
                            *fixed.excess(), interval.lower, interval.upper, fixed.log2_scale);
    }
    if (points.empty()) continue;
    data += fmt::format("# {}\n{}\n\n", workload, points);
    const auto curve = [&](int column, bool titled) {
      return fmt::format(
          "{0} index {1} using {2}:3:4:5 with yerrorlines pt {3} ps 0.9 lw 1.3 lc rgb \"{4}\" {5}", file,
          block, column, 4 + 2 * block, reports::layer_color(static_cast<std::size_t>(block)),
          titled ? "title " + reports::gnuplot_string(workload) : std::string("notitle"));
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
