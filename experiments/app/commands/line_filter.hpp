// Programs that read lines and answer each with a line, fast enough for millions of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fp16lab::experiments {

using LineAnswer = std::function<void(std::string_view line, std::uint64_t number, std::string& output)>;

/// Calls `answer(line, number, output)` for every line of the standard input, numbered from 1 and without its
/// end (LF or CR LF), and writes what it appended to `output`, in large blocks, to the standard output.
/// Whatever is read is answered before more is waited for, so it serves pipes that go both ways. An exception
/// of `answer` is passed on after the earlier lines' answers are written. Throws std::runtime_error where
/// reading or writing fails.
void filter_lines(const LineAnswer& answer);
/// The same of the lines of a text.
void filter_lines(std::string_view text, const LineAnswer& answer);

/// A line as error messages quote it: cut where it is long, unprintable characters as '?'.
std::string quoted(std::string_view line);

/// The value of a hexadecimal digit; 16 for anything else.
inline constexpr std::array<std::uint8_t, 256> digit_values = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(16);
  for (std::uint8_t i = 0; i < 10; ++i) values[std::size_t{'0'} + i] = i;
  for (std::uint8_t i = 10; i < 16; ++i)
    values[std::size_t{'a'} + i - 10] = values[std::size_t{'A'} + i - 10] = i;
  return values;
}();

}  // namespace fp16lab::experiments
