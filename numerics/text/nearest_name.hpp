// "Did you mean": the known name that is closest to a mistyped one, and the ends of error messages about it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fp16lab {

/// Are they the same but for the case of ASCII letters?
bool equal_but_for_case(std::string_view a, std::string_view b);

/// The known name with the smallest edit distance (insertions, deletions, substitutions; "FC3" is "fc3") to
/// `name`; the first of equals. Empty if none is closer than half of the longer name's length, so that
/// nonsense gets no suggestion.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

/// "; did you mean 'scaler.policy'?", or "" if nothing known is near.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known);
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

/// "known are none, fixed, dynamic; did you mean 'dynamic'?": for a choice among few names.
std::string known_are(std::string_view name, std::span<const std::string_view> known);

}  // namespace fp16lab
