// Figures of training itself: loss curves, final quality, loss-scale traces.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reports/data/series.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/figures.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

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

/// Nearer to one another than half a percent of what the axes show: one line, as drawn. Both axes of the
/// figure show them.
struct LossAxes {
  double low = INFINITY, high = 0;                        ///< of the whole run
  double zoomed_low = INFINITY, zoomed_high = -INFINITY;  ///< of the last third
  double zoomed_from = 0;
  bool logarithmic() const { return low > 0 && high / low > 5; }
};
bool drawn_as_one(const Band& a, const Band& b, const LossAxes& axes) {
  constexpr double line = 0.005;
  if (a.step != b.step) return false;
  for (std::size_t i = 0; i < a.step.size(); ++i) {
    const double whole = axes.logarithmic()
                             ? std::abs(std::log(a.mean[i] / b.mean[i])) / std::log(axes.high / axes.low)
                             : std::abs(a.mean[i] - b.mean[i]) / (axes.high - axes.low);
    const double zoomed = a.step[i] < axes.zoomed_from
                              ? 0
                              : std::abs(a.mean[i] - b.mean[i]) / (axes.zoomed_high - axes.zoomed_low);
    if (whole > line || zoomed > line) return false;
  }
  return true;
}

bool same_path(const ScaleTrace& a, const ScaleTrace& b) {
  const auto same = [](const ScaleTrace::Change& x, const ScaleTrace::Change& y) {
    return x.step == y.step && x.scale == y.scale;
  };
  return std::equal(a.changes.begin(), a.changes.end(), b.changes.begin(), b.changes.end(), same) &&
         std::equal(a.skipped.begin(), a.skipped.end(), b.skipped.begin(), b.skipped.end(), same);
}

/// The key's width and height in pixels.
struct KeySize {
  int width = 0, height = 0;
};
KeySize key_size(const std::vector<std::string>& labels) {
  double longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, text_width(label, 12));
  return {110 + static_cast<int>(longest), 20 * static_cast<int>(labels.size()) + 10};
}

}  // namespace

std::vector<Figure> write_loss_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "loss-" + slug(input.workload.name);
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::string data = "# step\tmean over seeds\tlowest seed\thighest seed; one block a configuration\n";
  std::string bands, lines;
  std::vector<Band> drawn;
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < input.workload.configurations.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    Band band = training_loss(input.set, configuration);
    if (band.step.empty()) continue;
    data += gnuplot_comment(configuration.label);
    for (std::size_t p = 0; p < band.step.size(); ++p)
      data += fmt::format("{}\t{}\t{}\t{}\n", band.step[p], band.mean[p], band.low[p], band.high[p]);
    data += block_end;
    bands += fmt::format(
        "    {}.\".dat\" index {} using 1:3:4 with filledcurves fc rgb \"{}\" fs transparent solid 0.22 "
        "notitle, \\\n",
        gnuplot_string(stem), drawn.size(), styles[i].color);
    labels.push_back(pretty(configuration.label));
    lines += fmt::format("{}    {}.\".dat\" index {} using 1:2 with lines {} title {}",
                         lines.empty() ? "" : ", \\\n", gnuplot_string(stem), drawn.size(),
                         line_spec(styles[i]), gnuplot_string(labels.back()));
    drawn.push_back(std::move(band));
  }
  if (drawn.empty()) return {};
  LossAxes axes;
  double last = 0;
  for (const Band& band : drawn) last = std::max(last, band.step.back());
  axes.zoomed_from = 2.0 / 3.0 * last;
  for (const Band& band : drawn)
    for (std::size_t p = 0; p < band.step.size(); ++p) {
      axes.low = std::min(axes.low, band.low[p]);
      axes.high = std::max(axes.high, band.high[p]);
      if (band.step[p] < axes.zoomed_from) continue;
      axes.zoomed_low = std::min(axes.zoomed_low, band.low[p]);
      axes.zoomed_high = std::max(axes.zoomed_high, band.high[p]);
    }
  // The panels keep their size; a key of long or many labels makes the figure wider or taller.
  const KeySize key = key_size(labels);
  const int panels = 909, width = panels + std::max(241, key.width + 24);
  const FigureNote note(coinciding_words(coinciding(drawn.size(),
                                                    [&](std::size_t a, std::size_t b) {
                                                      return drawn_as_one(drawn[a], drawn[b], axes);
                                                    }),
                                         labels),
                        width);
  const std::string text = fmt::format("Training loss, {}: mean over seeds, band from lowest to highest seed",
                                       input.workload.name);
  const FigureTitle title = figure_title(text, width);
  const int above = 64 + title.extra_height, below = 64 + note.height(),
            height = above + below + std::max(332, key.height);
  const std::string plot = "  plot \\\n" + bands + lines + "\n";
  std::string body = fmt::format(
      "  set multiplot layout 1,2 title {} noenhanced font \",14\" margins {:.4f},{:.4f},{:.4f},{:.4f} "
      "spacing {:.4f}\n",
      title.quoted, 86.0 / width, static_cast<double>(panels) / width, static_cast<double>(below) / height,
      1 - static_cast<double>(above) / height, 104.0 / width);
  body += note.commands(height);
  body += "  set xlabel \"step\"\n  set key off\n  set title \"whole run\"\n";
  if (axes.logarithmic())
    body += fmt::format("  set logscale y\n  set yrange [{:.4g}:{:.4g}]\n  set ytics ({})\n", 0.9 * axes.low,
                        1.1 * axes.high, logarithmic_tics(0.9 * axes.low, 1.1 * axes.high));
  body += "  set ylabel \"training loss\"\n" + plot;
  body +=
      "  unset label 900\n  unset logscale y\n  set yrange [*:*]\n  set ytics autofreq\n  set ylabel \"\"\n"
      "  set title \"last third, linear axis\"\n";
  body += fmt::format(
      "  set key at screen 0.99,screen {:.4f} right top Left reverse samplen 4 spacing 1.3 maxrows {}\n",
      1 - (above + 4.0) / height, labels.size());
  body += fmt::format("  set xrange [{}:{}]\n", axes.zoomed_from, last);
  body += plot + "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

std::vector<Figure> write_scale_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  const std::string stem = "loss-scale-" + slug(input.workload.name);
  const std::vector<LineStyle> styles = styles_of(input.workload);
  std::string data = "# step\tloss scale; two blocks a configuration: changes, then skipped steps\n", plot;
  std::vector<ScaleTrace> traces;
  std::vector<std::size_t> shown;  // configurations of the traces
  std::vector<std::string> labels;
  double low = INFINITY, high = 0;
  for (std::size_t i = 0; i < input.workload.configurations.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    if (configuration.id.fp32) continue;
    ScaleTrace trace = scale_trace(input.set.runs[configuration.runs.front()].folder.steps);
    if (trace.changes.empty()) continue;
    for (const auto& change : trace.changes) {
      low = std::min(low, change.scale);
      high = std::max(high, change.scale);
    }
    traces.push_back(std::move(trace));
    shown.push_back(i);
    labels.push_back(pretty(configuration.label));
  }
  if (traces.empty()) return {};
  // Policies that did the same are one line, whose label counts them.
  const auto groups = coinciding(
      traces.size(), [&](std::size_t a, std::size_t b) { return same_path(traces[a], traces[b]); });
  std::vector<std::string> key;
  bool any_skip = false;
  int block = 0;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    std::string label = labels[t];
    bool first = true;
    for (const std::vector<std::size_t>& group : groups) {
      if (std::find(group.begin(), group.end(), t) == group.end()) continue;
      first = group.front() == t;
      label += fmt::format(" = {} other{}", group.size() - 1, group.size() == 2 ? "" : "s");
    }
    if (!first) continue;
    data += gnuplot_comment(input.workload.configurations[shown[t]].label);
    for (const auto& change : traces[t].changes) data += fmt::format("{}\t{}\n", change.step, change.scale);
    data += block_end;
    for (const auto& skip : traces[t].skipped) data += fmt::format("{}\t{}\n", skip.step, skip.scale);
    if (traces[t].skipped.empty()) data += "nan\tnan\n";
    data += block_end;
    plot += fmt::format("    {}.\".dat\" index {} using 1:2 with steps {} title {}, \\\n",
                        gnuplot_string(stem), block, line_spec(styles[shown[t]]), gnuplot_string(label));
    key.push_back(std::move(label));
    if (!traces[t].skipped.empty()) {
      plot += fmt::format(
          "    {}.\".dat\" index {} using 1:2 with points pt 2 ps 1.2 lw 2 lc rgb \"{}\" {}, \\\n",
          gnuplot_string(stem), block + 1, lost_color, any_skip ? "notitle" : "title \"skipped step\"");
      if (!any_skip) key.emplace_back("skipped step");
      any_skip = true;
    }
    block += 2;
  }
  plot.resize(plot.size() - std::string_view(", \\\n").size());
  const KeySize size = key_size(key);
  const int width = 780 + std::max(220, size.width);
  const FigureNote note(coinciding_words(groups, labels), width);
  const std::string text = fmt::format("Loss scale, {}: first seed{}", input.workload.name,
                                       any_skip ? ", skipped steps crossed" : ", no step was skipped");
  const FigureTitle title = figure_title(text, width);
  const int above = 44 + title.extra_height, below = 62 + note.height(),
            height = above + below + std::max(314, size.height);
  std::string body = title.commands(height);
  body += fmt::format(
      "  set key at screen 0.99,screen {:.4f} right top Left reverse samplen 4 spacing 1.3 maxrows {}\n",
      1 - (above + 2.0) / height, key.size());
  body += fmt::format(
      "  set lmargin at screen {:.4f}\n  set rmargin at screen {:.4f}\n  set bmargin at screen {:.4f}\n"
      "  set tmargin at screen {:.4f}\n",
      78.0 / width, 1 - static_cast<double>(std::max(220, size.width)) / width,
      static_cast<double>(below) / height, 1 - static_cast<double>(above) / height);
  body += note.commands(height);
  body +=
      "  set xlabel \"step\"\n  set ylabel \"loss scale\"\n  set logscale y 2\n  set format y \"2^{%L}\"\n";
  body += fmt::format("  set yrange [{}:{}]\n", low / 2, high * 2);
  body += "  plot \\\n" + plot + "\n";
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

}  // namespace fp16lab::reports
