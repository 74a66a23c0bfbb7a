// Text with marks: what the page sets off from a sentence, as it travels inside its JSON. A mark begins with STX and a letter and
// ends with ETX; what it says on hover and focus is after GS. Texts of users hold none of these characters: plain() makes them
// printable. The page's rich() (assets/sections.js) reads it.
#pragma once

#include <string>
#include <string_view>

namespace fp16lab::reports {

/// A text of unknown origin, printable but for tabs and line breaks.
std::string plain(std::string_view text);

std::string strong(std::string_view marked);
std::string small(std::string_view marked);
/// In the colour of less important words.
std::string soft(std::string_view marked);
std::string code(std::string_view marked);
/// The name of a configuration; `tip` may be empty.
std::string name_mark(std::string_view marked, std::string_view tip = {});
/// Words that are explained on hover and focus.
std::string explained(std::string_view marked, std::string_view tip);

}  // namespace fp16lab::reports
