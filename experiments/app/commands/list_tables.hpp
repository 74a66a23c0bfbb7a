// What fp16lab list and fp16lab devices print, from the same JSON that --json shows.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace fp16lab::experiments {

/// An aligned table of rows that have the same keys; the last column is not padded.
void print_table(const nlohmann::ordered_json& rows);

/// What sections there are, and how to ask for more.
void print_sections(const nlohmann::ordered_json& all);

/// Sections of `list` by their names: a screen each, a row a line. `details`: all that is known of the rows.
void print_lists(const nlohmann::ordered_json& sections, bool details);

}  // namespace fp16lab::experiments
