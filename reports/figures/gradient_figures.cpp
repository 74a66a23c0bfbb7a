// Figures of gradients: exponent histograms with their formats' zones, underflow against scale, underflow
// over layers and steps.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "numerics/text/scale_text.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/figures.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/histogram_figure.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// Which tensors get a panel: all if they fit, else without biases, else the first ones.
std::vector<std::size_t> panel_tensors(const RunGradients& gradients) {
  std::vector<std::size_t> all, chosen;
  for (std::size_t i = 0; i < gradients.tensors.size(); ++i) {
    all.push_back(i);
    if (!gradients.tensors[i].ends_with(".bias")) chosen.push_back(i);
  }
  if (all.size() <= max_histogram_panels || chosen.empty()) chosen = all;
  if (chosen.size() > max_histogram_panels) chosen.resize(max_histogram_panels);
  return chosen;
}

Figure write_histogram_figure(const WorkloadFigures& input, const Configuration& configuration,
                              const RunGradients& gradients, const std::filesystem::path& folder) {
  const GradientSnapshot& snapshot = gradients.snapshots.back();
  std::vector<HistogramPanel> panels;
  const bool one_format = std::all_of(gradients.formats.begin(), gradients.formats.end(),
                                      [&](DType format) { return format == gradients.formats.front(); });
  for (const std::size_t tensor : panel_tensors(gradients))
    panels.push_back({.name = one_format ? gradients.tensors[tensor]
                                         : fmt::format("{}, {}", gradients.tensors[tensor],
                                                       title_of(gradients.formats[tensor])),
                      .values = snapshot.histograms[tensor],
                      .range = range_of(gradients.formats[tensor])});
  const HistogramFigure figure{
      .stem = "histogram-" + slug(input.workload.name) + "-" + slug(configuration.label),
      .title = fmt::format("Gradient magnitudes before the cast to {}, {}, {}, step {}, loss scale {}",
                           gradients.format_names(), input.workload.name, pretty(configuration.label),
                           snapshot.step, pretty(scale_text(snapshot.loss_scale))),
      .caption = panels.size() < gradients.tensors.size()
                     ? fmt::format("{} of {} tensors, biases left out first.", panels.size(),
                                   gradients.tensors.size())
                     : ""};
  write_histogram_figure(figure, panels, folder);
  return {figure.stem, input.workload.name, figure.title};
}

/// FP32 gradients say what FP16 would do; without an FP32 run, those of the first configuration that has any.
const RunGradients* base_gradients(const WorkloadFigures& input, std::string& label) {
  for (std::size_t i = 0; i < input.gradients.size(); ++i)
    if (!input.gradients[i].snapshots.empty()) {
      label = input.workload.configurations[i].label;
      return &input.gradients[i];
    }
  return nullptr;
}

/// A row of the heat map: a tensor of any of its configurations.
struct HeatRow {
  std::string name;
  bool weight = false;
  bool operator==(const HeatRow&) const = default;
};

/// Of a tensor in a step: a value was Inf or NaN, or its cast made one so.
bool gave_inf_or_nan(const GradientSnapshot& snapshot, std::size_t tensor) {
  const ExponentHistogram& values = snapshot.histograms[tensor];
  const std::optional<CastCounts>& casts = snapshot.casts[tensor];
  return values.infinite + values.nan + (casts ? casts->overflow : 0) > 0;
}

/// Weight gradients above, activation gradients below.
std::vector<HeatRow> heat_rows(const WorkloadFigures& input, const std::vector<std::size_t>& shown) {
  std::vector<HeatRow> rows;
  for (const std::size_t i : shown)
    for (std::size_t tensor = 0; tensor < input.gradients[i].tensors.size(); ++tensor) {
      HeatRow row{input.gradients[i].tensors[tensor], input.gradients[i].kinds[tensor] == "weight"};
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(std::move(row));
    }
  std::stable_partition(rows.begin(), rows.end(), [](const HeatRow& row) { return row.weight; });
  return rows;
}

}  // namespace

std::vector<Figure> write_histogram_figures(const WorkloadFigures& input,
                                            const std::filesystem::path& folder) {
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < input.gradients.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    if (configuration.id.fp32 || input.gradients[i].snapshots.empty()) continue;
    figures.push_back(write_histogram_figure(input, configuration, input.gradients[i], folder));
  }
  return figures;
}

std::vector<Figure> write_what_if_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  std::string label;
  const RunGradients* base = base_gradients(input, label);
  if (base == nullptr) return {};
  const std::string stem = "underflow-against-scale-" + slug(input.workload.name);
  std::string data =
      "# log2 of the loss scale\tpercent lost\tpercent overflow, upper bound; one block a tensor, all "
      "together last\n";
  std::string plot;
  std::vector<std::string> names;
  std::vector<std::vector<double>> curves;  // percent lost of each
  double highest = 0;
  const std::string all = "all tensors";
  const auto add = [&](const std::string& name, const auto& counts_at) {
    data += gnuplot_comment(name);
    names.push_back(name);
    curves.emplace_back();
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; ++k) {
      const analysis::ZoneRates rates = analysis::rates_of(counts_at(std::ldexp(1.0, k)));
      data += fmt::format("{}\t{:.6g}\t{:.6g}\n", k, 100 * rates.lost.middle(), 100 * rates.overflow.upper);
      curves.back().push_back(100 * rates.lost.middle());
      highest = std::max({highest, curves.back().back(), name == all ? 100 * rates.overflow.upper : 0});
    }
    data += block_end;
  };
  constexpr std::array dashes = {"1", "(6,4)", "(1.5,3)", "(9,3,1.5,3)", "(3,2)"};
  int block = 0;
  std::vector<std::string> layers, parts;  // "fc1" gives the colour, "weight" the dashes
  const auto place_of = [](std::vector<std::string>& known, const std::string& name) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
    known.push_back(name);
    return known.size() - 1;
  };
  for (std::size_t i = 0; i < base->tensors.size(); ++i) {
    if (base->formats[i] == DType::f32) continue;  // of a run that rounded others: nothing to lose
    add(base->tensors[i], [&](double scale) { return base->at_scale(i, scale); });
    const std::size_t dot = std::min(base->tensors[i].rfind('.'), base->tensors[i].size());
    const std::size_t layer = place_of(layers, base->tensors[i].substr(0, dot));
    const std::size_t part = place_of(parts, base->tensors[i].substr(dot));
    plot +=
        fmt::format("    {}.\".dat\" index {} using 1:2 with lines lw 2 dt {} lc rgb \"{}\" title {}, \\\n",
                    gnuplot_string(stem), block++, dashes.at(part % dashes.size()), layer_color(layer),
                    gnuplot_string(base->tensors[i]));
  }
  add(all, [&](double scale) { return base->at_scale(scale); });
  names.emplace_back("overflow, all tensors");
  plot += fmt::format(
      "    {0}.\".dat\" index {1} using 1:2 with lines lw 5 dt 1 lc rgb \"#333333\" title \"all tensors\", "
      "\\\n"
      "    {0}.\".dat\" index {1} using 1:3 with lines lw 3 dt (6,4) lc rgb \"{2}\" title \"overflow, all "
      "tensors\"\n",
      gnuplot_string(stem), block, overflow_color);
  const std::string text = fmt::format("What each loss scale would lose in {}, {}: gradients of {}",
                                       base->format_names(), input.workload.name, pretty(label));
  double longest = 0;
  for (const std::string& name : names) longest = std::max(longest, text_width(name, 12));
  const int key = 80 + static_cast<int>(longest), width = 740 + std::max(240, key);
  const FigureNote note(coinciding_words(coinciding(curves.size(),
                                                    [&](std::size_t a, std::size_t b) {
                                                      const auto near = [&](double x, double y) {
                                                        return std::abs(x - y) <= 0.005 * highest;
                                                      };
                                                      return std::equal(curves[a].begin(), curves[a].end(),
                                                                        curves[b].begin(), near);
                                                    }),
                                         names),
                        width);
  const FigureTitle title = figure_title(text, width);
  const int above = 44 + title.extra_height, below = 62 + note.height(),
            height = above + below + std::max(350, 18 * static_cast<int>(names.size()) + 10);
  std::string body = title.commands(height);
  body += fmt::format(
      "  set key at screen 0.99,screen {:.4f} right top Left reverse samplen 2.5 spacing 1.15 maxrows {}\n",
      1 - (above + 2.0) / height, names.size());
  body += fmt::format(
      "  set lmargin at screen {:.4f}\n  set rmargin at screen {:.4f}\n  set bmargin at screen {:.4f}\n"
      "  set tmargin at screen {:.4f}\n",
      78.0 / width, 1 - static_cast<double>(std::max(240, key)) / width, static_cast<double>(below) / height,
      1 - static_cast<double>(above) / height);
  body += note.commands(height);
  body += "  set xlabel \"loss scale\"\n  set ylabel \"non-zero gradients that round to zero (%)\"\n";
  body += fmt::format("  set xrange [{}:{}]\n  set xtics 2 format \"2^{{%.0f}}\"\n  set yrange [0:*]\n",
                      analysis::min_log2_scale, analysis::max_log2_scale);
  body += "  plot \\\n" + plot;
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

std::vector<Figure> write_heat_map_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  constexpr std::size_t most = 12;  // more panels would be too small to be read
  std::vector<std::size_t> shown;
  std::vector<std::string> left_out, unobserved;
  for (std::size_t i = 0; i < input.gradients.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    if (configuration.id.fp32) continue;  // casts nothing
    if (input.gradients[i].snapshots.empty())
      unobserved.push_back(pretty(configuration.label));
    else if (shown.size() < most)
      shown.push_back(i);
    else
      left_out.push_back(pretty(configuration.label));
  }
  if (shown.empty()) return {};
  const std::string stem = "underflow-over-steps-" + slug(input.workload.name);
  const std::string text = fmt::format(
      "Non-zero gradients that the casts made zero, by tensor (weights, then activations) and step, {}",
      input.workload.name);
  std::string data =
      "# place of the step\tplace of the tensor\tpercent lost at that step's loss scale\t1 with an Inf or "
      "NaN; "
      "one block a configuration\n";
  std::string plots, ytics;
  const std::vector<HeatRow> tensors = heat_rows(input, shown);
  const auto weights = static_cast<std::size_t>(
      std::count_if(tensors.begin(), tensors.end(), [](const HeatRow& row) { return row.weight; }));
  double longest = 0;
  for (const HeatRow& row : tensors) longest = std::max(longest, text_width(row.name, 10));
  const int columns = std::min<int>(3, static_cast<int>(shown.size())),
            rows = (static_cast<int>(shown.size()) + columns - 1) / columns;
  constexpr int panel = 300, gap = 24, box = 110, title_size = 12;
  const int names = 20 + static_cast<int>(std::min(longest, 260.0)),
            width = names + columns * panel + (columns - 1) * gap + box,
            tall = 24 * static_cast<int>(tensors.size()), between = 84;
  const bool any_cross = std::ranges::any_of(shown, [&](std::size_t i) {
    return std::ranges::any_of(input.gradients[i].snapshots, [](const GradientSnapshot& snapshot) {
      for (std::size_t tensor = 0; tensor < snapshot.casts.size(); ++tensor)
        if (gave_inf_or_nan(snapshot, tensor)) return true;
      return false;
    });
  });
  const auto words = [](std::string_view what, const std::vector<std::string>& labels) {
    std::string list;
    for (const std::string& label : labels) list += (list.empty() ? "" : ", ") + label;
    return labels.empty() ? std::string() : fmt::format("{}: {}. ", what, list);
  };
  const FigureNote note((any_cross ? "A cross: Inf or NaN. FP32 casts nothing. " : "FP32 casts nothing. ") +
                            words("Left out for room", left_out) + words("Without histograms", unobserved),
                        width);
  const FigureTitle title = figure_title(text, width);
  const int above = 66 + title.extra_height, below = 56 + note.height(),
            height = above + below + rows * tall + (rows - 1) * between;
  for (std::size_t r = 0; r < tensors.size(); ++r)
    ytics += fmt::format("{}{} {}", r == 0 ? "" : ", ",
                         gnuplot_tic(shortened(tensors[r].name, names - 20, 10)), r);
  for (std::size_t block = 0; block < shown.size(); ++block) {
    const RunGradients& gradients = input.gradients[shown[block]];
    const std::size_t steps = gradients.snapshots.size();
    const std::string label = pretty(input.workload.configurations[shown[block]].label);
    data += gnuplot_comment(label);
    std::string xtics;
    double highest = 0;
    bool cast = false, crosses = false;
    for (std::size_t row = 0; row < tensors.size(); ++row) {
      const auto found = std::find(gradients.tensors.begin(), gradients.tensors.end(), tensors[row].name);
      const auto tensor = static_cast<std::size_t>(found - gradients.tensors.begin());
      for (std::size_t c = 0; c < steps; ++c) {
        if (found == gradients.tensors.end()) {
          data += fmt::format("{}\t{}\tnan\t0\n", c, row);
          continue;
        }
        const std::optional<CastCounts>& casts = gradients.snapshots[c].casts[tensor];
        const int cross = gave_inf_or_nan(gradients.snapshots[c], tensor) ? 1 : 0;
        crosses = crosses || cross == 1;
        if (!casts) {  // it stayed FP32, or its cast was not seen
          data += fmt::format("{}\t{}\tnan\t{}\n", c, row, cross);
          continue;
        }
        const double lost = 100 * casts->underflow_rate();
        highest = std::max(highest, lost);
        cast = true;
        data += fmt::format("{}\t{}\t{:.4g}\t{}\n", c, row, lost, cross);
      }
    }
    data += block_end;
    const std::size_t every = std::max<std::size_t>(1, (steps + 5) / 6);
    for (std::size_t c = 0; c < steps; c += every)
      xtics += fmt::format("{}\"{}\" {}", c == 0 ? "" : ", ", gradients.snapshots[c].step, c);
    const bool first_of_row = block % static_cast<std::size_t>(columns) == 0;
    plots +=
        fmt::format("  set title {}\n", gnuplot_bold(shortened(label, panel + gap - 10, title_size, true)));
    plots += first_of_row ? fmt::format("  set ytics noenhanced ({}) font \"DejaVu Sans,10\"\n", ytics)
                          : "  unset ytics\n";
    plots += fmt::format("  set xtics ({}) font \"DejaVu Sans,10\"\n", xtics);
    plots += weights > 0 && weights < tensors.size()
                 ? fmt::format(
                       "  set arrow 1 from graph 0,first {0} to graph 1,first {0} "
                       "nohead front lc rgb \"#333333\" lw 1.5\n",
                       static_cast<double>(weights) - 0.5)
                 : std::string("  unset arrow 1\n");
    plots += highest == 0 && !crosses ? fmt::format(
                                            "  set label 1 \"{}\" at graph 0.5,graph 0.5 center front tc "
                                            "rgb \"#555555\"\n",
                                            cast ? "nothing rounds to zero" : "no cast was seen")
                                      : "  unset label 1\n";
    plots += fmt::format("  set xrange [-0.5:{}]\n  set yrange [{}:-0.5]\n", static_cast<double>(steps) - 0.5,
                         static_cast<double>(tensors.size()) - 0.5);
    plots += block == 0
                 ? fmt::format(
                       "  set colorbox user origin screen {:.4f},screen {:.4f} size screen {:.4f},screen "
                       "{:.4f}\n",
                       1 - (box - 26.0) / width, 1 - (above + tall) / static_cast<double>(height),
                       14.0 / width, tall / static_cast<double>(height))
                 : "  unset colorbox\n  unset label 900\n";
    plots += fmt::format("  plot {}.\".dat\" index {} using 1:2:3 with image pixels notitle",
                         gnuplot_string(stem), block);
    if (crosses)
      plots += fmt::format(
          ", \\\n    {}.\".dat\" index {} using ($4 > 0 ? $1 : 1/0):2 with points pt 2 ps 0.8 lw 1.5 lc rgb "
          "\"{}\" "
          "notitle",
          gnuplot_string(stem), block, overflow_color);
    plots += "\n";
  }
  std::string body = fmt::format(
      "  set multiplot layout {},{} title {} noenhanced font \",14\" margins {:.4f},{:.4f},{:.4f},{:.4f} "
      "spacing "
      "{:.4f},{:.4f}\n",
      rows, columns, title.quoted, static_cast<double>(names) / width, 1 - static_cast<double>(box) / width,
      static_cast<double>(below) / height, 1 - static_cast<double>(above) / height,
      static_cast<double>(gap) / width, static_cast<double>(between) / height);
  body += note.commands(height);
  body += fmt::format("  set palette defined ({})\n", underflow_palette);
  body +=
      "  set cbrange [0:100]\n  set format cb \"%.0f %%\"\n  set key off\n  unset grid\n  set border 15 lc "
      "rgb \"#555555\"\n  set xlabel \"step\"\n";
  body += plots + "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

}  // namespace fp16lab::reports
