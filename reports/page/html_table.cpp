#include "reports/page/html_table.hpp"

#include <fmt/core.h>

#include <cmath>

#include "reports/page/html.hpp"

namespace fp16lab::reports {
std::string html_table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows) {
  std::string html = "<div class=\"scroll\" tabindex=\"0\"><table class=\"wide sortable\">\n<thead><tr>";
  for (const TableColumn& column : columns)
    html += fmt::format(
        "<th scope=\"col\"{}{}>{}</th>", column.text ? " class=\"text\"" : "",
        column.explanation.empty() ? "" : fmt::format(" title=\"{}\"", html_escape(column.explanation)),
        column.title);
  html += "</tr></thead>\n<tbody>\n";
  for (const TableRow& row : rows) {
    html += row.emphasised ? "<tr class=\"reference\">" : "<tr>";
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const TableCell& cell = row.cells[c];
      std::string css = cell.css_class;
      if (columns[c].text) css += css.empty() ? "text" : " text";
      if (cell.starred) css += css.empty() ? "best" : " best";
      html += "<td";
      if (!css.empty()) html += fmt::format(" class=\"{}\"", css);
      if (!cell.title.empty()) html += fmt::format(" title=\"{}\"", html_escape(cell.title));
      if (!columns[c].text)
        html += cell.value && std::isfinite(*cell.value) ? fmt::format(" data-sort=\"{}\"", *cell.value)
                                                         : std::string(" data-sort=\"\"");
      html += fmt::format(">{}{}</td>", cell.starred ? "<span class=\"star\">★</span> " : "", cell.html);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace fp16lab::reports
