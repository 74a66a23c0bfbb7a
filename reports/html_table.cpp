#include "reports/html_table.hpp"

#include <fmt/core.h>

#include <cmath>

#include "reports/html.hpp"

namespace fp16lab::reports {
namespace {

/// The best value of a column, if it tells the rows apart.
std::optional<double> best_of(const std::vector<TableRow>& rows, std::size_t column, BestIs best_is) {
  if (best_is == BestIs::none) return {};
  std::optional<double> best;
  std::size_t judged = 0, bearers = 0;
  for (const TableRow& row : rows) {
    const TableCell& cell = row.cells[column];
    if (!cell.judged || !cell.value || !std::isfinite(*cell.value)) continue;
    ++judged;
    if (!best || (best_is == BestIs::lowest ? *cell.value < *best : *cell.value > *best)) {
      best = cell.value;
      bearers = 0;
    }
    if (*cell.value == *best) ++bearers;
  }
  return 2 * bearers <= judged ? best : std::nullopt;
}

}  // namespace

std::string html_table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows) {
  std::string html = "<div class=\"scroll\" tabindex=\"0\"><table class=\"wide sortable\">\n<thead><tr>";
  for (const TableColumn& column : columns)
    html += fmt::format(
        "<th scope=\"col\"{}{}>{}</th>", column.text ? " class=\"text\"" : "",
        column.explanation.empty() ? "" : fmt::format(" title=\"{}\"", html_escape(column.explanation)),
        column.title);
  html += "</tr></thead>\n<tbody>\n";
  std::vector<std::optional<double>> best;
  for (std::size_t c = 0; c < columns.size(); ++c) best.push_back(best_of(rows, c, columns[c].best));
  for (const TableRow& row : rows) {
    html += row.emphasised ? "<tr class=\"reference\">" : "<tr>";
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const TableCell& cell = row.cells[c];
      const bool is_best = best[c] && cell.judged && cell.value == best[c];
      std::string css = cell.css_class;
      if (columns[c].text) css += css.empty() ? "text" : " text";
      if (is_best) css += css.empty() ? "best" : " best";
      html += "<td";
      if (!css.empty()) html += fmt::format(" class=\"{}\"", css);
      if (!columns[c].text)
        html += cell.value && std::isfinite(*cell.value) ? fmt::format(" data-sort=\"{}\"", *cell.value)
                                                         : std::string(" data-sort=\"\"");
      html += fmt::format(">{}{}</td>",
                          is_best ? "<span class=\"star\" title=\"best of the column\">★</span> " : "",
                          cell.html);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace fp16lab::reports
