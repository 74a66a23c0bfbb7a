#include "reports/page/shown_names.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reports/data/run_config.hpp"
#include "reports/page/html.hpp"

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

std::string name_html(const Configuration& configuration, const SummaryRow& row) {
  const std::string name = html_escape(pretty(row.label)), given = given_name(configuration, row.label);
  if (given.empty()) return fmt::format("<em>{}</em>", name);
  return fmt::format("<em class=\"tip\" tabindex=\"0\" data-tip=\"Its runs are named “{}”.\">{}</em>",
                     html_escape(given), name);
}

std::string difference_words(const WorkloadSummary& summary, const SummaryRow& row) {
  if (!row.against_reference || row.against_reference->pairs == 0) return "";
  const analysis::Judgement& judgement = *row.against_reference;
  const Metric& metric = summary.metric;
  const std::string size = fmt::format("{:.2f}", std::abs(judgement.mean));
  if (size.find_first_of("123456789") == std::string::npos)
    return fmt::format("{} {} apart", size, metric.unit());
  const bool worse = judgement.mean > 0;
  if (!metric.higher_is_better())
    return fmt::format("{} {} {}", size, metric.unit(), worse ? "higher" : "lower");
  std::string words = fmt::format("{} {} {}", size, metric.unit(), worse ? "worse" : "better");
  const auto reference = std::find_if(summary.rows.begin(), summary.rows.end(),
                                      [](const SummaryRow& other) { return other.is_reference; });
  const auto all_paired = [&](const SummaryRow& one) {
    return one.final_values.size() == static_cast<std::size_t>(judgement.pairs);
  };
  if (reference != summary.rows.end() && all_paired(row) && all_paired(*reference))
    words += fmt::format(" ({} against {})", value_text(metric, analysis::quality_of(row.final_values).mean),
                         value_text(metric, analysis::quality_of(reference->final_values).mean));
  return words;
}

std::string interval_words(const Metric& metric, const std::optional<analysis::Interval>& interval) {
  if (!interval) return "";
  const bool turned = metric.higher_is_better();  // differences are positive where it is worse
  const analysis::Interval higher{turned ? -interval->upper : interval->lower,
                                  turned ? -interval->lower : interval->upper};
  return fmt::format("{} {}", analysis::interval_text(higher), metric.unit());
}

}  // namespace fp16lab::reports
