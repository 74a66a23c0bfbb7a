#include "reports/figures/gnuplot.hpp"

#include <fmt/core.h>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "reports/figures/drawing_program.hpp"

namespace fp16lab::reports {
std::string run_gnuplot(const std::string& program, const std::filesystem::path& script) {
  const std::string name = script.filename().string(), log = name + ".log";
  const std::filesystem::path folder = script.parent_path().empty() ? "." : script.parent_path();
  const std::filesystem::path data = std::filesystem::path(name).replace_extension(".dat");
  switch (draw({program, name}, {folder / name, folder / data}, folder, log)) {
    case Drawing::done:
      return {};
    case Drawing::not_installed:
      return fmt::format("{} is not installed (Debian: gnuplot-nox); the figures' scripts and data are in {}",
                         program, folder.string());
    case Drawing::failed:
      break;
  }
  return fmt::format("gnuplot failed on {}; its messages are in {}", script.string(),
                     (folder / log).string());
}

void write_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                const std::string& script) {
  write_file_atomically(folder / (stem + ".dat"), data);
  write_file_atomically(folder / (stem + ".gp"), script);
}

std::string draw_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                      const std::string& script, const std::string& program) {
  make_folders(folder);
  write_pair(folder, stem, data, script);
  return run_gnuplot(program, folder / (stem + ".gp"));
}

std::string gnuplot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '`') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::string gnuplot_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : ".\"\\n\".") + gnuplot_string(line);
  return out;
}

std::string gnuplot_bold(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("{}^_@&~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return gnuplot_string("{/:Bold " + escaped + "}");
}

}  // namespace fp16lab::reports
