// What a text that people read has to fit into.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fp16lab::experiments {

inline constexpr std::size_t screen_lines = 40;  ///< of help texts and of fp16lab list

/// $COLUMNS, else the width of the terminal at stdout, else 80; 40 or more.
std::size_t screen_columns();

/// Breaks `text` at blanks, so that lines have at most `columns` where words allow it. `begun`: characters
/// that stand before the first line; the others begin with `indent` blanks. No line end at the end.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t begun, std::size_t indent);

/// At most `columns` characters, with "..." where words were left out.
std::string cut(std::string_view text, std::size_t columns);

}  // namespace fp16lab::experiments
