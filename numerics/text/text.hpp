// Text that people and machines read: numbers in files, text from outside made printable, and UTF-8.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fp16lab {

/// JSON has no infinities and NaN: they become the strings "Infinity", "-Infinity" and "NaN".
nlohmann::ordered_json json_number(double value);

/// Infinities and NaN become "inf", "-inf" and "nan"; the sign of a NaN is not kept.
std::string csv_number(double value);

/// Control characters as \x1b, so that what a file holds neither breaks a line nor writes to the terminal.
std::string printable(std::string_view text);

/// The same, cut behind 80 bytes.
std::string shown(std::string_view text);

/// "1 step", "2 steps".
std::string counted(std::size_t count, std::string_view what);

/// How many characters (code points) `text` has; nothing if it is not UTF-8: overlong forms, surrogates, what
/// lies beyond U+10FFFF and characters that are cut off are not.
std::optional<std::size_t> utf8_length(std::string_view text);

/// Is this the first byte of a character? All bytes of ASCII are; of text that is UTF-8.
constexpr bool begins_utf8_character(unsigned char byte) { return (byte & 0xc0) != 0x80; }

}  // namespace fp16lab
