#include "numerics/text/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace fp16lab {

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string csv_number(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

namespace {

/// Bytes of the character that begins at text[at]; 0 if none does: overlong forms, surrogates, code points
/// beyond U+10FFFF and characters that are cut off are none.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0  // a continuation, or an overlong form
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length > text.size() - at) return 0;
  // The second byte decides about overlong forms, surrogates and the upper end.
  const unsigned char lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t k = 1; k < length; ++k) {
    const auto byte = static_cast<unsigned char>(text[at + k]);
    if (byte < (k == 1 ? lowest : 0x80) || byte > (k == 1 ? highest : 0xbf)) return 0;
  }
  return length;
}

/// Takes a whole character of two bytes or more.
char32_t code_point(std::string_view character) {
  char32_t point = static_cast<unsigned char>(character[0]) & (0x7fu >> character.size());
  for (const char c : character.substr(1)) point = (point << 6) | (static_cast<unsigned char>(c) & 0x3fu);
  return point;
}

/// Does it act on the text around it, or on a terminal, rather than being seen itself?
bool acts(char32_t point) {
  const auto within = [point](char32_t first, char32_t last) { return point >= first && point <= last; };
  return within(0x80, 0x9f) ||                        // C1
         within(0x2028, 0x2029) ||                    // ends of lines and of paragraphs
         point == 0x61c || within(0x200e, 0x200f) ||  // marks of direction,
         within(0x202a, 0x202e) ||
         within(0x2066, 0x2069) ||                         // its embeddings, overrides and isolates (UAX #9)
         point == 0xfeff || (point & 0xfffe) == 0xfffe ||  // a byte order mark; noncharacters,
         within(0xfdd0, 0xfdef) || within(0xe0000, 0xe007f);  // XML has none of these; tags
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_length(text, i);
    const std::string_view character = text.substr(i, length);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0 || byte < 0x20 || byte == 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else if (length > 1 && acts(code_point(character)))
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code_point(character)));
    else
      result += character;
    i += length == 0 ? 1 : length;
  }
  return result;
}

bool is_printable(std::string_view text) { return printable(text) == text; }

std::string shown(std::string_view text) {
  constexpr std::size_t most = 80;
  if (text.size() <= most) return printable(text);
  std::size_t end = most;
  while (end > most - 3 && !begins_utf8_character(static_cast<unsigned char>(text[end]))) --end;
  return printable(text.substr(0, end)) + "...";
}

std::string csv_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : printable(text)) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

std::string shell_line(const std::vector<std::string>& words) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
  };
  std::string line;
  for (const std::string& word : words) {
    if (&word != &words.front()) line += ' ';
    // zsh takes "=word" for the path of a program.
    if (!word.empty() && word.front() != '=' && std::all_of(word.begin(), word.end(), is_plain)) {
      line += word;
    } else if (is_printable(word)) {
      line += '\'';
      for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
      line += '\'';
    } else {
      line += "$'";
      for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        line += byte < 0x20 || byte > 0x7e ? fmt::format("\\x{:02x}", byte)
                : c == '\'' || c == '\\'   ? fmt::format("\\{}", c)
                                           : std::string(1, c);
      }
      line += '\'';
    }
  }
  return line;
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

std::optional<std::size_t> utf8_length(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++characters) {
    const std::size_t length = character_length(text, i);
    if (length == 0) return std::nullopt;
    i += length;
  }
  return characters;
}

}  // namespace fp16lab
