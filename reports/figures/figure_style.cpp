#include "reports/figures/figure_style.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "numerics/random/philox.hpp"
#include "reports/figures/gnuplot.hpp"
#include "reports/figures/text_fit.hpp"

namespace fp16lab::reports {
namespace {

/// Width and dashes of line `index` of `count` that are drawn over one another. Within a row all lines have
/// the same period and ever shorter dashes, so each shows where those above it pause; a second row is
/// narrower, so the first shows at its sides.
LineStyle stacked_style(std::size_t index, std::size_t count) {
  static constexpr int period = 18;
  const bool two_rows = count > 3;
  const std::size_t in_first = two_rows ? (count + 1) / 2 : count;
  const bool first = index < in_first;
  const std::size_t place = first ? index : index - in_first, row = first ? in_first : count - in_first;
  LineStyle style;
  style.width = !two_rows ? 2.4 : first ? 4.0 : 1.6;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): index < count, so the line's own row is not empty
  style.dash = static_cast<int>(period * (row - place) / row);
  style.gap = period - style.dash;
  return style;
}

/// Where there are more lines than may lie on one another, only some are shown together: then each round of
/// the colours has a dash.
constexpr std::size_t most_stacked = 8;
LineStyle round_style(std::size_t round) {
  static constexpr std::array<std::array<int, 2>, 5> dashes{{{0, 0}, {8, 4}, {2, 3}, {14, 4}, {5, 9}}};
  const auto [dash, gap] = dashes[round % dashes.size()];
  return {"", 2.2, dash, gap};
}

}  // namespace

std::vector<LineStyle> styles_of(const Workload& workload) {
  static constexpr std::array<std::string_view, 5> blues{"#7DB5EA", "#4F93DA", "#2F6DB3", "#1F4E86",
                                                         "#12315A"};
  static constexpr std::array<std::string_view, 5> others{"#009E73", "#CC79A7", "#E69F00", "#444444",
                                                          "#56B4E9"};
  std::size_t fixed = 0, dashed = 0;
  for (const Configuration& configuration : workload.configurations) {
    if (configuration.id.scaling == Scaling::fixed) ++fixed;
    if (!configuration.id.fp32) ++dashed;
  }

  std::vector<LineStyle> styles;
  std::size_t fixed_seen = 0, adaptive_seen = 0, dashed_seen = 0, unscaled_seen = 0;
  for (const Configuration& configuration : workload.configurations) {
    if (configuration.id.fp32) {
      const bool perturbed = configuration.id.perturb_ulps != 0;
      styles.push_back(perturbed ? LineStyle{"#7A7A7A", 6} : LineStyle{"#B4B4B4", 8});
      continue;
    }
    LineStyle style = dashed > most_stacked ? round_style(adaptive_seen / others.size())
                                            : stacked_style(dashed_seen++, dashed);
    if (configuration.id.scaling == Scaling::none && unscaled_seen++ == 0) {
      style.color = lost_color;
    } else if (configuration.id.scaling == Scaling::fixed) {
      const std::size_t shade = fixed <= 1 ? 2 : fixed_seen * (blues.size() - 1) / (fixed - 1);
      style.color = blues[std::min(shade, blues.size() - 1)];
      ++fixed_seen;
    } else {
      style.color = others[adaptive_seen++ % others.size()];
    }
    styles.push_back(std::move(style));
  }
  return styles;
}

std::string line_spec(const LineStyle& style) {
  // gnuplot's dash lengths grow with the line width: one unit is half of it.
  const double unit = style.width / 2;
  const std::string dash =
      style.gap == 0 ? "1" : fmt::format("({:.4g},{:.4g})", style.dash / unit, style.gap / unit);
  return fmt::format("lw {} dt {} lc rgb \"{}\"", style.width, dash, style.color);
}

std::string_view layer_color(std::size_t index) {
  // Okabe and Ito's colour-blind safe set (2008) without its yellow, which is too faint on white.
  static constexpr std::array<std::string_view, 7> colors{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                          "#56B4E9", "#E69F00", "#444444"};
  return colors[index % colors.size()];
}

std::string slug(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-' && i > 0 && text[i - 1] == '^') {  // 2^-3 is not 2^3
      out += "minus";
      continue;
    }
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += upper ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  if (out.size() > longest_slug)
    out = fmt::format("{}-{:016x}", out.substr(0, longest_slug - 17), stream_id(out));
  return out.empty() ? "unnamed" : out;
}

std::string FigureTitle::commands(int figure_height) const {
  return fmt::format("  set label 901 {} at screen 0.5,screen {:.4f} center noenhanced font \",14\"\n",
                     quoted, 1 - 18.0 / figure_height);
}

FigureTitle figure_title(std::string_view text, int width) {
  constexpr int size = 14, line_height = 19, margin = 24;
  const std::vector<std::string> lines = wrapped(text, width - margin, size);
  return {gnuplot_lines(lines), line_height * (static_cast<int>(lines.size()) - 1)};
}

namespace {
constexpr int note_size = 11, note_line = 16;
}

FigureNote::FigureNote(std::string_view text, int width)
    : lines_(text.empty() ? std::vector<std::string>{} : wrapped(text, width - 24, note_size)) {}

int FigureNote::height() const {
  return lines_.empty() ? 0 : note_line * static_cast<int>(lines_.size()) + 6;
}

std::string FigureNote::commands(int figure_height) const {
  if (lines_.empty()) return {};
  // A label of several lines hangs from its place.
  return fmt::format(
      "  set label 900 {} at screen 0.012,screen {:.4f} left noenhanced font \",{}\" tc rgb \"#555555\"\n",
      gnuplot_lines(lines_), (height() - 0.5 * note_line) / figure_height, note_size);
}

std::string coinciding_words(const std::vector<std::vector<std::size_t>>& groups,
                             const std::vector<std::string>& labels) {
  std::string words;
  for (const std::vector<std::size_t>& group : groups) {
    words += words.empty() ? "Coincide: " : "; ";
    for (const std::size_t i : group) words += (i == group.front() ? "" : " = ") + labels[i];
  }
  return words.empty() ? words : words + ".";
}

std::string gnuplot_script(std::string_view stem, std::string_view title, int width, int height,
                           std::string_view body) {
  require_drawing(body);
  return fmt::format(
      "{}{}set encoding utf8\n"
      "set datafile separator \"\\t\"\n"
      "do for [kind in \"svg png\"] {{\n"
      "  reset\n"
      "  set datafile separator \"\\t\"\n"
      "  if (kind eq \"svg\") {{\n"
      "    set terminal svg size {},{} dynamic font \"DejaVu Sans,12\" background \"#FFFFFF\"\n"
      "  }} else {{\n"
      "    set terminal pngcairo size {},{} fontscale 1.5 linewidth 2 pointscale 2 dashlength 2 font "
      "\"DejaVu Sans,12\" background \"#FFFFFF\"\n"
      "  }}\n"
      "  set output {}.\".\".kind\n"
      "  set border 3 lc rgb \"#555555\"\n"
      "  set tics nomirror out scale 0.6\n"
      "  set grid ytics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n"
      "  set key noenhanced\n"
      "{}  unset output\n"
      "}}\n",
      gnuplot_comment(title),
      gnuplot_comment(fmt::format("Draws {0}.svg and {0}.png from {0}.dat; restyle at will and run gnuplot "
                                  "on this file in its folder.",
                                  stem)),
      width, height, 2 * width, 2 * height, gnuplot_string(stem), body);
}

}  // namespace fp16lab::reports
