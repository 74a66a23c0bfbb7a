// Text of unknown origin in messages and tables.
#pragma once

#include <string>
#include <string_view>

namespace fp16lab {

/// Control characters as \x1b, so that what a file holds neither breaks a line nor writes to the terminal.
std::string printable(std::string_view text);

/// The same, cut behind 80 bytes.
std::string shown(std::string_view text);

}  // namespace fp16lab
