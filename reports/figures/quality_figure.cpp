// Final quality, seed by seed: differences to FP32 where there is one.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reports/figures/figure_style.hpp"
#include "reports/figures/figures.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// One configuration's place in the figure of final quality.
struct QualityColumn {
  std::string label{}, color{};
  std::vector<double> values{};  ///< of its seeds
  double mean = NAN;
  std::optional<analysis::Interval> interval{};
  int diverged = 0, seeds = 0;
};

/// The differences to FP32 where there is a finished FP32 run, else the final values themselves.
std::vector<QualityColumn> quality_columns(const WorkloadFigures& input, const SummaryRow* reference) {
  const Metric& metric = input.summary.metric;
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::vector<QualityColumn> columns;
  for (std::size_t i = 0; i < input.summary.rows.size(); ++i) {
    const SummaryRow& row = input.summary.rows[i];
    if (row.final_values.empty() || &row == reference) continue;
    // FP32's pale grey is for broad lines; dots need more contrast.
    QualityColumn column{.label = pretty(row.label),
                         .color = row.is_reference ? "0x555555" : "0x" + styles[i].color.substr(1)};
    if (reference != nullptr) {
      const analysis::PairedSample pairs = pairs_of(metric, row, *reference);
      column.values = pairs.differences;
      if (pairs.is_of_losses)
        for (double& value : column.values) value = analysis::percent_of(value);
      column.interval = row.against_reference->interval;
      column.diverged = row.against_reference->diverged;
      column.seeds = column.diverged + row.against_reference->pairs;
    } else {
      for (const double value : row.final_values)
        if (std::isfinite(value)) column.values.push_back(metric.higher_is_better() ? 100 * value : value);
      column.seeds = static_cast<int>(row.final_values.size());
      column.diverged = column.seeds - static_cast<int>(column.values.size());
    }
    // Of percents the table's mean: that of the ratios' logarithms, which is tested.
    column.mean =
        reference != nullptr ? row.against_reference->mean : analysis::quality_of(column.values).mean;
    columns.push_back(std::move(column));
  }
  return columns;
}

}  // namespace

std::vector<Figure> write_quality_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "quality-" + slug(input.workload.name);
  const WorkloadSummary& summary = input.summary;
  const Metric& metric = summary.metric;
  const auto found = std::find_if(summary.rows.begin(), summary.rows.end(), [](const SummaryRow& row) {
    return row.is_reference &&
           analysis::quality_of(row.final_values).non_finite < static_cast<int>(row.final_values.size());
  });
  const SummaryRow* reference = found == summary.rows.end() ? nullptr : &*found;
  const std::vector<QualityColumn> columns = quality_columns(input, reference);

  std::string data =
      "# position\tvalue of one seed (block 0), mean (block 1), ends of the 95 % interval (block "
      "2), margin (block 3)\tcolour\n";
  std::string means, intervals = "nan\tnan\tnan\t0x000000\n", tics;
  double low = reference != nullptr ? -metric.margin : INFINITY,
         high = reference != nullptr ? metric.margin : -INFINITY;
  const auto reach = [&](double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  };
  std::size_t shown = 0;
  double longest = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const QualityColumn& column = columns[c];
    for (const double value : column.values) {
      data += fmt::format("{}\t{}\t{}\n", c + 1, value, column.color);
      reach(value);
    }
    if (!column.values.empty()) means += fmt::format("{}\t{}\t{}\n", c + 1, column.mean, column.color);
    if (column.interval) {
      intervals += fmt::format("{}\t{}\t{}\t{}\n", c + 1, column.interval->lower, column.interval->upper,
                               column.color);
      reach(column.interval->lower);
      reach(column.interval->upper);
    }
    shown += column.values.size();
    longest = std::max(longest, text_width(column.label, 12));
    tics += fmt::format("{}{} {}", tics.empty() ? "" : ", ", gnuplot_tic(column.label), c + 1);
  }
  if (shown == 0) return {};
  data += std::string(block_end) + means + std::string(block_end) + intervals;
  // The margin: lines, because gnuplot 5.4 draws dashed arrows solid in SVG.
  const double last = static_cast<double>(columns.size()) + 0.6;
  if (reference != nullptr)
    data += fmt::format("{0}0.4\t{1}\n{2}\t{1}\n\n0.4\t-{1}\n{2}\t-{1}\n", block_end, metric.margin, last);

  const std::string text =
      reference != nullptr
          ? fmt::format("Against FP32 at the end of training: {}, {}", metric.name, input.workload.name)
          : fmt::format("At the end of training: {}, {}", metric.name, input.workload.name);
  // Many or long names would lie on one another below the axis.
  constexpr std::size_t most_upright = 8;
  constexpr double longest_upright = 150;
  const bool lying = columns.size() > most_upright || longest > longest_upright;
  const int names = static_cast<int>(longest) + 24;
  const int width = lying ? names + 620 : 860;
  std::string explained = "One dot a seed, bar at the mean";
  if (reference != nullptr && !metric.higher_is_better()) explained += " (geometric, of the ratios)";
  explained += reference == nullptr ? "." : ", line: 95 % of pairs, unadjusted.";
  if (reference != nullptr) {
    explained += fmt::format(" Dashed: the margin, {}; equal needs the line of 90 % inside.",
                             analysis::with_unit(metric.margin, metric.unit()));
    if (summary.twin_band) {
      explained += " Grey: where one more FP32 run whose weights were moved by one ulp ends (95 %).";
      reach(summary.twin_band->lower);
      reach(summary.twin_band->upper);
    }
  }
  const double room = 0.06 * (high > low ? high - low : std::max(std::abs(high), 1e-6));
  const FigureTitle title = figure_title(text, width);
  const FigureNote note(explained, width);
  const int above = 44 + title.extra_height, below = (lying ? 66 : 96) + note.height();
  const int height = above + below + (lying ? 40 + 21 * static_cast<int>(columns.size()) : 320);
  std::string body = title.commands(height) + note.commands(height) + "  set key off\n";
  body += fmt::format("  set tmargin at screen {:.4f}\n  set bmargin at screen {:.4f}\n",
                      1 - static_cast<double>(above) / height, static_cast<double>(below) / height);
  const std::string axis =
      gnuplot_string(reference != nullptr ? fmt::format("difference to FP32 ({}), {} is worse", metric.unit(),
                                                        metric.higher_is_better() ? "below 0" : "above 0")
                                          : metric.name + (metric.higher_is_better() ? " (%)" : ""));
  if (lying) {
    body += fmt::format(
        "  set xlabel {} noenhanced\n  set xrange [{}:{}]\n  set yrange [{}:0.4]\n  set ytics noenhanced "
        "({})\n"
        "  set grid xtics ytics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n  set lmargin at screen {:.4f}\n  set "
        "rmargin 10\n",
        axis, low - room, high + room, last, tics, static_cast<double>(names) / width);
  } else {
    body += fmt::format("  set ylabel {} noenhanced\n  set yrange [{}:{}]\n  set xrange [0.4:{}]\n", axis,
                        low - room, high + room, last);
    body += fmt::format("  set xtics noenhanced rotate by -25 ({})\n  set rmargin 12\n", tics);
  }
  const auto at = [lying](double value, int end) {
    return lying ? fmt::format("first {},graph {}", value, end)
                 : fmt::format("graph {},first {}", end, value);
  };
  if (reference != nullptr) {
    if (summary.twin_band)
      body +=
          fmt::format("  set object 1 rectangle from {} to {} behind fc rgb \"#E4E4E4\" fs solid noborder\n",
                      at(summary.twin_band->lower, 0), at(summary.twin_band->upper, 1));
    body += fmt::format("  set arrow 1 from {} to {} nohead back lc rgb \"#777777\"\n", at(0, 0), at(0, 1));
    if (!lying) body += "  set label 1 \"FP32\" at graph 1.01,first 0 left tc rgb \"#555555\"\n";
  }
  for (std::size_t c = 0; c < columns.size(); ++c)
    if (const QualityColumn& column = columns[c]; column.diverged > 0)
      body += fmt::format(
          "  set label \"{} diverged\" at {} tc rgb \"{}\"\n",
          column.diverged == column.seeds ? "all" : fmt::format("{} of {}", column.diverged, column.seeds),
          lying ? fmt::format("graph 0.98,first {} right", c + 1)
                : fmt::format("{},graph 0.96 center", c + 1),
          lost_color);
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  const auto half_bar = [&](std::string_view length) {
    return fmt::format("{} index 1 using {}:3 with vectors nohead lw 4 lc rgb variable", file,
                       lying ? fmt::format("2:1:(0):({})", length) : fmt::format("1:2:({}):(0)", length));
  };
  const std::string margin =
      reference == nullptr
          ? ""
          : fmt::format("{} index 3 using {} with lines lw 0.8 dt (3,4) lc rgb \"#777777\", \\\n    ", file,
                        lying ? "2:1" : "1:2");
  body += fmt::format(
      "  plot {}{}, \\\n    {}, \\\n    {} index 2 using {}:4 with vectors nohead lw 1.5 lc rgb variable, "
      "\\\n"
      "    {} index 0 using {}:3 with points pt 7 ps {} lc rgb variable\n",
      margin, half_bar("0.28"), half_bar("-0.28"), file, lying ? "2:1:($3-$2):(0)" : "1:2:(0):($3-$2)", file,
      lying ? "2:1" : "1:2", lying ? "0.8" : "1.1");
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

}  // namespace fp16lab::reports
