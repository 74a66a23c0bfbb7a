// What --help says: as much as fits on one screen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace fp16lab::experiments {

/// The text up to its first stop: ". ", ": ", "; ", a line's end.
std::string first_clause(std::string_view text);

/// Help of the program or of a command, wrapped to `columns`. It has at most screen_lines lines where 80
/// columns or more are there: what does not fit is left out, of the description first, then the ends of the
/// options' texts ("..."). `whole` leaves nothing out.
std::string help_text(const CLI::App& app, std::size_t columns, bool whole);

}  // namespace fp16lab::experiments
