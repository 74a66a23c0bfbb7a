// UTF-8 as RFC 3629 defines it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace fp16lab {

/// How many characters (code points) `text` has; nothing if it is not UTF-8: overlong forms, surrogates, what lies beyond
/// U+10FFFF and characters that are cut off are not.
std::optional<std::size_t> utf8_length(std::string_view text);

/// Is this the first byte of a character? All bytes of ASCII are; of text that is UTF-8.
constexpr bool begins_utf8_character(unsigned char byte) { return (byte & 0xc0) != 0x80; }

}  // namespace fp16lab
