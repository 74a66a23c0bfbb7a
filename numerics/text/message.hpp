// What a program says to people: lines on stderr that can be lost and never end it.
//
// A terminal goes away, a log's disk is full, no process reads the pipe: none of that is a reason to end a
// run, so nothing here throws. Every printed message goes through here (scripts/check_arrows.sh looks).
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace fp16lab {

/// Bytes of the longest message: a pipe takes up to 4,096 (PIPE_BUF) in one piece, so that lines of several
/// processes do not mix.
inline constexpr std::size_t longest_message = 2000;

/// One line: line breaks as spaces, other control characters as `printable` has them. A line longer than
/// longest_message loses its middle: "BEGIN ... (38112 bytes left out) ... END".
std::string message_line(std::string_view text);

/// Writes message_line(...) of the formatted text and a line break to stderr.
template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept;

/// Writes `text` to stderr unchanged: tables, and what draws on a terminal.
void show_text(std::string_view text) noexcept;

void say_formatted(fmt::string_view format, fmt::format_args arguments) noexcept;  ///< of `say`

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
  say_formatted(format, fmt::make_format_args(arguments...));
}

}  // namespace fp16lab
