// Figures of gradients: exponent histograms with FP16's zones, underflow against scale, underflow over layers
// and steps.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "numerics/files/atomic_file.hpp"
#include "reports/figure_style.hpp"
#include "reports/figures.hpp"
#include "reports/gnuplot.hpp"
#include "reports/rate_text.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view block_end = "\n\n";
constexpr std::size_t max_panels = 12;

/// FP16's edges as exponents of the scaled value: bins are (2^e, 2^(e+1)].
constexpr int lost_below = Binary16::exponent_of_min_subnormal - 1;  // |y| <= 2^-25 rounds to zero
constexpr int normal_from = Binary16::emin;                          // 2^-14
constexpr int overflow_bin = Binary16::emax;  // (2^15, 2^16] holds 65520, the edge to infinity

void write_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                const std::string& script) {
  write_file_atomically(folder / (stem + ".dat"), data);
  write_file_atomically(folder / (stem + ".gp"), script);
}

/// 0 lost, 1 subnormal, 2 normal, 3 the bin that 65520 cuts, 4 overflow.
int zone_of(int exponent) {
  if (exponent < lost_below) return 0;
  if (exponent < normal_from) return 1;
  if (exponent < overflow_bin) return 2;
  return exponent == overflow_bin ? 3 : 4;
}

/// Which tensors get a panel: all if they fit, else without biases, else the first ones.
std::vector<std::size_t> panel_tensors(const RunGradients& gradients) {
  std::vector<std::size_t> all, chosen;
  for (std::size_t i = 0; i < gradients.tensors.size(); ++i) {
    all.push_back(i);
    if (!gradients.tensors[i].ends_with(".bias")) chosen.push_back(i);
  }
  if (all.size() <= max_panels || chosen.empty()) chosen = all;
  if (chosen.size() > max_panels) chosen.resize(max_panels);
  return chosen;
}

Figure write_histogram_figure(const WorkloadFigures& input, const Configuration& configuration,
                              const RunGradients& gradients, const std::filesystem::path& folder) {
  const GradientSnapshot& snapshot = gradients.snapshots.back();
  const std::string stem = "histogram-" + slug(input.workload.name) + "-" + slug(configuration.label);
  const std::vector<std::size_t> panels = panel_tensors(gradients);

  int low = lost_below - 6, high = overflow_bin + 3;
  double tallest = 0;
  std::string data =
      "# exponent e of the bin (2^e, 2^(e+1)]\tpercent of the non-zero values\tzone; one block a tensor\n";
  for (const std::size_t tensor : panels) {
    const ExponentHistogram& histogram = snapshot.histograms[tensor];
    const double total = std::max<double>(1, static_cast<double>(histogram.finite_nonzero()));
    data += fmt::format("# {}\n", gradients.tensors[tensor]);
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
      if (histogram.at(e) == 0) continue;
      const double share = 100 * static_cast<double>(histogram.at(e)) / total;
      data += fmt::format("{}\t{:.6g}\t{}\n", e, share, zone_of(e));
      if (share > 0.05) {
        low = std::min(low, e - 1);
        high = std::max(high, e + 2);
      }
      tallest = std::max(tallest, share);
    }
    if (histogram.finite_nonzero() == 0) data += "nan\tnan\tnan\n";
    data += block_end;
  }
  low = std::max(low, lost_below - 26);

  const int columns = panels.size() <= 2 ? static_cast<int>(panels.size()) : panels.size() == 4 ? 2 : 3;
  const int rows = (static_cast<int>(panels.size()) + columns - 1) / columns;
  const int height = 110 + 210 * rows;
  const std::string title = fmt::format(
      "Gradient magnitudes before the cast to FP16, {}, {}, step {}, loss scale {}", input.workload.name,
      pretty(configuration.label), snapshot.step, pretty(scale_text(snapshot.loss_scale)));
  std::string body = fmt::format(
      "  set multiplot layout {},{} title {} noenhanced font \",14\" margins 0.055,0.985,{:.3f},{:.3f} "
      "spacing 0.035,{:.3f}\n",
      rows, columns, gnuplot_string(title), 72.0 / height, 1 - 88.0 / height, 80.0 / height);
  const auto legend = [&](int label, double x, std::string_view zone, std::string_view color) {
    body += fmt::format("  set label {} \"{{/:Bold {}}}\" at screen {},screen {:.3f} left tc rgb \"{}\"\n",
                        label, zone, x, 1 - 44.0 / height, color);
  };
  legend(100, 0.055, "rounds to zero: to 2⁻²⁵", lost_color);
  legend(101, 0.26, "subnormal: to 2⁻¹⁴", subnormal_color);
  legend(102, 0.43, "normal", normal_color);
  legend(103, 0.51, "overflow: from 65520", overflow_color);
  body += fmt::format(
      "  set label 104 \"percent of the non-zero values\" at screen 0.985,screen {:.3f} right tc rgb "
      "\"#555555\"\n"
      "  set label 105 \"Magnitude with the loss scale in it. To nearest even, |y| ≤ 2⁻²⁵ becomes zero; "
      "values between "
      "2⁻²⁵ and 2⁻²⁴ round up to 2⁻²⁴.\" at screen 0.055,screen {:.3f} left tc rgb \"#555555\"\n",
      1 - 44.0 / height, 18.0 / height);
  body += "  set key off\n  set boxwidth 0.92\n  unset grid\n";
  body += fmt::format("  set xrange [{}:{}]\n  set yrange [0:{:.3g}]\n", low, high,
                      1.12 * std::max(tallest, 1.0));
  body += "  set xtics 8 format \"2^{%.0f}\"\n";
  int object = 1;
  const auto shade = [&](int from, int to, std::string_view color) {
    body += fmt::format(
        "  set object {} rectangle from first {},graph 0 to first {},graph 1 behind fc rgb \"{}\" fs solid "
        "0.09 noborder\n",
        object++, from, to, color);
  };
  shade(low, lost_below, lost_color);
  shade(lost_below, normal_from, subnormal_color);
  shade(normal_from, overflow_bin + 1, normal_color);
  shade(overflow_bin + 1, high, overflow_color);
  for (const int edge : {lost_below, normal_from, overflow_bin + 1})
    body += fmt::format(
        "  set arrow {} from first {},graph 0 to first {},graph 1 nohead back lc rgb \"#888888\" lw 0.8 dt "
        "2\n",
        object++, edge, edge);
  int block = 0;
  for (const std::size_t tensor : panels) {
    const analysis::ZoneRates rates =
        analysis::rates_of(count_ranges(snapshot.histograms[tensor], fp16_range, 1.0));
    if (block == 1) body += "  do for [i=100:105] { unset label i }\n";  // the legend is there once
    body += fmt::format(
        "  set label 1 {} at graph 0,graph 1.17 left\n"
        "  set label 2 \"exact zeros {}\" at graph 1,graph 1.17 right font \"DejaVu Sans,10\" tc rgb "
        "\"#555555\"\n",
        gnuplot_bold(gradients.tensors[tensor]), rate_text(rates.zero));
    // Each zone has its rate above it, in its colour; the last one is too narrow to be centred over.
    const auto zone_rate = [&](int label, const analysis::RateInterval& rate, std::string_view x,
                               std::string_view alignment, std::string_view color) {
      body +=
          fmt::format("  set label {} \"{}\" at {},graph 1.055 {} font \"DejaVu Sans,10\" tc rgb \"{}\"\n",
                      label, rate_text(rate), x, alignment, color);
    };
    const auto middle = [](int from, int to) { return fmt::format("first {}", 0.5 * (from + to)); };
    zone_rate(3, rates.lost, middle(low, lost_below), "center", lost_color);
    zone_rate(4, rates.subnormal, middle(lost_below, normal_from), "center", subnormal_color);
    zone_rate(5, rates.normal, middle(normal_from, overflow_bin + 1), "center", normal_color);
    zone_rate(6, rates.overflow, "graph 1", "right", overflow_color);
    // All panels have the same axes: the first of a row names the heights.
    body += fmt::format("  set ytics format \"{}\"\n", block % columns == 0 ? "%.0f %%" : "");
    const std::string file = gnuplot_string(stem) + ".\".dat\"";
    const auto boxes = [&](int zone, std::string_view style, std::string_view color) {
      return fmt::format("    {} index {} using ($3=={} ? $1+0.5 : 1/0):2 with boxes {} lc rgb \"{}\"", file,
                         block, zone, style, color);
    };
    body += "  plot \\\n" + boxes(0, "fs pattern 4", lost_color) + ", \\\n" +
            boxes(1, "fs solid 0.55", subnormal_color) + ", \\\n" + boxes(2, "fs solid 0.95", normal_color) +
            ", \\\n" + boxes(3, "fs pattern 5", overflow_color) + ", \\\n" +
            boxes(4, "fs solid 0.95", overflow_color) + "\n";
    ++block;
  }
  body += "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, title, 380 * columns + 60, height, body));
  return {stem, input.workload.name, title};
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

}  // namespace

std::vector<Figure> write_histogram_figures(const WorkloadFigures& input,
                                            const std::filesystem::path& folder) {
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < input.gradients.size(); ++i) {
    const Configuration& configuration = input.workload.configurations[i];
    if (configuration.id.precision == Precision::fp32 || input.gradients[i].snapshots.empty()) continue;
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
  const auto add = [&](const std::string& name, const analysis::ScaledHistograms& gradients) {
    data += fmt::format("# {}\n", name);
    for (const analysis::WhatIf& point : analysis::what_if(gradients, fp16_range)) {
      const analysis::ZoneRates rates = analysis::rates_of(point.counts);
      data += fmt::format("{}\t{:.6g}\t{:.6g}\n", point.log2_scale, 100 * rates.lost.middle(),
                          100 * rates.overflow.upper);
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
    add(base->tensors[i], base->report.tensor(base->tensors[i]));
    const std::size_t dot = std::min(base->tensors[i].rfind('.'), base->tensors[i].size());
    const std::size_t layer = place_of(layers, base->tensors[i].substr(0, dot));
    const std::size_t part = place_of(parts, base->tensors[i].substr(dot));
    plot +=
        fmt::format("    {}.\".dat\" index {} using 1:2 with lines lw 2 dt {} lc rgb \"{}\" title {}, \\\n",
                    gnuplot_string(stem), block++, dashes.at(part % dashes.size()), layer_color(layer),
                    gnuplot_string(base->tensors[i]));
  }
  add("all tensors", base->report.merged());
  plot += fmt::format(
      "    {0}.\".dat\" index {1} using 1:2 with lines lw 5 dt 1 lc rgb \"#333333\" title \"all tensors\", "
      "\\\n"
      "    {0}.\".dat\" index {1} using 1:3 with lines lw 3 dt (6,4) lc rgb \"{2}\" title \"overflow, all "
      "tensors\"\n",
      gnuplot_string(stem), block, overflow_color);
  const std::string title =
      fmt::format("What each loss scale would lose, {}: gradients of {}", input.workload.name, pretty(label));
  std::string body = fmt::format("  set title {} noenhanced font \",14\"\n", gnuplot_string(title));
  body += "  set key outside right top Left reverse samplen 2.5 spacing 1.15\n";
  body += "  set xlabel \"loss scale\"\n  set ylabel \"non-zero gradients that round to zero (%)\"\n";
  body += fmt::format("  set xrange [{}:{}]\n  set xtics 2 format \"2^{{%.0f}}\"\n  set yrange [0:*]\n",
                      analysis::min_log2_scale, analysis::max_log2_scale);
  body += "  plot \\\n" + plot;
  const int height = std::max(460, 110 + 19 * (block + 2));
  write_pair(folder, stem, data, gnuplot_script(stem, title, 1000, height, body));
  return {{stem, input.workload.name, title}};
}

std::vector<Figure> write_heat_map_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  // The story in three panels: no scaling, the smallest fixed scale, an adaptive policy.
  std::vector<std::size_t> shown;
  for (const Scaling scaling : {Scaling::none, Scaling::fixed, Scaling::adaptive})
    for (std::size_t i = 0; i < input.gradients.size(); ++i) {
      const ConfigurationId& id = input.workload.configurations[i].id;
      if (id.precision == Precision::fp32 || id.scaling != scaling || input.gradients[i].snapshots.empty())
        continue;
      shown.push_back(i);
      break;
    }
  if (shown.empty()) return {};
  const std::string stem = "underflow-over-steps-" + slug(input.workload.name);
  const std::string title =
      fmt::format("Non-zero gradients that round to zero, by tensor (weights, then activations) and step, {}",
                  input.workload.name);
  std::string data = "# column\trow\tpercent lost at the step's own scale; one block a configuration\n";
  std::string plots;
  std::size_t tensor_rows = 0;
  for (std::size_t block = 0; block < shown.size(); ++block) {
    const RunGradients& gradients = input.gradients[shown[block]];
    const std::size_t rows = gradients.tensors.size(), columns = gradients.snapshots.size();
    tensor_rows = std::max(tensor_rows, rows);
    data += fmt::format("# {}\n", input.workload.configurations[shown[block]].label);
    std::string ytics, xtics;
    double highest = 0;
    // Weight gradients above, activation gradients below, a line between them.
    std::vector<std::size_t> order(rows);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return gradients.kinds[a] == "weight" && gradients.kinds[b] != "weight";
    });
    const auto weights =
        static_cast<std::size_t>(std::count(gradients.kinds.begin(), gradients.kinds.end(), "weight"));
    for (std::size_t r = 0; r < rows; ++r) {
      ytics += fmt::format("{}{} {}", r == 0 ? "" : ", ", gnuplot_string(gradients.tensors[order[r]]), r);
      for (std::size_t c = 0; c < columns; ++c) {
        const double lost =
            100 * underflow_rate(gradients.snapshots[c].histograms[order[r]], fp16_range, 1.0);
        highest = std::max(highest, lost);
        data += fmt::format("{}\t{}\t{:.4g}\n", c, r, lost);
      }
    }
    data += block_end;
    const std::size_t every = std::max<std::size_t>(1, (columns + 7) / 8);
    for (std::size_t c = 0; c < columns; c += every)
      xtics += fmt::format("{}\"{}\" {}", c == 0 ? "" : ", ", gradients.snapshots[c].step, c);
    plots += fmt::format("  set title {}\n",
                         gnuplot_bold(pretty(input.workload.configurations[shown[block]].label)));
    plots += block == 0 ? fmt::format("  set ytics noenhanced ({}) font \"DejaVu Sans,10\"\n", ytics)
                        : "  unset ytics\n";
    plots += fmt::format("  set xtics ({}) font \"DejaVu Sans,10\"\n", xtics);
    plots += weights > 0 && weights < rows ? fmt::format(
                                                 "  set arrow 1 from graph 0,first {0} to graph 1,first {0} "
                                                 "nohead front lc rgb \"#333333\" lw 1.5\n",
                                                 static_cast<double>(weights) - 0.5)
                                           : std::string("  unset arrow 1\n");
    plots += highest == 0 ? "  set label 1 \"nothing rounds to zero\" at graph 0.5,graph 0.5 center front tc "
                            "rgb \"#555555\"\n"
                          : "  unset label 1\n";
    plots += fmt::format("  set xrange [-0.5:{}]\n  set yrange [{}:-0.5]\n",
                         static_cast<double>(columns) - 0.5, static_cast<double>(rows) - 0.5);
    plots += block + 1 == shown.size()
                 ? "  set colorbox user origin screen 0.93,screen 0.2 size screen 0.013,screen 0.55\n"
                 : "  unset colorbox\n";
    plots += fmt::format("  plot {}.\".dat\" index {} using 1:2:3 with image pixels notitle\n",
                         gnuplot_string(stem), block);
  }
  const int height = 150 + 24 * static_cast<int>(tensor_rows);
  std::string body = fmt::format(
      "  set multiplot layout 1,{} title {} noenhanced font \",14\" margins 0.14,0.91,{:.3f},{:.3f} spacing "
      "0.02\n",
      shown.size(), gnuplot_string(title), 62.0 / height, 1 - 72.0 / height);
  body += fmt::format("  set palette defined ({})\n", underflow_palette);
  body +=
      "  set cbrange [0:100]\n  set format cb \"%.0f %%\"\n  set key off\n  unset grid\n  set border 15 lc "
      "rgb \"#555555\"\n  set xlabel \"step\"\n";
  body += plots + "  unset multiplot\n";
  write_pair(folder, stem, data, gnuplot_script(stem, title, 1150, height, body));
  return {{stem, input.workload.name, title}};
}

}  // namespace fp16lab::reports
