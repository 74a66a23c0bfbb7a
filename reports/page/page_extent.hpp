// How much of very many runs a page shows, and its words for the rest.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {

// A page is read from top to bottom and opens at once; beyond these its tables and curves are data.
inline constexpr std::size_t most_workloads = 60;        ///< with a section each
inline constexpr std::size_t most_configurations = 150;  ///< per workload
inline constexpr std::size_t most_rows = 300;            ///< configurations of all workloads

/// What has sections, tables, curves and figures: the first workloads by name, each with FP32, its twin, the
/// two best configurations and the first of the others, in their order. All of it where there are no more
/// than that. `summaries` follow `workloads`, and their judgements are those of the whole set.
struct PageExtent {
  std::vector<Workload> workloads;
  std::vector<WorkloadSummary> summaries;
};
/// `summaries`: summarise(set).
PageExtent extent_of(const RunSet& set, const std::vector<WorkloadSummary>& summaries);

/// One paragraph: which runs represent how many, and what is left out. Empty without runs.
std::string extent_words(const RunSet& set, const PageExtent& extent);

}  // namespace fp16lab::reports
