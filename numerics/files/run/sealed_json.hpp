// JSON files that say whether they were changed. Internal to numerics/files.
//
// The last member of the object, "sha256", is the digest of the file's bytes before it, so that one wrong digit
// anywhere in the file does not go unseen. Files of older builds have none.
#pragma once

#include <string>
#include <string_view>

namespace fp16lab::run_json {

inline constexpr std::string_view seal_key = "sha256";

/// `object` is the text of a JSON object that has members, "{...}" in one line or "{\n  ...\n}"; the result ends
/// with its seal and a newline.
std::string sealed(std::string_view object);

/// Is `text` what sealed() made, to the last byte?
bool is_sealed(std::string_view text);

}  // namespace fp16lab::run_json
