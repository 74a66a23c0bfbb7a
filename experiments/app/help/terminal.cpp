#include "experiments/app/help/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t least_columns = 40, usual_columns = 80;

std::size_t width_of(std::string_view text) { return utf8_length(text).value_or(text.size()); }

}  // namespace

std::size_t screen_columns() {
  std::size_t columns = 0;
  if (const char* const given = std::getenv("COLUMNS"))  // NOLINT(concurrency-mt-unsafe): one thread
    std::from_chars(given, given + std::string_view(given).size(), columns);
  winsize window{};
  if (columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) columns = window.ws_col;
  return columns == 0 ? usual_columns : std::max(columns, least_columns);
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t begun, std::size_t indent) {
  std::string lines;
  std::size_t at = begun;
  bool first = true;  // of its line
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!first && at + 1 + width_of(word) > columns) {
      lines += "\n" + std::string(indent, ' ');
      at = indent;
      first = true;
    }
    lines += (first ? "" : " ") + std::string(word);
    at += width_of(word) + (first ? 0 : 1);
    first = false;
  }
  return lines;
}

std::string cut(std::string_view text, std::size_t columns) {
  if (width_of(text) <= columns) return std::string(text);
  while (!text.empty() && width_of(text) + 3 > columns) {
    const std::size_t blank = text.rfind(' ');
    text = text.substr(0, blank != std::string_view::npos ? blank : columns > 3 ? columns - 3 : 0);
  }
  if (const std::size_t open = text.rfind('(');
      open != std::string_view::npos && open > 12 && text.find(')', open) == std::string_view::npos)
    text = text.substr(0, open);
  while (!text.empty() && std::string_view(" .,;:(").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  return std::string(text) + "...";
}

}  // namespace fp16lab::experiments
