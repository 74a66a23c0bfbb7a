// What the figures have in common: colours, line styles, names of files, the frame of a gnuplot script.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

/// Zones of FP16, after Okabe and Ito's colour-blind safe set (2008), the first and the last darkened so that
/// they can be read as text on white. Colour is never the only sign: figures add labels and patterns.
inline constexpr std::string_view lost_color = "#B84F00";
inline constexpr std::string_view subnormal_color = "#3A9BD6";
inline constexpr std::string_view normal_color = "#0072B2";
inline constexpr std::string_view overflow_color = "#A8457F";

/// ColorBrewer's Blues for gnuplot: the more, the darker on white paper, whatever the figure's largest share;
/// even in lightness, so that it also reads in grey. Places are percent.
inline constexpr std::string_view underflow_palette =
    "0 \"#FFFFFF\", 0.1 \"#DEEBF7\", 1 \"#B4D3E9\", 10 \"#6BAED6\", 40 \"#2171B5\", 100 \"#08306B\"";

struct LineStyle {
  std::string color;  ///< "#2F6DB3"
  double width = 2;   ///< pixels
  int dash = 0;       ///< pixels on, then `gap` pixels off
  int gap = 0;        ///< 0: solid
};

/// One style a configuration: FP32 a broad grey line under the others, on it its twin in darker grey, no
/// scaling vermilion, fixed scales blues that darken as the scale grows, adaptive policies the other colours
/// of Okabe and Ito in turn, green first.
///
/// Curves of configurations that work coincide, so every style leaves room for the ones below it: drawn in
/// order, lines that lie on one another show as a broad grey line, on it alternating dashes and, with more
/// than three configurations beside FP32, a second, narrower row of dashes. More than eight beside FP32 are
/// never all shown together; they differ in colour and dash.
std::vector<LineStyle> styles_of(const Workload& workload);

/// "lw 2.4 dt (14,10) lc rgb \"#2E7D32\"": `style` in a gnuplot script of gnuplot_script().
std::string line_spec(const LineStyle& style);

/// A colour that tells layer `index` from its neighbours.
std::string_view layer_color(std::size_t index);

/// File systems allow 255 bytes in a name; a figure's has two slugs and an ending.
inline constexpr std::size_t longest_slug = 96;

/// "Classifier on X (a=b)" -> "classifier-on-x-a-b": letters, digits and single hyphens. What would be longer
/// than longest_slug is cut, and ends with a digest of the whole.
std::string slug(std::string_view text);

/// A figure's title in as many lines as its width needs.
struct FigureTitle {
  std::string quoted;    ///< for gnuplot's multiplot
  int extra_height = 0;  ///< pixels of the lines behind the first
  /// For a figure of one plot, whose own title would stand in the middle of the axes, not of the picture.
  std::string commands(int figure_height) const;
};
FigureTitle figure_title(std::string_view text, int width);

/// Small print along a figure's lower edge, in as many lines as it needs.
class FigureNote {
 public:
  FigureNote(std::string_view text, int width);
  /// Pixels to be added to the figure's height and to its lower margin; 0 without text.
  int height() const;
  /// The label, in a figure of `figure_height` pixels in all.
  std::string commands(int figure_height) const;

 private:
  std::vector<std::string> lines_;
};

/// Which of `count` curves are drawn over one another, first ones first; curves that are alone are in no
/// group. `same` takes two indices.
template <class Same>
std::vector<std::vector<std::size_t>> coinciding(std::size_t count, Same same) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < count; ++i) {
    bool found = false;
    for (std::vector<std::size_t>& group : groups)
      if (!found && same(group.front(), i)) {
        group.push_back(i);
        found = true;
      }
    if (!found) groups.push_back({i});
  }
  std::erase_if(groups, [](const std::vector<std::size_t>& group) { return group.size() < 2; });
  return groups;
}

/// "Coincide: FP32 = FP16 torch; a = b = c." Empty without groups.
std::string coinciding_words(const std::vector<std::vector<std::size_t>>& groups,
                             const std::vector<std::string>& labels);

/// A script that runs `body` once for SVG and once for PNG at twice the resolution; width and height in
/// pixels of the SVG. `title` is the script's first comment; the one that readers see is drawn by the body
/// (figure_title).
std::string gnuplot_script(std::string_view stem, std::string_view title, int width, int height,
                           std::string_view body);

}  // namespace fp16lab::reports
