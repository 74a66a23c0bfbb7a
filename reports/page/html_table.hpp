// A table that readers can sort by any column.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fp16lab::reports {

struct TableColumn {
  std::string title;          ///< HTML
  bool text = false;          ///< to the left
  std::string explanation{};  ///< shown for the heading; plain text
};

struct TableCell {
  std::string html;
  std::optional<double> value{};  ///< what the column sorts by; absent: it stays at the bottom
  std::string css_class{};
  std::string title{};   ///< shown for the cell; plain text
  bool starred = false;  ///< in bold and with a star
};

struct TableRow {
  std::vector<TableCell> cells;
  bool emphasised = false;  ///< the row that others are compared with
};

/// <table class="wide sortable">. Text columns sort by their text.
std::string html_table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows);

}  // namespace fp16lab::reports
