#include "reports/page/shown_names.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "reports/data/run_config.hpp"
#include "reports/page/marked.hpp"

namespace fp16lab::reports {

std::string shown_name(const Workload& workload, const Configuration& configuration) {
  const std::string& kind = configuration.id.label;
  const auto alike = std::count_if(workload.configurations.begin(), workload.configurations.end(),
                                   [&](const Configuration& other) { return other.id.label == kind; });
  return alike == 1 && configuration.label.ends_with(": " + kind) ? kind : configuration.label;
}

std::string given_name(const Configuration& configuration, const std::string& shown) {
  const std::string& label = configuration.label;
  return label.ends_with(": " + shown) ? label.substr(0, label.size() - shown.size() - 2) : "";
}

WorkloadSummary with_shown_names(WorkloadSummary summary, const Workload& workload, const Workload& shown) {
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    summary.rows[i].label = shown_name(workload, shown.configurations[i]);
  return summary;
}

WorkloadSummary quoted(WorkloadSummary summary) {
  for (SummaryRow& row : summary.rows) row.label = "“" + row.label + "”";
  return summary;
}

std::string shown_mark(const Configuration& configuration, const SummaryRow& row) {
  const std::string given = given_name(configuration, row.label);
  return name_mark(plain(pretty(row.label)),
                   given.empty() ? "" : fmt::format("Its runs are named “{}”.", given));
}

}  // namespace fp16lab::reports
