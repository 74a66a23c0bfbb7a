#include "reports/figures/gnuplot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"
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

namespace {

/// As SVG can hold it: gnuplot writes '>' as it is, which XML forbids after "]]".
std::string drawable(std::string_view text) {
  std::string drawn = printable(text);
  for (std::size_t at = 0; (at = drawn.find("]]>", at)) != std::string::npos;) drawn.replace(at + 2, 1, "＞");
  return drawn;
}

/// `text`, which is printable, between quotes; `markup` is what gets a backslash before it, for enhanced
/// text.
std::string quoted(std::string_view text, std::string_view markup) {
  std::string out = "\"";
  bool octal = false;  // gnuplot takes a digit that follows for a part of the number
  for (const char c : text) {
    if (markup.find(c) != std::string_view::npos) out += "\\134";
    octal =
        std::string_view("\"'\\`{}@#$").find(c) != std::string_view::npos || (octal && c >= '0' && c <= '9');
    out += octal ? fmt::format("\\{:03o}", static_cast<unsigned>(c)) : std::string(1, c);
  }
  return out + '"';
}

}  // namespace

std::string gnuplot_string(std::string_view text) { return quoted(drawable(text), ""); }

std::string gnuplot_tic(std::string_view text) {
  std::string format;
  for (const char c : drawable(text)) format += c == '%' ? "%%" : std::string(1, c);
  return quoted(format, "");
}

std::string gnuplot_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : ".\"\\n\".") + gnuplot_string(line);
  return out;
}

std::string gnuplot_bold(std::string_view text) {
  // gnuplot 5.4 writes an escaped '&' into SVG as it is, which is no XML then.
  std::string shown;
  for (const char c : drawable(text)) shown += c == '&' ? "＆" : std::string(1, c);
  std::string inner = quoted(shown, "{}^_@~\\");
  // An escaped backslash before "U+0001" makes a character of it all the same.
  for (std::size_t at = 0; (at = inner.find("\\134U+", at)) != std::string::npos;)
    inner.replace(at + 4, 1, "{U}");
  return "\"{/:Bold " + inner.substr(1, inner.size() - 2) + "}\"";
}

std::string gnuplot_comment(std::string_view text) {
  // A backslash at the end would join the next line to the comment.
  return fmt::format("# {}{}\n", printable(text), text.ends_with('\\') ? " " : "");
}

namespace {

/// A body's commands; of a string constant one quote is left.
std::vector<std::string> commands_of(std::string_view body) {
  std::vector<std::string> commands(1);
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '\\') {  // of an escape, or before the end of a line that goes on
      if (++i == body.size() || in_string == (body[i] == '\n'))
        throw std::logic_error("a figure's script: a backslash stands where none may");
    } else if (c == '"') {
      in_string = !in_string;
      if (in_string) commands.back() += c;
    } else if (in_string) {
      if (c == '\n') throw std::logic_error("a figure's script: a line ends within a string");
    } else if (std::string_view("\n;{}").find(c) != std::string_view::npos) {
      commands.emplace_back();
    } else {
      commands.back() += c;
    }
  }
  if (in_string) throw std::logic_error("a figure's script: a string does not end");
  return commands;
}

}  // namespace

void require_drawing(std::string_view body) {
  static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  const auto word_of = [](std::string_view text) { return text.substr(0, text.find_first_not_of(letters)); };
  const std::vector<std::string> commands = commands_of(body);
  for (std::string_view command : commands) {
    command.remove_prefix(std::min(command.find_first_not_of(' '), command.size()));
    if (command.empty()) continue;
    const std::string_view first = word_of(command);
    std::string_view rest = command.substr(first.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    bool draws = first == "plot" || first == "set" || first == "unset" || first == "do" ||
                 (!first.empty() && rest.starts_with('='));
    draws = draws && command.find_first_of("`@'!|#") == std::string_view::npos;
    while (draws && !rest.empty()) {
      rest.remove_prefix(std::min(rest.find_first_of(letters), rest.size()));
      draws = word_of(rest) != "system";
      rest.remove_prefix(word_of(rest).size());
    }
    if (!draws)
      throw std::logic_error(fmt::format("a figure's script: '{}' is no command that draws", shown(command)));
  }
}

}  // namespace fp16lab::reports
