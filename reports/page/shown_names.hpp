// What the page calls a configuration, and its words for the distance from FP32.
#pragma once

#include <optional>
#include <string>

#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {

/// "FP16 torch" of "mine: FP16 torch" where no other configuration of the workload is that; else the label.
std::string shown_name(const Workload& workload, const Configuration& configuration);

/// "mine" of "mine: FP16 torch" that is shown as "FP16 torch"; "" where the label is shown.
std::string given_name(const Configuration& configuration, const std::string& shown);

/// Its rows called by their shown names. `workload` has all configurations; `summary` may have fewer, those
/// of `shown`.
WorkloadSummary with_shown_names(WorkloadSummary summary, const Workload& workload, const Workload& shown);

/// The same with every name in quotation marks, for sentences without markup.
WorkloadSummary quoted(WorkloadSummary summary);

/// The name set off from the sentence (marked.hpp), and on hover what its runs are called where that is something
/// else.
std::string shown_mark(const Configuration& configuration, const SummaryRow& row);

}  // namespace fp16lab::reports
