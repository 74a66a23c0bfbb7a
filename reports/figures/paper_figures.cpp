// Three figures: updates of weights, activation gradients of two networks, what a loss scale saves.
#include <fmt/format.h>

#include <algorithm>

#include "numerics/formats/format_range.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {
namespace {

constexpr int lost_edge = fp16_range.tie_to_zero;
constexpr int normal_edge = fp16_range.smallest_normal;
constexpr int first_exponent = -52, last_exponent = -4;

/// Percent by exponent, of `of`; one line a bin, a column for each histogram.
std::string columns(const std::vector<std::pair<const ExponentHistogram*, std::uint64_t>>& histograms) {
  std::string data;
  for (int e = first_exponent; e <= last_exponent; ++e) {
    data += fmt::format("{}", e);
    for (const auto& [histogram, of] : histograms)
      data += fmt::format(
          "\t{:.6g}", of == 0 ? 0 : 100 * static_cast<double>(histogram->at(e)) / static_cast<double>(of));
    data += '\n';
  }
  return data;
}

std::string zones(int low, int high) {
  std::string body;
  int object = 1;
  const auto shade = [&](int from, int to, std::string_view color) {
    body += fmt::format(
        "  set object {} rectangle from first {},graph 0 to first {},graph 1 behind fc rgb \"{}\" fs solid "
        "0.09 noborder\n",
        object++, from, to, color);
  };
  shade(low, lost_edge, lost_color);
  shade(lost_edge, normal_edge, subnormal_color);
  shade(normal_edge, high, normal_color);
  const auto name = [&](double x, std::string_view words, std::string_view color) {
    body += fmt::format("  set label \"{}\" at first {},graph 0.97 center front tc rgb \"{}\"\n", words, x,
                        color);
  };
  name(0.5 * (low + lost_edge), "rounds to zero in FP16", lost_color);
  name(0.5 * (lost_edge + normal_edge), "subnormal", subnormal_color);
  name(0.5 * (normal_edge + high), "normal", normal_color);
  return body;
}

std::string frame(std::string_view title, std::string_view x, std::string_view y) {
  return fmt::format(
      "  set title {} noenhanced\n  set xlabel {} noenhanced\n  set ylabel {} noenhanced\n"
      "  set xtics 4 format \"2^{{%.0f}}\"\n  set xrange [{}:{}]\n  set yrange [0:*]\n  set offsets "
      "0,0,graph 0.12,0\n",
      gnuplot_string(title), gnuplot_string(x), gnuplot_string(y), first_exponent + 8, last_exponent);
}

struct PaperDrawing {
  std::string stem, title, data{}, body{};
  int width = 860, height = 440;
};

/// Percent of the weights that move in a step.
double moved_percent(const PaperFigures::Updates& updates) {
  return 100 * static_cast<double>(updates.magnitudes.finite_nonzero()) /
         static_cast<double>(std::max<std::uint64_t>(1, updates.elements));
}

PaperDrawing updates(const PaperFigures& figures) {
  const PaperFigures::Updates &with = figures.with_masters, &without = figures.without_masters;
  PaperDrawing drawing{
      .stem = "weight-updates",
      .title = "Updates of weights, SGD at 0.01: FP32 masters take them all, FP16 weights only the large"};
  drawing.data = "# exponent e of (2^e, 2^(e+1)]\tpercent of all weights: masters\tno masters\n" +
                 columns({{&with.magnitudes, with.elements}, {&without.magnitudes, without.elements}});
  drawing.body = frame(drawing.title, "magnitude of the update", "percent of all weights in a step") +
                 zones(first_exponent + 8, last_exponent);
  drawing.body += "  set key below height 1\n  set boxwidth 0.9\n";
  drawing.body += fmt::format(
      "  plot \"{0}.dat\" using ($1+0.5):2 with boxes fs solid 0.75 lc rgb \"#9AA5B1\" title \"with FP32 "
      "masters ({1:.1f} % of weights move)\", \\\n"
      "    \"{0}.dat\" using ($1+0.5):3 with boxes fs pattern 4 lc rgb \"#B84F00\" lw 1.6 title \"FP16 "
      "weights alone ({2:.1f} % move)\"\n",
      drawing.stem, moved_percent(with), moved_percent(without));
  return drawing;
}

PaperDrawing activation_gradients(const PaperFigures& figures) {
  PaperDrawing drawing{
      .stem = "activation-gradients",
      .title = "Activation gradients of FP32 training, before any cast (the paper's figure 3)"};
  drawing.data =
      "# exponent e of (2^e, 2^(e+1)]\tpercent of the non-zero values: needs scaling\tdoes not\tSSD's bars\n";
  for (int e = first_exponent; e <= last_exponent; ++e) {
    const auto ssd = figures.paper_percent.find(e);
    const auto share = [e](const ExponentHistogram& h) {
      return 100 * static_cast<double>(h.at(e)) /
             static_cast<double>(std::max<std::uint64_t>(1, h.finite_nonzero()));
    };
    drawing.data +=
        fmt::format("{}\t{:.6g}\t{:.6g}\t{:.6g}\n", e, share(figures.needs_scaling),
                    share(figures.no_scaling), ssd == figures.paper_percent.end() ? 0.0 : ssd->second);
  }
  drawing.body = frame(drawing.title, "magnitude at loss scale 1", "percent of the non-zero values") +
                 zones(first_exponent + 8, last_exponent);
  drawing.body += "  set key below height 1\n";
  drawing.body += fmt::format(
      "  plot \"{0}.dat\" using ($1+0.5):2 with linespoints lw 2.4 pt 7 ps 0.6 lc rgb \"#B84F00\" title "
      "\"autoencoder, mean over 25.7 million: needs scaling\", \\\n"
      "    \"{0}.dat\" using ($1+0.5):3 with linespoints lw 2.4 pt 5 ps 0.6 lc rgb \"#0072B2\" title "
      "\"classifier: does not\", \\\n"
      "    \"{0}.dat\" using ($1+0.5):4 with lines lw 2 dt (6,4) lc rgb \"#555555\" title \"Multibox SSD, "
      "read off the paper\"\n",
      drawing.stem);
  return drawing;
}

PaperDrawing lost_against_scale(const PaperFigures& figures) {
  PaperDrawing drawing{.stem = "lost-against-scale",
                       .title = "Non-zero activation gradients that round to zero, against the loss scale"};
  drawing.data = "# log2 scale\tpercent lost: needs scaling\tdoes not\tSSD's bars, threshold 2^-24\n";
  for (std::size_t k = 0; k < figures.lost.size(); ++k)
    drawing.data += fmt::format("{}\t{:.6g}\t{:.6g}\t{:.6g}\n", k, figures.lost[k].needs_scaling,
                                figures.lost[k].no_scaling, figures.lost[k].paper);
  drawing.body = fmt::format(
      "  set title {0} noenhanced\n  set xlabel \"loss scale\"\n  set ylabel \"percent of the non-zero "
      "values\"\n"
      "  set xtics (\"1\" 0, \"8\" 3, \"128\" 7, \"1024\" 10, \"32K\" 15)\n  set xrange [0:16]\n  set yrange "
      "[0:100]\n"
      "  set grid xtics\n  set key below height 1\n"
      "  plot \"{1}.dat\" using 1:2 with linespoints lw 2.4 pt 7 ps 0.6 lc rgb \"#B84F00\" title \"needs "
      "scaling\", \\\n"
      "    \"{1}.dat\" using 1:3 with linespoints lw 2.4 pt 5 ps 0.6 lc rgb \"#0072B2\" title \"does not\", "
      "\\\n"
      "    \"{1}.dat\" using 1:4 with lines lw 2 dt (6,4) lc rgb \"#555555\" title \"Multibox SSD, from the "
      "paper's bars\"\n",
      gnuplot_string(drawing.title), drawing.stem);
  return drawing;
}

}  // namespace

std::string draw_paper_figures(const PaperFigures& figures, const std::filesystem::path& folder) {
  for (const PaperDrawing& drawing :
       {updates(figures), activation_gradients(figures), lost_against_scale(figures)}) {
    std::string failure =
        draw_pair(folder, drawing.stem, drawing.data,
                  gnuplot_script(drawing.stem, drawing.title, drawing.width, drawing.height, drawing.body));
    if (!failure.empty()) return failure;
  }
  return {};
}

}  // namespace fp16lab::reports
