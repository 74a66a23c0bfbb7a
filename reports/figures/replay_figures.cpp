#include "reports/figures/replay_figures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "numerics/files/disk/folder.hpp"
#include "reports/data/league.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::size_t trace_points = 400;
constexpr int columns = 3, traces_width = 1150, panel_width = 344, panel_font = 12;
constexpr std::string_view line_color = "#0072B2", band_color = "#E6E6E6", edge_color = "#777777";

std::vector<const ReplayedPolicy*> shown_policies(const ReplayFile& replay) {
  std::vector<const ReplayedPolicy*> shown;
  for (const std::size_t i : league_order(replay)) shown.push_back(&replay.policies[i]);
  return shown;
}

/// Policies that did the same, as the first of them did.
struct Panel {
  const ReplayedPolicy* trace = nullptr;
  std::vector<std::string> labels{};
};

std::vector<Panel> panels_of(const ReplayFile& replay) {
  std::vector<Panel> panels;
  for (const ReplayedPolicy* policy : shown_policies(replay)) {
    const auto same = std::find_if(panels.begin(), panels.end(), [policy](const Panel& panel) {
      const ReplayedPolicy& other = *panel.trace;
      return other.steps == policy->steps && other.log2_scale_lower == policy->log2_scale_lower &&
             other.log2_scale_upper == policy->log2_scale_upper &&
             other.skipped_lower == policy->skipped_lower && other.skipped_upper == policy->skipped_upper;
    });
    if (same == panels.end())
      panels.push_back({policy, {policy->label}});
    else
      same->labels.push_back(policy->label);
  }
  return panels;
}

/// As many names as fit above a panel in two lines, as a gnuplot expression.
std::string title_of(const Panel& panel) {
  const std::size_t all = panel.labels.size();
  std::string title;
  for (std::size_t shown = all; shown > 0; --shown) {
    std::string names;
    for (std::size_t i = 0; i < shown; ++i)
      names += (i == 0 ? "" : ", ") + shortened(pretty(panel.labels[i]), panel_width, panel_font, true);
    if (shown < all) names += fmt::format(" +{}", all - shown);
    const std::vector<std::string> lines = wrapped(names, panel_width, panel_font * 1.125);  // in bold
    title = gnuplot_bold(lines.front());
    if (lines.size() == 2) title += ".\"\\n\"." + gnuplot_bold(lines.back());
    if (lines.size() <= 2) break;
  }
  return title;
}

std::string path_block(const ScaleTrace& path) {
  std::string block;
  for (const ScaleTrace::Change& change : path.changes)
    block += fmt::format("{}\t{}\n", change.step, change.scale);
  if (path.changes.empty()) block += "nan\tnan\n";
  return block + std::string(block_end);
}

std::string skip_block(const std::vector<std::uint64_t>& steps) {
  std::string block;
  for (const std::uint64_t step : steps) block += fmt::format("{}\n", step);
  if (steps.empty()) block += "nan\n";
  return block + std::string(block_end);
}

/// One panel a trace, all with the same axes; the band of scales that the run allowed behind each.
Figure write_traces(const ReplayFile& replay, const std::string& stem, const std::filesystem::path& folder) {
  const std::vector<Panel> panels = panels_of(replay);
  std::string data =
      "# block 0: step, largest scale (log2) that cannot overflow; block 1: step, smallest one that loses at "
      "most 1 % of the L1 norm\n"
      "# then four blocks a panel: scale, lower bound; upper bound; steps skipped for certain; perhaps\n";
  const ScaleTrace highest = band_path(replay.band.steps, replay.band.log2_highest, trace_points);
  const ScaleTrace enough = band_path(replay.band.steps, replay.band.log2_one_percent, trace_points);
  data += path_block(highest) + path_block(enough);
  double low = 0, high = 1;
  const auto reach = [&](const ScaleTrace& path) {
    for (const ScaleTrace::Change& change : path.changes) {
      low = std::min(low, change.scale);
      high = std::max(high, change.scale);
    }
  };
  reach(highest);

  const int rows = (static_cast<int>(panels.size()) + columns - 1) / columns;
  const std::string text = fmt::format("What every policy's loss scale would have been, {}", replay.run);
  const FigureTitle title = figure_title(text, traces_width);
  const FigureNote note(
      "Line(s): the scale, or its bounds. Shaded: scales that lose at most 1 % of the L1 norm and cannot "
      "overflow. × skipped, ○ perhaps skipped.",
      traces_width);
  const int above = 66 + title.extra_height, below = 42 + note.height(),
            height = above + below + 150 * rows - 40;
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  std::string plots;
  int block = 2;
  for (const Panel& shown : panels) {
    const ReplayedPolicy* const policy = shown.trace;
    const ReplayPaths paths = replay_paths(*policy, trace_points);
    reach(paths.lower);
    reach(paths.upper);
    std::vector<std::uint64_t> possible;
    std::set_difference(policy->skipped_upper.begin(), policy->skipped_upper.end(),
                        policy->skipped_lower.begin(), policy->skipped_lower.end(),
                        std::back_inserter(possible));
    data += gnuplot_comment(fmt::format("{}", fmt::join(shown.labels, ", "))) + path_block(paths.lower) +
            path_block(paths.upper) + skip_block(policy->skipped_lower) + skip_block(possible);
    const int panel = (block - 2) / 4;
    plots += fmt::format("  set title {} offset 0,-0.6\n", title_of(shown));
    plots += fmt::format("  set format y \"{}\"\n", panel % columns == 0 ? "2^{%.0f}" : "");
    plots += fmt::format("  set format x \"{}\"\n",
                         panel + columns >= static_cast<int>(panels.size()) ? "%.0f" : "");
    plots += fmt::format(
        "  plot {0} index 0 using 1:2 with fillsteps fc rgb \"{1}\", {0} index 1 using 1:2 with fillsteps fc "
        "rgb \"#FFFFFF\", {0} index 0 using 1:2 with steps lw 0.6 lc rgb \"{2}\", \\\n"
        "    {0} index {3} using 1:2 with steps lw 1.8 lc rgb \"{4}\", {0} index {5} using 1:2 with steps lw "
        "1.8 lc rgb \"{4}\", \\\n"
        "    {0} index {6} using 1:(skips) with points pt 2 ps 0.6 lc rgb \"{8}\", {0} index {7} using "
        "1:(skips) with points pt 6 ps 0.6 lc rgb \"{8}\"\n",
        file, band_color, edge_color, block, line_color, block + 1, block + 2, block + 3, lost_color);
    block += 4;
  }
  low = std::floor(low);
  high = std::ceil(high);
  const double room = 0.14 * (high - low);  // for the marks of skipped steps
  std::string body = fmt::format(
      "  set multiplot layout {},{} title {} noenhanced font \",14\" margins 0.06,0.985,{:.4f},{:.4f} "
      "spacing 0.03,{:.4f}\n",
      rows, columns, title.quoted, static_cast<double>(below) / height,
      1 - static_cast<double>(above) / height, 46.0 / height);
  body += note.commands(height);
  body += fmt::format("  skips = {:.4g}\n  low = {:.4g}\n", low - 0.6 * room, low);
  body += fmt::format(
      "  set key off\n  set xrange [1:{}]\n  set yrange [{:.4g}:{:.4g}]\n  set ytics 8\n  set tics front\n",
      std::max<std::uint64_t>(2, replay.total_steps), low - room, high + 1);
  // The second plot of every panel puts white over what lies below the band.
  body +=
      "  set style fill solid 1.0 noborder\n  set xtics font \"DejaVu Sans,10\"\n  set ytics font \"DejaVu "
      "Sans,10\"\n";
  const std::size_t first_end = plots.find("\n  set title", 1);
  body += plots.substr(0, first_end) + "\n  unset label 900";
  if (first_end != std::string::npos) body += plots.substr(first_end);
  body += "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, text, traces_width, height, body));
  return {stem, replay.run, text};
}

/// Skips, lost L1 and the angle, a dot or a bar from bound to bound; policies in the league's order.
Figure write_league(const ReplayFile& replay, const std::filesystem::path& folder) {
  const std::vector<const ReplayedPolicy*> policies = shown_policies(replay);
  const std::string stem = "replay-league-" + slug(replay.run);
  std::string data = "# place\tskips, bounds\tlost L1 in percent, bounds\t1 - cosine, bounds\n", tics;
  const double floor_percent = 1e-6, floor_angle = 1e-12;  // zeros stand at the left edge of logarithmic axes
  int place = 0;
  double longest = 0;
  for (const ReplayedPolicy* policy : policies) {
    ++place;
    const auto above = [](double value, double least) { return std::max(value, least); };
    data += fmt::format(
        "{}\t{}\t{}\t{:.6g}\t{:.6g}\t{:.6g}\t{:.6g}\n", place, policy->skips.lower, policy->skips.upper,
        above(100 * policy->lost_l1.lower, floor_percent), above(100 * policy->lost_l1.upper, floor_percent),
        above(1 - policy->cosine.upper, floor_angle), above(1 - policy->cosine.lower, floor_angle));
    std::string label = pretty(policy->label);
    if (is_yardstick(*policy)) label.insert(0, "(").append(")");
    longest = std::max(longest, text_width(label, 12));
    tics += fmt::format("{}{} {}", tics.empty() ? "" : ", ", gnuplot_tic(label), place);
  }
  const std::string text = fmt::format("Policies replayed on {}: less is better", replay.run);
  const int names = static_cast<int>(longest) + 24, width = names + 800;
  const FigureTitle title = figure_title(text, width);
  const FigureNote note(
      "Dot: known; bar: from the lower to the upper bound. In parentheses: chosen in hindsight. Nothing lost "
      "stands at the left edge of a logarithmic axis.",
      width);
  const int above = 52 + title.extra_height, below = 62 + note.height(), height = above + below + 22 * place;
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  std::string body = fmt::format(
      "  set multiplot layout 1,3 title {} noenhanced font \",14\" margins {:.4f},0.97,{:.4f},{:.4f} spacing "
      "0.04\n"
      "  set key off\n  set yrange [{}.5:0.5]\n  set grid xtics ytics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n"
      "  set ytics noenhanced ({})\n",
      title.quoted, static_cast<double>(names) / width, static_cast<double>(below) / height,
      1 - static_cast<double>(above) / height, place, tics);
  body += note.commands(height);
  const auto panel = [&](std::string_view label, std::string_view axis, int low, std::string_view color) {
    body += fmt::format(
        "  set xlabel \"{0}\"\n  {1}\n"
        "  plot {2} using (${3}):1:(${4}-${3}):(0) with vectors nohead lw 4 lc rgb \"{5}\", {2} using {4}:1 "
        "with points pt 7 ps 0.9 lc rgb \"{5}\"\n",
        label, axis, file, low, low + 1, color);
  };
  panel("skipped steps", "set xrange [0:*]", 2, lost_color);
  body += "  unset label 900\n  set ytics 1 format \"\"\n";
  panel("lost L1 (%)",
        "set logscale x\n  set format x \"10^{%L}\"\n  set xrange [1e-6:100]\n  set xtics 1e-6,1e2,100", 4,
        normal_color);
  panel("1 − cosine", "set xrange [1e-12:1]\n  set xtics 1e-12,1e4,1", 6, overflow_color);
  body += "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {stem, replay.run, text};
}

}  // namespace

std::vector<Figure> write_replay_figures(const ReplayFile& replay, const std::filesystem::path& folder) {
  if (shown_policies(replay).empty()) return {};
  return {write_traces(replay, "replay-scales-" + slug(replay.run), folder), write_league(replay, folder)};
}

std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder,
                        const std::string& gnuplot) {
  if (shown_policies(replay).empty()) return {};
  make_folders(folder);
  write_traces(replay, "replay", folder);
  return run_gnuplot(gnuplot, folder / "replay.gp");
}

}  // namespace fp16lab::reports
