// Text that people and machines read: numbers in files, text from outside made printable, and UTF-8.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab {

/// JSON has no infinities and NaN: they become the strings "Infinity", "-Infinity" and "NaN".
nlohmann::ordered_json json_number(double value);

/// Infinities and NaN become "inf", "-inf" and "nan"; the sign of a NaN is not kept.
std::string csv_number(double value);

/// Any text, from any author, as one line that can be shown: in messages, in comments of scripts and data
/// files, in XML. Control characters and bytes that are not UTF-8 become \x1b; Unicode's other characters
/// that break a line, control a terminal (C1) or turn the direction of text around, and its noncharacters,
/// become \u202e. Backslashes stay, so a text that is printable comes back as it is.
std::string printable(std::string_view text);

/// Does printable() leave it unchanged?
bool is_printable(std::string_view text);

/// The same, cut after 80 bytes, or fewer where a character would be cut.
std::string shown(std::string_view text);

/// A text as a field of a CSV row (RFC 4180): printable, in quotes, quotes doubled.
std::string csv_text(std::string_view text);

/// A command line as a shell reads it, in one printable line: single quotes enclose words of more than
/// letters, digits and -_./=:,+@%; those that are not printable are $'...' with escapes, which bash, zsh and
/// ksh read, and POSIX since 2024.
std::string shell_line(const std::vector<std::string>& words);

/// "1 step", "2 steps".
std::string counted(std::size_t count, std::string_view what);

/// How many characters (code points) `text` has; nothing if it is not UTF-8: overlong forms, surrogates, code
/// points beyond U+10FFFF and characters that are cut off are not.
std::optional<std::size_t> utf8_length(std::string_view text);

/// Is this the first byte of a character? All bytes of ASCII are; expects UTF-8 text.
constexpr bool begins_utf8_character(unsigned char byte) { return (byte & 0xc0) != 0x80; }

}  // namespace fp16lab
