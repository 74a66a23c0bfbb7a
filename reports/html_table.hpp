// A table that readers can sort by any column, with the best of a column marked by a star.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fp16lab::reports {

enum class BestIs { none, lowest, highest };

struct TableColumn {
  std::string title;  ///< HTML
  bool text = false;  ///< to the left
  BestIs best = BestIs::none;
  std::string explanation{};  ///< shown for the heading; plain text
};

struct TableCell {
  std::string html;
  std::optional<double> value{};  ///< what the column sorts and is judged by; absent: it stays at the bottom
  bool judged = true;             ///< may be the best
  std::string css_class{};
};

struct TableRow {
  std::vector<TableCell> cells;
  bool emphasised = false;  ///< the row that others are compared with
};

/// <table class="wide sortable">. A column's best value is marked in bold and with a star where it tells something: where
/// at most half of its judged cells have it. Text columns sort by their text.
std::string html_table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows);

}  // namespace fp16lab::reports
