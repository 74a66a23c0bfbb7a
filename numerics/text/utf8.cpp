#include "numerics/text/utf8.hpp"

namespace fp16lab {

std::optional<std::size_t> utf8_length(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++characters) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0  // a continuation, or an overlong form
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length == 0 || length > text.size() - i) return std::nullopt;
    // The second byte decides about overlong forms, surrogates and the upper end.
    const unsigned char lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if (byte < (k == 1 ? lowest : 0x80) || byte > (k == 1 ? highest : 0xbf)) return std::nullopt;
    }
    i += length;
  }
  return characters;
}

}  // namespace fp16lab
