#include "numerics/text/printable_text.hpp"

#include <fmt/core.h>

namespace fp16lab {

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += c;
  }
  return result;
}

std::string shown(std::string_view text) {
  return text.size() > 80 ? printable(text.substr(0, 80)) + "..." : printable(text);
}

}  // namespace fp16lab
