// What figures have in common: colours, line styles, names of files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

// Colours of the zones of a format, darkened so that they can be read as text on white.
inline constexpr std::string_view lost_color = "#B84F00";
inline constexpr std::string_view subnormal_color = "#3A9BD6";
inline constexpr std::string_view normal_color = "#0072B2";
inline constexpr std::string_view overflow_color = "#A8457F";

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
/// order, lines that overlap show as a broad grey line, on it alternating dashes and, with more than three
/// configurations beside FP32, a second, narrower row of dashes. The page never shows more than eight beside
/// FP32 together; they differ in colour and dash.
std::vector<LineStyle> styles_of(const Workload& workload);

/// File systems allow 255 bytes in a name; a figure's has two slugs and an ending.
inline constexpr std::size_t longest_slug = 96;

/// "Classifier on X (a=b)" -> "classifier-on-x-a-b": letters, digits and single hyphens. What would be longer
/// than longest_slug is cut, and ends with a digest of the whole.
std::string slug(std::string_view text);

}  // namespace fp16lab::reports
