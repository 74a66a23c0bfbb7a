#include "numerics/text/message.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "numerics/platform/standard_streams.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

std::string message_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  line = printable(line);
  if (line.size() <= longest_message) return line;
  // The end says what would be right.
  constexpr std::size_t mark = 40, tail = longest_message / 4, head = longest_message - tail - mark;
  const auto is_inside = [&line](std::size_t at) {
    return !begins_utf8_character(static_cast<unsigned char>(line[at]));
  };
  std::size_t begin = head, end = line.size() - tail;
  while (begin > 0 && is_inside(begin)) --begin;
  while (end < line.size() && is_inside(end)) ++end;
  return fmt::format("{} ... ({} bytes left out) ... {}", std::string_view(line).substr(0, begin),
                     end - begin, std::string_view(line).substr(end));
}

void show_text(std::string_view text) noexcept {
  const int before = errno;
  write_text(STDERR_FILENO, text);
  errno = before;
}

void say_formatted(fmt::string_view format, fmt::format_args arguments) noexcept {
  try {
    show_text(message_line(fmt::vformat(format, arguments)) + "\n");
  } catch (...) {  // no memory for the text
    show_text("a message was lost: there is no memory for it\n");
  }
}

}  // namespace fp16lab
