#include "numerics/text/nesting.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace fp16lab {

std::optional<std::size_t> too_deep_in_json(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest_nesting) return i + 1;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::nullopt;
}

nlohmann::ordered_json parse_json(std::string_view text) {
  if (const std::optional<std::size_t> byte = too_deep_in_json(text))
    throw std::runtime_error(fmt::format("byte {}: nested deeper than {}", *byte, deepest_nesting));
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::ordered_json::parse_error& error) {
    throw std::runtime_error(fmt::format("not valid JSON at byte {}", error.byte));
  } catch (const nlohmann::ordered_json::out_of_range&) {
    throw std::runtime_error("a number beyond the range of FP64");
  }
}

namespace {

/// The position after the string that begins at `at`; one in single quotes ends with its line at the latest,
/// which is where a parser ends.
std::size_t end_of_toml_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool spans_lines = text.substr(at, 3) == std::string(3, quote);
  const std::string end(spans_lines ? 3 : 1, quote);
  for (at += end.size(); at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == '\n' && !spans_lines) {
      return at;
    } else if (text.substr(at, end.size()) == end) {
      at += end.size();
      // Up to two quotes before the end are content.
      for (int more = 0; spans_lines && more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

}  // namespace

std::optional<std::size_t> too_deep_in_toml(std::string_view text) {
  std::size_t line = 1, depth = 0, parts = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t begin = i;
    switch (text[i]) {
      case '\n':
        ++line;
        parts = 0;
        break;
      case '#':
        i = std::min(text.find('\n', i), text.size()) - 1;
        break;
      case '"':
      case '\'':
        i = end_of_toml_string(text, i);
        line += static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                    text.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
        --i;
        break;
      case '.':
        if (++parts >= deepest_nesting) return line;
        break;
      case '[':
      case '{':
        if (++depth > deepest_nesting) return line;
        parts = 0;
        break;
      case ']':
      case '}':
        if (depth > 0) --depth;
        parts = 0;
        break;
      case '=':
      case ',':
        parts = 0;
        break;
      default:
        break;
    }
  }
  return std::nullopt;
}

}  // namespace fp16lab
