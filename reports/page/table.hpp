// A table that readers can sort by any column, filter, and take with them as CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::reports {

struct TableColumn {
  std::string title;        ///< with marks (marked.hpp)
  std::string explanation;  ///< what is below it, on hover and focus; plain text, a sentence
  bool text = false;        ///< to the left
};

struct TableCell {
  std::string text;               ///< with marks
  std::optional<double> value{};  ///< what the column sorts by; absent: it stays at the bottom
  std::string css_class{};
  std::string tip{};     ///< shown for the cell on hover and focus; plain text
  bool starred = false;  ///< in bold and with a star
  std::string swatch{};  ///< the colour of its curve, "#2F6DB3"
};

struct TableRow {
  std::vector<TableCell> cells;
  bool emphasised = false;  ///< the row that others are compared with
};

/// {"name", "columns": [{"title", "tip", "text"}], "rows": [{"reference", "cells": [text or {"text", "value", "class", "tip",
/// "star", "swatch"}]}]}: named `caption` (plain text, also the name of its CSV file). Text columns sort by their text.
nlohmann::ordered_json table_json(std::string_view caption, const std::vector<TableColumn>& columns,
                                  const std::vector<TableRow>& rows);

}  // namespace fp16lab::reports
