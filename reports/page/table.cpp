#include "reports/page/table.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/figures/figure_json.hpp"

namespace fp16lab::reports {

OrderedJson table_json(std::string_view caption, const std::vector<TableColumn>& columns,
                       const std::vector<TableRow>& rows) {
  OrderedJson heads = OrderedJson::array(), body = OrderedJson::array();
  for (const TableColumn& column : columns)
    heads.push_back({{"title", column.title}, {"tip", column.explanation}, {"text", column.text}});
  for (const TableRow& row : rows) {
    OrderedJson cells = OrderedJson::array();
    for (const TableCell& cell : row.cells) {
      OrderedJson more = {{"text", cell.text}};
      if (cell.value && std::isfinite(*cell.value)) more["value"] = *cell.value;
      if (!cell.css_class.empty()) more["class"] = cell.css_class;
      if (!cell.tip.empty()) more["tip"] = cell.tip;
      if (cell.starred) more["star"] = true;
      if (!cell.swatch.empty()) more["swatch"] = cell.swatch;
      cells.push_back(more.size() == 1 ? OrderedJson(cell.text) : std::move(more));
    }
    body.push_back({{"reference", row.emphasised}, {"cells", std::move(cells)}});
  }
  return {{"name", caption}, {"columns", std::move(heads)}, {"rows", std::move(body)}};
}

}  // namespace fp16lab::reports
