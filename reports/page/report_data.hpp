// What report.html computes with: one JSON document, embedded in the page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/data/run_gradients.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/page/page_detail.hpp"

namespace fp16lab::reports {

/// One workload with all that pages and figures show of it; `gradients` follows workload->configurations.
struct WorkloadMaterial {
  const Workload* workload = nullptr;
  WorkloadSummary summary;
  std::vector<RunGradients> gradients;
};

/// {"scales": [min, max], "workloads": [{"name", "metric", "configurations": [...]}], "runs": [...],
/// "replays": [...]}: a configuration has its curves, final values, difference to FP32 (positive is worse)
/// and word; a run has its recorded histograms, the what-if rates, and under "check" zone counts of this
/// library against which the page tests its own arithmetic; a replay has the paths of its policies' scales.
/// Non-finite numbers become null. "</" is written "<\/", so that the text may stand inside a script element.
std::string report_data(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                        std::span<const ReplayFile> replays, const PageDetail& detail);

/// The split on which a workload's runs were evaluated, "test" if there is one; empty if there are no
/// evaluations.
std::string evaluation_split(const RunSet& set, const Workload& workload);

}  // namespace fp16lab::reports
