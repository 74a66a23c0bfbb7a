// How deep a document may be nested: what reads, copies, prints or frees one calls itself at every level.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace fp16lab {

/// Levels of arrays, objects and tables, and parts of one dotted key, in any document that is read. Those of
/// ours have 8 at most.
inline constexpr std::size_t deepest_nesting = 64;

/// JSON of unknown origin; every reader of it begins here. std::runtime_error "not valid JSON at byte N",
/// "byte N: nested deeper than 64", N from 1, or "a number beyond the range of FP64".
nlohmann::ordered_json parse_json(std::string_view text);

/// The byte (from 1) of the first bracket of JSON that is too deep, for a reader with a parser of its own;
/// nothing: none is. Text that is no JSON is looked at as far as a parser would read it.
std::optional<std::size_t> too_deep_in_json(std::string_view text);

/// The line (from 1) of TOML whose brackets or dotted key are too deep; nothing: none is. Looked at before a
/// parser of TOML, which makes a table of every part of a key.
std::optional<std::size_t> too_deep_in_toml(std::string_view text);

}  // namespace fp16lab
