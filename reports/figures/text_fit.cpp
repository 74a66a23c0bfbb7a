#include "reports/figures/text_fit.hpp"

#include <algorithm>
#include <cstddef>

namespace fp16lab::reports {
namespace {

/// Bytes of the character that begins at text[at].
std::size_t length_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(length, text.size() - at);
}

/// Advance of one character in units of the font's size: the widest of its class in DejaVu Sans.
double advance(std::string_view character) {
  if (character.size() >
      1)  // raised digits, dashes, "≤", "…"; letters of other scripts are mostly as wide as they are high
    return character.starts_with("\xe2\x81") || character.starts_with("\xc2\xb2") ||
                   character.starts_with("\xc2\xb3") || character.starts_with("\xc2\xb9") || character == "–"
               ? 0.53
               : 1.0;
  const char c = character.front();
  const auto one_of = [c](std::string_view set) { return set.find(c) != std::string_view::npos; };
  if (one_of("'ijlIJ ,./:;\\|f-")) return 0.37;
  if (one_of("()[]t!r\"")) return 0.46;
  if (one_of("*_`szc?LFkvxyPT")) return 0.62;
  if (one_of("w#+<=>^~M")) return 0.87;
  if (one_of("%mW@")) return 1.0;
  if (c >= 'A' && c <= 'Z') return 0.79;
  return c == '&' ? 0.79 : 0.64;
}

}  // namespace

double text_width(std::string_view text, double size, bool bold) {
  double width = 0;
  for (std::size_t at = 0; at < text.size(); at += length_at(text, at))
    width += advance(text.substr(at, length_at(text, at)));
  return width * size * (bold ? 1.125 : 1);
}

std::vector<std::string> wrapped(std::string_view text, double pixels, double size) {
  std::vector<std::string> lines(1);
  double used = 0;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    const double blank = lines.back().empty() ? 0 : text_width(" ", size);
    if (!lines.back().empty() && used + blank + text_width(word, size) > pixels) {
      lines.emplace_back();
      used = 0;
    } else if (!lines.back().empty()) {
      lines.back() += ' ';
      used += blank;
    }
    while (!word.empty()) {
      const std::string_view character = word.substr(0, length_at(word, 0));
      if (!lines.back().empty() && used + text_width(character, size) > pixels) {
        lines.emplace_back();
        used = 0;
      }
      lines.back() += character;
      used += text_width(character, size);
      word.remove_prefix(character.size());
    }
  }
  return lines;
}

std::string shortened(std::string_view text, double pixels, double size, bool bold) {
  if (text_width(text, size, bold) <= pixels) return std::string(text);
  const double room = pixels - text_width("…", size, bold);
  while (!text.empty() && text_width(text, size, bold) > room) text.remove_prefix(length_at(text, 0));
  return "…" + std::string(text);
}

}  // namespace fp16lab::reports
