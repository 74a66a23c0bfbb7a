#include "reports/page/html_table.hpp"

#include <fmt/core.h>

#include <cmath>

#include "reports/page/html.hpp"

namespace fp16lab::reports {
std::string html_table(std::string_view caption, const std::vector<TableColumn>& columns,
                       const std::vector<TableRow>& rows) {
  std::string html = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"wide "
      "sortable\" data-name=\"{0}\">\n<thead><tr>",
      html_escape(caption));
  for (const TableColumn& column : columns)
    html += fmt::format("<th scope=\"col\"{} data-tip=\"{}\">{}</th>", column.text ? " class=\"text\"" : "",
                        html_escape(column.explanation), column.title);
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
      if (!columns[c].text)
        html += cell.value && std::isfinite(*cell.value) ? fmt::format(" data-sort=\"{}\"", *cell.value)
                                                         : std::string(" data-sort=\"\"");
      html += ">";
      if (cell.starred)
        html +=
            "<span class=\"star tip\" tabindex=\"0\" data-tip=\"The best apart from FP32, and judged better "
            "than the next.\">★</span> ";
      html += cell.tip.empty() ? cell.html
                               : fmt::format("<span class=\"tip\" tabindex=\"0\" data-tip=\"{}\">{}</span>",
                                             html_escape(cell.tip), cell.html);
      html += "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace fp16lab::reports
