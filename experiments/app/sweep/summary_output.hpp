// The summary of finished runs as CSV and JSON (reports::summary_table is the one for people).
#pragma once

#include <string>
#include <vector>

#include "reports/data/summary.hpp"

namespace fp16lab::experiments {

/// A row a configuration. `difference` and all that is in its `unit` ("%" or "points"), against FP32, in the
/// metric's own sign; lower and upper are the unadjusted 95 % interval, adjusted_* that of a selected pair.
/// Empty: not there.
std::string summary_csv(const std::vector<reports::WorkloadSummary>& summaries);
std::string summary_json(const std::vector<reports::WorkloadSummary>& summaries);

}  // namespace fp16lab::experiments
