// What the figures have in common: colours, line styles, names of files, the frame of a gnuplot script.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/run_set.hpp"

namespace fp16lab::reports {

/// Zones of FP16. Colour is never the only sign: figures add labels and patterns.
inline constexpr std::string_view lost_color = "#B3261E";
inline constexpr std::string_view subnormal_color = "#C98A00";
inline constexpr std::string_view normal_color = "#2F6DB3";
inline constexpr std::string_view overflow_color = "#7B3FA0";

struct LineStyle {
  std::string color;  ///< "#2F6DB3"
  int width = 2;
  int dash = 1;  ///< gnuplot dash type; 1 is solid
};

/// One style a configuration: FP32 a broad grey line under the others, no scaling red, fixed scales blues
/// that darken as the scale grows, adaptive policies green.
std::vector<LineStyle> styles_of(const Workload& workload);

/// A colour that tells layer `index` from its neighbours.
std::string_view layer_color(std::size_t index);

/// "Classifier on X (a=b)" -> "classifier-on-x-a-b": letters, digits and single hyphens.
std::string slug(std::string_view text);

/// A script that runs `body` once for SVG and once for PNG at twice the resolution; width and height in
/// pixels of the SVG.
std::string gnuplot_script(std::string_view stem, std::string_view title, int width, int height,
                           std::string_view body);

}  // namespace fp16lab::reports
