#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "experiments/app/replay/replay_output.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::string_view stem = "replay";
constexpr int columns = 4;
constexpr int panel_width = 270, panel_height = 192, legend_height = 66;
constexpr std::size_t points = 300;  ///< across a panel: more would lie on one pixel

/// Policies that did the same.
struct Panel {
  const ReplayedPolicy* trace = nullptr;
  std::vector<std::string> labels{};
};

std::vector<Panel> panels_of(const ReplayFile& replay) {
  std::vector<Panel> panels;
  for (const ReplayedPolicy& policy : replay.policies) {
    if (!policy.replayed || policy.steps.empty()) continue;
    const auto same = std::find_if(panels.begin(), panels.end(), [&policy](const Panel& panel) {
      const ReplayedPolicy& other = *panel.trace;
      return other.steps == policy.steps && other.log2_scale_lower == policy.log2_scale_lower &&
             other.log2_scale_upper == policy.log2_scale_upper && other.skipped_upper == policy.skipped_upper;
    });
    if (same != panels.end()) {
      same->labels.push_back(policy.label);
    } else {
      panels.push_back({&policy, {policy.label}});
    }
  }
  return panels;
}

/// As many names as fit above a panel, in two lines, as a gnuplot expression.
std::string title_of(const Panel& panel) {
  constexpr std::size_t line = 36;
  std::array<std::string, 2> lines;
  std::size_t used = 0, done = 0;
  for (const std::string& label : panel.labels) {
    const std::string piece = label + (done + 1 < panel.labels.size() ? "," : "");
    if (!lines[used].empty() && lines[used].size() + 1 + piece.size() > line && ++used == lines.size()) break;
    lines[used] += (lines[used].empty() ? "" : " ") + piece;
    ++done;
  }
  if (done < panel.labels.size()) lines.back() += fmt::format(" +{}", panel.labels.size() - done);
  std::string text = reports::gnuplot_string(lines[0]);
  if (!lines[1].empty()) text += ".\"\\n\"." + reports::gnuplot_string(lines[1]);
  return text;
}

struct Axes {
  double first = 1, last = 1, low = 0, high = 1;
};

Axes axes_of(const ReplayFile& replay, const std::vector<Panel>& panels) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Axes axes{infinity, 0, infinity, -infinity};
  const auto see = [&axes](double y) {
    if (!std::isfinite(y)) return;
    axes.low = std::min(axes.low, y);
    axes.high = std::max(axes.high, y);
  };
  for (const Panel& panel : panels) {
    axes.first = std::min(axes.first, static_cast<double>(panel.trace->steps.front()));
    axes.last = std::max(axes.last, static_cast<double>(panel.trace->steps.back()));
    for (const double y : panel.trace->log2_scale_lower) see(y);
    for (const double y : panel.trace->log2_scale_upper) see(y);
  }
  for (const double y : replay.band.log2_highest) see(y);
  // The lower edge of the band may lie far below every scale in use; it is cut off then.
  axes.low = std::max(axes.low - 1, -40.0);
  axes.high += 1;
  if (axes.last <= axes.first) axes.last = axes.first + 1;
  return axes;
}

/// step, lower edge, upper edge: over each stretch of steps what all of them allow.
std::string band_data(const ReplayBand& band, const Axes& axes) {
  std::string data =
      "# the scales that the run allowed: step, smallest that loses at most 1 % of L1, largest without "
      "overflow\n";
  const std::size_t stretch = std::max<std::size_t>(1, band.steps.size() / points);
  for (std::size_t begin = 0; begin < band.steps.size(); begin += stretch) {
    const std::size_t end = std::min(begin + stretch, band.steps.size());
    const auto at = [](const std::vector<double>& values, std::size_t i) {
      return values.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const double low = *std::max_element(at(band.log2_one_percent, begin), at(band.log2_one_percent, end));
    const double high = *std::min_element(at(band.log2_highest, begin), at(band.log2_highest, end));
    const auto line = [&](std::uint64_t step) {
      data += fmt::format("{}\t{}\t{}\n", step, std::clamp(low, axes.low, std::max(axes.low, high)), high);
    };
    line(band.steps[begin]);
    if (end - 1 != begin) line(band.steps[end - 1]);
  }
  return data;
}

/// Steps with the bounds of the scale, both ends of every stretch of constant scale.
std::string trace_data(const ReplayedPolicy& policy) {
  std::string data = fmt::format("# {}: step, log2 of the scale from, to\n", policy.label);
  const auto line = [&](std::uint64_t step, std::size_t i) {
    data += fmt::format("{}\t{}\t{}\n", step, policy.log2_scale_lower[i], policy.log2_scale_upper[i]);
  };
  for (std::size_t i = 0; i < policy.steps.size(); ++i) {
    if (i > 0 && policy.steps[i] > policy.steps[i - 1] + 1) line(policy.steps[i] - 1, i - 1);
    line(policy.steps[i], i);
  }
  return data;
}

std::string skip_data(const ReplayedPolicy& policy) {
  std::string data = "# skipped steps: step, log2 of the scale, 1 certain or 0 possible\n";
  const std::size_t stretch = std::max<std::size_t>(1, policy.skipped_upper.size() / points);
  std::size_t entry = 0;
  for (std::size_t i = 0; i < policy.skipped_upper.size(); i += stretch) {
    const std::uint64_t step = policy.skipped_upper[i];
    while (entry + 1 < policy.steps.size() && policy.steps[entry + 1] <= step) ++entry;
    const bool certain = std::binary_search(policy.skipped_lower.begin(), policy.skipped_lower.end(), step);
    data += fmt::format("{}\t{}\t{}\n", step, policy.log2_scale_upper[entry], certain ? 1 : 0);
  }
  if (policy.skipped_upper.empty()) data += "nan\tnan\tnan\n";
  return data;
}

std::string panel_script(const Panel& panel, std::size_t index, std::size_t count) {
  const std::size_t trace = 1 + 2 * index;
  const bool left = index % columns == 0, bottom = index + columns >= count;
  return fmt::format(
      "  set title {} font \",9\" offset 0,-0.6 noenhanced\n"
      "  set ylabel {}\n"
      "  set xlabel {}\n"
      "  plot $DATA index 0 using 1:2:3 with filledcurves fc rgb \"#D5E4F2\" notitle, \\\n"
      "    $DATA index {} using 1:2:3 with filledcurves fc rgb \"#E3A977\" notitle, \\\n"
      "    $DATA index {} using 1:2 with lines lw 1.6 lc rgb \"#12315A\" notitle, \\\n"
      "    $DATA index {} using 1:3 with lines lw 1.6 lc rgb \"#12315A\" notitle, \\\n"
      "    $DATA index {} using 1:($3 > 0 ? $2 : NaN) with points pt 2 ps 0.55 lw 1.4 lc rgb \"{}\" notitle, "
      "\\\n"
      "    $DATA index {} using 1:($3 == 0 ? $2 : NaN) with points pt 7 ps 0.25 lc rgb \"{}\" "
      "notitle\n",
      title_of(panel), left ? "\"log2 of scale\" font \",9\" offset 0.8,0" : "\"\"",
      bottom ? "\"step\" font \",9\" offset 0,0.5" : "\"\"", trace, trace, trace, trace + 1,
      reports::lost_color, trace + 1, reports::lost_color);
}

}  // namespace

std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder,
                        const std::string& gnuplot) {
  const std::vector<Panel> panels = panels_of(replay);
  if (panels.empty()) return {};
  const Axes axes = axes_of(replay, panels);
  std::string data = band_data(replay.band, axes);
  for (const Panel& panel : panels)
    data += "\n\n" + trace_data(*panel.trace) + "\n\n" + skip_data(*panel.trace);

  const int rows = (static_cast<int>(panels.size()) + columns - 1) / columns;
  const int height = rows * panel_height + legend_height;
  const double top = 1 - static_cast<double>(legend_height) / height;
  std::string body = fmt::format(
      "  set multiplot layout {},{} margins 0.055,0.99,{:.4f},{:.4f} spacing 0.035,{:.4f}\n"
      "  set xrange [{}:{}]\n"
      "  set yrange [{}:{}]\n"
      "  set tics font \",8\"\n"
      "  set label 1 {} at screen 0.01, screen {:.4f} font \",12\" noenhanced\n"
      "  set label 2 {} at screen 0.01, screen {:.4f} font \",9\" noenhanced\n",
      rows, columns, 50.0 / height, top - 34.0 / height, 66.0 / height, axes.first, axes.last, axes.low,
      axes.high,
      reports::gnuplot_string(fmt::format("What every loss-scale policy would have done on {} ({})",
                                          replay.run, replay.workload)),
      1 - 16.0 / height,
      reports::gnuplot_string("dark line: scale, orange where it is known within bounds only; light blue: "
                              "scales without overflow that lose "
                              "at most 1 % of L1; x: skipped step, dot: perhaps skipped"),
      1 - 38.0 / height);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    body += panel_script(panels[i], i, panels.size());
    if (i == 0) body += "  unset label 1\n  unset label 2\n";
  }
  body += "  unset multiplot\n";
  std::string script =
      reports::gnuplot_script(stem, "Scale traces of all policies", columns * panel_width, height, body);
  // Multiplot panels read the file once a curve; by name each of them would open it anew, which is as well.
  const std::string file = reports::gnuplot_string(std::string(stem) + ".dat");
  for (std::size_t at = 0; (at = script.find("$DATA", at)) != std::string::npos; at += file.size())
    script.replace(at, 5, file);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  write_file_atomically(folder / (std::string(stem) + ".dat"), data);
  const std::filesystem::path path = folder / (std::string(stem) + ".gp");
  write_file_atomically(path, script);
  return reports::run_gnuplot(gnuplot, path);
}

}  // namespace fp16lab::experiments
