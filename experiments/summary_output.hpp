// The summary of finished runs as CSV and JSON (reports::summary_table is the one for people).
#pragma once

#include <string>
#include <vector>

#include "reports/summary.hpp"

namespace fp16lab::experiments {

std::string summary_csv(const std::vector<reports::WorkloadSummary>& summaries);
std::string summary_json(const std::vector<reports::WorkloadSummary>& summaries);

}  // namespace fp16lab::experiments
