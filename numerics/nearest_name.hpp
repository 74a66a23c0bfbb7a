// "Did you mean": the known name that is closest to a mistyped one.
#pragma once

#include <span>
#include <string_view>

namespace fp16lab {

/// The known name with the smallest edit distance (insertions, deletions, substitutions) to `name`; the first
/// of equals. Empty if none is closer than half of the longer name's length, so that nonsense gets no
/// suggestion.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace fp16lab
