// What each configuration takes: seconds a step, and bytes by class of tensor beside the peak that was
// measured.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/figures/figure_style.hpp"
#include "reports/figures/figures.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// Policies of one level take the same, so a longer list says no more.
constexpr std::size_t most_configurations = 12;
constexpr double mebibyte = 1 << 20;

struct MemoryPart {
  std::string_view title;
  std::uint64_t (*bytes)(const RunMemory&);
};
constexpr std::array<MemoryPart, 4> memory_parts{
    {{"weights, masters", [](const RunMemory& m) { return m.parameters + m.masters; }},
     {"their gradients", [](const RunMemory& m) { return m.gradients; }},
     {"optimizer", [](const RunMemory& m) { return m.optimizer; }},
     {"activations", [](const RunMemory& m) { return m.activations; }}}};

std::string bar(double from, double to, double y) { return fmt::format("{}\t{}\t{}\n", from, to, y); }

}  // namespace

std::vector<Figure> write_costs_figure(const WorkloadFigures& input, const std::filesystem::path& folder) {
  std::vector<const SummaryRow*> rows;
  const SummaryRow* reference = nullptr;
  for (const SummaryRow& row : input.summary.rows) {
    if (!row.memory || !(row.seconds_per_step > 0) || row.is_twin) continue;
    if (row.is_reference) reference = &row;
    rows.push_back(&row);
  }
  if (reference == nullptr || rows.size() < 2 || rows.size() > most_configurations) return {};

  const std::string stem = "costs-" + slug(input.workload.name);
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  std::string times, labels, tics, peaks;
  std::array<std::string, memory_parts.size()> parts;
  double longest = 0, slowest = 0, largest = 0, reference_sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SummaryRow& row = *rows[i];
    const double y = static_cast<double>(i) + 1, ratio = row.seconds_per_step / reference->seconds_per_step;
    times += bar(0, ratio, y);
    labels += fmt::format("  set label \"{:.2f} ({:.3g} ms)\" at first {},{} left offset 0.5,0\n", ratio,
                          1e3 * row.seconds_per_step, ratio, y);
    slowest = std::max(slowest, ratio);
    double end = 0;
    for (std::size_t part = 0; part < memory_parts.size(); ++part) {
      const double begin = end;
      end += static_cast<double>(memory_parts[part].bytes(*row.memory)) / mebibyte;
      parts[part] += bar(begin, end, y);
    }
    const double peak = static_cast<double>(row.memory->peak) / mebibyte;
    peaks += fmt::format("{}\t{}\n", peak, y);
    largest = std::max({largest, end, peak});
    if (&row == reference) reference_sum = end;
    const std::string name = pretty(row.label);
    longest = std::max(longest, text_width(name, 12));
    tics += fmt::format("{}{} {}", tics.empty() ? "" : ", ", gnuplot_tic(name), y);
  }
  std::string data =
      "# from, to, position: times against FP32; then MiB of each class; peaks; half of FP32\n" + times;
  for (const std::string& part : parts) data += std::string(block_end) + part;
  const double below = static_cast<double>(rows.size()) + 0.6;
  data += std::string(block_end) + peaks + std::string(block_end) +
          fmt::format("{0}\t0.4\n{0}\t{1}\n", reference_sum / 2, below);

  const std::string text = "Time and memory of a step: " + input.workload.name;
  const int names = static_cast<int>(longest) + 24, width = names + 780;
  const FigureTitle title = figure_title(text, width);
  const FigureNote note(
      "Left: median seconds of a step against FP32, on the machine that trained, with whatever else it did: "
      "equal work may differ by half. Right: bytes by shapes and dtypes; cross: the most that was alive at "
      "once, scratch included. Dashed: half of FP32, what 16 bits everywhere would take.",
      width);
  const int above = 100 + title.extra_height, under = 62 + note.height();
  const int height = above + under + 30 + 24 * static_cast<int>(rows.size());
  const auto place = [width](int x) { return static_cast<double>(x) / width; };
  std::string body = title.commands(height) + note.commands(height);
  body += "  set multiplot\n  set style fill solid 0.9 noborder\n";
  body += fmt::format(
      "  set tmargin at screen {:.4f}\n  set bmargin at screen {:.4f}\n  set yrange [{}:0.4]\n"
      "  set grid xtics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n",
      1 - static_cast<double>(above) / height, static_cast<double>(under) / height, below);
  const auto bars = [&](std::size_t block, std::string_view color, std::string_view titled) {
    return fmt::format(
        "{} index {} using (0):3:1:2:($3-0.36):($3+0.36) with boxxyerror lc rgb \"{}\" title \"{}\"", file,
        block, color, titled);
  };
  body += fmt::format(
      "  set lmargin at screen {:.4f}\n  set rmargin at screen {:.4f}\n  set ytics noenhanced ({})\n"
      "  set xlabel \"times FP32's seconds a step\"\n  set xrange [0:{}]\n  set key off\n{}  plot {}\n",
      place(names), place(names + 330), tics, slowest * 1.65, labels, bars(0, "#666666", ""));
  body += fmt::format(
      "  unset label\n  unset title\n  set lmargin at screen {:.4f}\n  set rmargin at screen {:.4f}\n"
      "  unset ytics\n  set xlabel \"MiB\"\n  set xrange [0:{}]\n"
      "  set key at screen 0.985, screen {:.4f} right top horizontal maxrows 1 samplen 1\n  plot ",
      place(names + 370), place(width - 20), largest * 1.06, 1 - static_cast<double>(above - 58) / height);
  for (std::size_t part = 0; part < memory_parts.size(); ++part)
    body += bars(part + 1, layer_color(part), memory_parts[part].title) + ", \\\n    ";
  body += fmt::format(
      "{0} index {1} using 1:2 with points pt 2 ps 1.2 lw 2 lc rgb \"#000000\" title \"peak\", \\\n"
      "    {0} index {2} using 1:2 with lines lw 1.2 dt (4,3) lc rgb \"#555555\" notitle\n  unset "
      "multiplot\n",
      file, memory_parts.size() + 1, memory_parts.size() + 2);
  write_pair(folder, stem, data, gnuplot_script(stem, text, width, height, body));
  return {{stem, input.workload.name, text}};
}

}  // namespace fp16lab::reports
