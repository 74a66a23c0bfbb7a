#include "reports/figure_style.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "reports/gnuplot.hpp"

namespace fp16lab::reports {

std::vector<LineStyle> styles_of(const Workload& workload) {
  static constexpr std::array<std::string_view, 5> blues{"#7DB5EA", "#4F93DA", "#2F6DB3", "#1F4E86",
                                                         "#12315A"};
  static constexpr std::array<std::string_view, 3> greens{"#2E7D32", "#00897B", "#7CB342"};
  std::size_t fixed = 0;
  for (const Configuration& configuration : workload.configurations)
    if (configuration.id.scaling == Scaling::fixed) ++fixed;

  std::vector<LineStyle> styles;
  std::size_t fixed_seen = 0, adaptive_seen = 0, plain_seen = 0;
  for (const Configuration& configuration : workload.configurations) {
    if (configuration.id.precision == Precision::fp32) {
      styles.push_back({"#A8A8A8", 6, 1});
    } else if (configuration.id.scaling == Scaling::none) {
      styles.push_back({std::string(lost_color), 2, static_cast<int>(1 + plain_seen++ % 5)});
    } else if (configuration.id.scaling == Scaling::fixed) {
      const std::size_t shade = fixed <= 1 ? 2 : fixed_seen * (blues.size() - 1) / (fixed - 1);
      styles.push_back(
          {std::string(blues[std::min(shade, blues.size() - 1)]), 2, static_cast<int>(1 + fixed_seen % 5)});
      ++fixed_seen;
    } else {
      styles.push_back(
          {std::string(greens[adaptive_seen % greens.size()]), 2, static_cast<int>(1 + adaptive_seen % 5)});
      ++adaptive_seen;
    }
  }
  return styles;
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
  return out.empty() ? "unnamed" : out;
}

std::string gnuplot_script(std::string_view stem, std::string_view title, int width, int height,
                           std::string_view body) {
  return fmt::format(
      "# {}\n"
      "# Draws {}.svg and {}.png from {}.dat; restyle at will and run gnuplot on this file in its folder.\n"
      "set encoding utf8\n"
      "set datafile separator \"\\t\"\n"
      "do for [kind in \"svg png\"] {{\n"
      "  reset\n"
      "  set datafile separator \"\\t\"\n"
      "  if (kind eq \"svg\") {{\n"
      "    set terminal svg size {},{} dynamic font \"DejaVu Sans,12\" background \"#FFFFFF\"\n"
      "  }} else {{\n"
      "    set terminal pngcairo size {},{} fontscale 1.9 linewidth 2 pointscale 2 font \"DejaVu Sans,12\" "
      "background \"#FFFFFF\"\n"
      "  }}\n"
      "  set output {}.\".\".kind\n"
      "  set border 3 lc rgb \"#555555\"\n"
      "  set tics nomirror out scale 0.6\n"
      "  set grid ytics lc rgb \"#DDDDDD\" lt 1 lw 0.7\n"
      "  set key noenhanced\n"
      "{}"
      "  unset output\n"
      "}}\n",
      title, stem, stem, stem, width, height, 2 * width, 2 * height, gnuplot_string(stem), body);
}

}  // namespace fp16lab::reports
