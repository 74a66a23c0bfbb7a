#include "reports/page/html.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "numerics/files/disk/sha256.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::reports {

std::string html_escape(std::string_view text) {
  std::string out;
  const auto escape = [&out](std::string_view piece) {
    for (const char c : printable(piece)) {
      switch (c) {
        case '&':
          out += "&amp;";
          break;
        case '<':
          out += "&lt;";
          break;
        case '>':
          out += "&gt;";
          break;
        case '"':
          out += "&quot;";
          break;
        default:
          out += c;
      }
    }
  };
  for (;;) {
    const std::size_t end = text.find_first_of("\t\n");
    escape(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

namespace {

std::string base64(std::string_view content) {  // RFC 4648 section 4
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < content.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = (group << 8) | (i + j < content.size() ? static_cast<unsigned char>(content[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      out += i + j <= content.size() ? alphabet[(group >> (18 - 6 * j)) & 63u] : '=';
  }
  return out;
}

}  // namespace

std::string data_url(std::string_view media_type, std::string_view content) {  // RFC 2397
  return "data:" + std::string(media_type) + ";base64," + base64(content);
}

std::string policy_hash(std::string_view content) {  // Content Security Policy Level 3, section 2.3.1
  const std::string digits = sha256_of(content);
  std::string digest;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    digest += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return "'sha256-" + base64(digest) + "'";
}

std::string fill_slots(std::string_view text, std::span<const Slot> slots) {
  std::string out;
  std::vector<bool> used(slots.size());
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
    const std::string_view name = text.substr(0, text.find('@'));
    const auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return s.name == name; });
    if (slot == slots.end())
      throw std::logic_error("the page has a place for an unknown slot '" + std::string(name) + "'");
    out += slot->content;
    used[static_cast<std::size_t>(slot - slots.begin())] = true;
    text.remove_prefix(name.size() + 1);
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end())
    throw std::logic_error("the page has no place for the slot '" +
                           std::string(slots[static_cast<std::size_t>(unused - used.begin())].name) + "'");
  return out;
}

}  // namespace fp16lab::reports
