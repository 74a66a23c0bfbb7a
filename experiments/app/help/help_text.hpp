// What --help says: as much as fits on one screen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace fp16lab::experiments {

// What a text that people read has to fit into.

inline constexpr std::size_t screen_lines = 40;  ///< of help texts and of fp16lab list

/// $COLUMNS, else the width of the terminal at stdout, else 80; 40 or more.
std::size_t screen_columns();

/// Breaks `text` at blanks, so that lines have at most `columns` where words allow it. `begun`: characters
/// that precede the first line; the others begin with `indent` blanks. No line end at the end.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t begun, std::size_t indent);

/// At most `columns` characters, with "..." where words were left out.
std::string cut(std::string_view text, std::size_t columns);

/// The text up to its first stop: ". ", ": ", "; ", a line's end.
std::string first_clause(std::string_view text);

/// Help of the program or of a command, wrapped to `columns`. It has at most screen_lines lines where 80
/// columns or more are there: what does not fit is left out, of the description first, then the ends of the
/// options' texts ("..."). `whole` leaves nothing out.
std::string help_text(const CLI::App& app, std::size_t columns, bool whole);

}  // namespace fp16lab::experiments
