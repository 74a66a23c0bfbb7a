// Figures of training itself: loss curves, final quality, loss-scale traces.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "numerics/files/atomic_file.hpp"
#include "reports/figure_style.hpp"
#include "reports/figures.hpp"
#include "reports/gnuplot.hpp"
#include "reports/series.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view block_end = "\n\n";

void write_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                const std::string& script) {
  write_file_atomically(folder / (stem + ".dat"), data);
  write_file_atomically(folder / (stem + ".gp"), script);
}

/// Round values between `low` and `high` for a logarithmic axis that spans less than gnuplot's powers of ten
/// are made for: the more decades, the fewer in each.
std::string logarithmic_tics(double low, double high) {
  using Digits = std::vector<double>;
  const Digits digits = high / low > 1000 ? Digits{1}
                        : high / low > 30 ? Digits{1, 2, 5}
                                          : Digits{1, 1.5, 2, 3, 4, 5, 7};
  std::string tics;
  for (int decade = -12; decade <= 12; ++decade)
    for (const double digit : digits)
      if (const double at = digit * std::pow(10.0, decade); at >= low && at <= high)
        tics += fmt::format("{}{:.3g}", tics.empty() ? "" : ", ", at);
  return tics;
}

}  // namespace

std::vector<Figure> write_loss_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "loss-" + slug(input.workload.name);
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::string data = "# step\tmean over seeds\tlowest seed\thighest seed; one block a configuration\n";
  std::string bands, lines;
  double last = 0, low = INFINITY, high = 0;
  std::size_t longest_label = 0;
  int block = 0;
  for (std::size_t i = 0; i < input.workload.configurations.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    const Band band = training_loss(input.set, configuration);
    if (band.step.empty()) continue;
    data += fmt::format("# {}\n", configuration.label);
    for (std::size_t p = 0; p < band.step.size(); ++p) {
      data += fmt::format("{}\t{}\t{}\t{}\n", band.step[p], band.mean[p], band.low[p], band.high[p]);
      low = std::min(low, band.low[p]);
      high = std::max(high, band.high[p]);
    }
    data += block_end;
    last = std::max(last, band.step.back());
    longest_label = std::max(longest_label, configuration.label.size());
    bands += fmt::format(
        "    {}.\".dat\" index {} using 1:3:4 with filledcurves fc rgb \"{}\" fs transparent solid 0.22 "
        "notitle, \\\n",
        gnuplot_string(stem), block, styles[i].color);
    lines += fmt::format("{}    {}.\".dat\" index {} using 1:2 with lines {} title {}",
                         lines.empty() ? "" : ", \\\n", gnuplot_string(stem), block, line_spec(styles[i]),
                         gnuplot_string(pretty(configuration.label)));
    ++block;
  }
  if (block == 0) return {};
  std::string title = "Training loss, " + input.workload.name;
  const std::string_view explanation = ": mean over seeds, band from lowest to highest seed";
  if (title.size() + explanation.size() <= 130) title += explanation;
  // The panels keep their size; a key of long labels makes the figure wider.
  const int panels = 909, width = panels + std::max(241, 140 + 8 * static_cast<int>(longest_label));
  const std::string plot = "  plot \\\n" + bands + lines + "\n";
  const bool logarithmic = low > 0 && high / low > 5;
  std::string body = fmt::format(
      "  set multiplot layout 1,2 title {} noenhanced font \",14\" margins {:.4f},{:.4f},0.14,0.86 spacing "
      "{:.4f}\n",
      gnuplot_string(title), 86.0 / width, static_cast<double>(panels) / width, 104.0 / width);
  body += "  set xlabel \"step\"\n  set key off\n  set title \"whole run\"\n";
  if (logarithmic)
    body += fmt::format("  set logscale y\n  set yrange [{:.4g}:{:.4g}]\n  set ytics ({})\n", 0.9 * low,
                        1.1 * high, logarithmic_tics(0.9 * low, 1.1 * high));
  body += "  set ylabel \"training loss\"\n" + plot;
  body +=
      "  unset logscale y\n  set yrange [*:*]\n  set ytics autofreq\n  set ylabel \"\"\n  set title \"last "
      "third, linear axis\"\n";
  body += "  set key at screen 0.99,0.84 right top Left reverse samplen 4 spacing 1.3\n";
  body += fmt::format("  set xrange [{}:{}]\n", 2.0 / 3.0 * last, last);
  body += plot + "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, title, width, 460, body));
  return {{stem, input.workload.name, title}};
}

std::vector<Figure> write_quality_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "quality-" + slug(input.workload.name);
  const Metric& metric = input.summary.metric;
  const double factor = metric.better == analysis::Better::higher ? 100 : 1;  // accuracies in percent
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::string data = "# position\tvalue of one seed (block 0), mean (block 1)\tcolour\n", means, tics;
  std::vector<std::pair<int, std::string>> diverged_at;
  const analysis::Quality* base = nullptr;
  analysis::Quality reference;
  int position = 0, shown = 0;
  for (std::size_t i = 0; i < input.summary.rows.size(); ++i) {
    const SummaryRow& row = input.summary.rows[i];
    if (row.final_values.empty()) continue;
    ++position;
    const analysis::Quality quality = analysis::quality_of(row.final_values);
    if (row.is_reference && quality.non_finite < quality.seeds) {
      reference = quality;
      base = &reference;
    }
    // FP32's pale grey is for broad lines; dots need more contrast.
    const std::string color = row.is_reference ? "0x555555" : "0x" + styles[i].color.substr(1);
    for (const double value : row.final_values)
      if (std::isfinite(value)) {
        data += fmt::format("{}\t{}\t{}\n", position, factor * value, color);
        ++shown;
      }
    if (std::isfinite(quality.mean))
      means += fmt::format("{}\t{}\t{}\n", position, factor * quality.mean, color);
    if (quality.non_finite > 0)
      diverged_at.emplace_back(position, quality.non_finite == quality.seeds
                                             ? "all"
                                             : fmt::format("{} of {}", quality.non_finite, quality.seeds));
    tics += fmt::format("{}{} {}", tics.empty() ? "" : ", ", gnuplot_string(pretty(row.label)), position);
  }
  if (shown == 0) return {};
  data += std::string(block_end) + means;
  const std::string title =
      fmt::format("Final {}, {}: one dot a seed, bar at the mean", metric.name, input.workload.name);
  constexpr int most_upright = 8;  // names of more would lie on one another below the axis
  const bool lying = position > most_upright;
  std::string body =
      fmt::format("  set title {} noenhanced font \",14\"\n  set key off\n", gnuplot_string(title));
  const std::string axis = gnuplot_string(metric.name + (factor == 100 ? " (%)" : ""));
  if (lying) {
    body += fmt::format(
        "  set xlabel {}\n  set yrange [{}:0.4]\n  set offsets graph 0.04,graph 0.04,0,0\n  set ytics "
        "noenhanced ({})\n"
        "  set grid xtics ytics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n  set lmargin 30\n  set rmargin 10\n",
        axis, position + 0.6, tics);
  } else {
    body += fmt::format("  set ylabel {}\n  set xrange [0.4:{}]\n  set offsets 0,0,graph 0.08,graph 0.08\n",
                        axis, position + 0.6);
    body +=
        fmt::format("  set xtics noenhanced rotate by -25 ({})\n  set rmargin 12\n  set bmargin 6\n", tics);
  }
  if (base != nullptr) {
    const auto at = [lying](double value, int end) {
      return lying ? fmt::format("first {},graph {}", value, end)
                   : fmt::format("graph {},first {}", end, value);
    };
    body += fmt::format(
        "  set object 1 rectangle from {} to {} behind fc rgb \"#E4E4E4\" fs solid noborder\n"
        "  set arrow 1 from {} to {} nohead back lc rgb \"#777777\" dt 2\n",
        at(factor * base->minimum, 0), at(factor * base->maximum, 1), at(factor * base->mean, 0),
        at(factor * base->mean, 1));
    if (!lying)
      body += fmt::format(
          "  set label 1 \"FP32 mean\\nand seeds\" at graph 1.01,first {} left tc rgb \"#555555\"\n",
          factor * base->mean);
  }
  for (const auto& [place, seeds] : diverged_at)
    body += fmt::format(
        "  set label \"{} diverged\" at {} tc rgb \"{}\"\n", seeds,
        lying ? fmt::format("graph 0.98,first {} right", place) : fmt::format("{},graph 0.96 center", place),
        lost_color);
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  const auto half_bar = [&](std::string_view length) {
    return fmt::format("{} index 1 using {}:3 with vectors nohead lw 4 lc rgb variable", file,
                       lying ? fmt::format("2:1:(0):({})", length) : fmt::format("1:2:({}):(0)", length));
  };
  body += fmt::format(
      "  plot {}, \\\n    {}, \\\n    {} index 0 using {}:3 with points pt 7 ps {} lc rgb variable\n",
      half_bar("0.28"), half_bar("-0.28"), file, lying ? "2:1" : "1:2", lying ? "0.8" : "1.1");
  write_pair(folder, stem, data, gnuplot_script(stem, title, 860, lying ? 130 + 21 * position : 460, body));
  return {{stem, input.workload.name, title}};
}

std::vector<Figure> write_scale_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "loss-scale-" + slug(input.workload.name);
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::string data = "# step\tloss scale; two blocks a configuration: changes, then skipped steps\n", plot;
  int block = 0;
  bool any_skip = false;
  double low = INFINITY, high = 0;
  for (std::size_t i = 0; i < input.workload.configurations.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    if (configuration.id.precision == Precision::fp32) continue;
    const ScaleTrace trace = scale_trace(input.set.runs[configuration.runs.front()].folder.steps);
    if (trace.changes.empty()) continue;
    // A path that moves is easier to follow unbroken.
    const LineStyle style = trace.changes.size() > 2 ? LineStyle{styles[i].color, 2.4} : styles[i];
    data += fmt::format("# {}\n", configuration.label);
    for (const auto& change : trace.changes) {
      data += fmt::format("{}\t{}\n", change.step, change.scale);
      low = std::min(low, change.scale);
      high = std::max(high, change.scale);
    }
    data += block_end;
    for (const auto& skip : trace.skipped) data += fmt::format("{}\t{}\n", skip.step, skip.scale);
    if (trace.skipped.empty()) data += "nan\tnan\n";
    data += block_end;
    plot +=
        fmt::format("    {}.\".dat\" index {} using 1:2 with steps {} title {}, \\\n", gnuplot_string(stem),
                    block, line_spec(style), gnuplot_string(pretty(configuration.label)));
    if (!trace.skipped.empty()) {
      plot += fmt::format(
          "    {}.\".dat\" index {} using 1:2 with points pt 2 ps 1.2 lw 2 lc rgb \"{}\" {}, \\\n",
          gnuplot_string(stem), block + 1, lost_color, any_skip ? "notitle" : "title \"skipped step\"");
      any_skip = true;
    }
    block += 2;
  }
  if (block == 0) return {};
  const std::string title = fmt::format("Loss scale, {}: first seed{}", input.workload.name,
                                        any_skip ? ", skipped steps crossed" : ", no step was skipped");
  std::string body = fmt::format("  set title {} noenhanced font \",14\"\n", gnuplot_string(title));
  body += "  set key outside right top Left reverse samplen 4 spacing 1.3\n";
  body +=
      "  set xlabel \"step\"\n  set ylabel \"loss scale\"\n  set logscale y 2\n  set format y \"2^{%L}\"\n";
  body += fmt::format("  set yrange [{}:{}]\n", low / 2, high * 2);
  plot.resize(plot.size() - std::string_view(", \\\n").size());
  body += "  plot \\\n" + plot + "\n";
  write_pair(folder, stem, data, gnuplot_script(stem, title, 1000, 420, body));
  return {{stem, input.workload.name, title}};
}

}  // namespace fp16lab::reports
