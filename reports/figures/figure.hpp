// Figures as files: STEM.figure.json, which describes the figure, and the picture that draw.js makes of it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fp16lab::reports {

struct DrawingOptions {
  std::string node = "node";          ///< the program that runs draw.js
  std::string rsvg = "rsvg-convert";  ///< the program that makes PNG and PDF of SVG
  /// "3.3in", "84mm", "8.4cm", "240pt", or pixels of 1/96 inch; empty: each figure's own. std::invalid_argument
  /// for another text (require_width).
  std::string width{};
  bool title = true;  ///< false: pictures without their titles, for papers that have captions
  bool pdf = false;   ///< STEM.pdf beside STEM.svg and STEM.png
};

/// Throws std::invalid_argument for a width that draw.js does not take.
void require_width(std::string_view width);

/// Writes `folder`/STEM.figure.json (`figure` as figures/figure.js describes it) and draw.js,
/// makes the folder where it is missing, and draws STEM.svg, STEM.png and, on demand, STEM.pdf. Returns an empty string, or in
/// one line what was not drawn and why: the files that are written stay, and "node draw.js STEM.figure.json" draws them elsewhere.
std::string draw_figure(const nlohmann::ordered_json& figure, const std::filesystem::path& folder,
                        const DrawingOptions& options = {});

/// The same of all figures of a report, as figures/describe.js finds them in `data` (report_data()).
std::string draw_report_figures(const std::string& data, const std::filesystem::path& folder,
                                const DrawingOptions& options);

}  // namespace fp16lab::reports
