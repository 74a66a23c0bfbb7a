// The values in the JSON of run folders and replays. Internal to numerics/files.
//
// A reader that does not find what it expects throws std::runtime_error saying which key, what would be right
// and what is there; the caller adds file and line.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::run_json {

using Json = nlohmann::ordered_json;

/// After `text`: the bins from the first to the last that counted something; `smallest` and `greatest` where
/// they are known. Without a tree of JSON it is ten times as fast: a run writes thousands of them.
void append_histogram(std::string& text, const ExponentHistogram& histogram);
/// The same of a count.
void append_count(std::string& text, std::uint64_t count);

/// Text of unknown origin (arguments, paths) may not be UTF-8: such bytes become U+FFFD instead of an
/// exception. `indent` -1: one line.
std::string dump(const Json& json, int indent);

[[noreturn]] void wrong_type(std::string_view key, std::string_view expected, const Json& value);
const Json& member(const Json& object, std::string_view key);
double as_number(const Json& value, std::string_view key);
std::uint64_t as_count(const Json& value, std::string_view key);
/// Names, versions, messages: made printable (numerics/text/text.hpp), since folders are received from others
/// and every reader shows them, in lines, figures, pages and scripts.
std::string as_string(const Json& value, std::string_view key);
/// Values with lines of their own and a command's words, unchanged.
std::string as_text(const Json& value, std::string_view key);
/// An object in one line of JSON, its strings made printable; "" where it is null.
std::string as_document(const Json& value, std::string_view key);
DType as_dtype(const Json& value, std::string_view key);
ExponentHistogram as_histogram(const Json& value, std::string_view key);

std::int64_t get_integer(const Json& object, std::string_view key);
std::uint64_t get_count(const Json& object, std::string_view key);

/// Refuses a document whose members schema and schema_version are not `name` and 1 to `version`.
void require_schema(const Json& document, std::string_view name, int version);

}  // namespace fp16lab::run_json
