// What report.html computes with: one JSON document, embedded in the page.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/data/run_gradients.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/page/page_detail.hpp"

namespace fp16lab::reports {

/// One run whose histograms the page explores. If it represents its configuration, its gradients are in
/// WorkloadMaterial.
struct ExploredRun {
  const Run* run = nullptr;
  std::map<Observed, RunGradients> tensors;
};

/// One workload with all that pages and figures show of it; `gradients` and `explored` follow
/// workload->configurations.
struct WorkloadMaterial {
  const Workload* workload = nullptr;
  WorkloadSummary summary;
  std::vector<RunGradients> gradients;
  /// Representative first; empty where a configuration has no histograms.
  std::vector<std::vector<ExploredRun>> explored{};
  /// The drawing of the network, and the name of its file without ending; empty where there is none.
  struct Network {
    std::string stem{}, svg{};
  } network{};
};

/// What is above a page's sections.
struct PageHead {
  std::string title, subtitle, extent;  ///< extent_words()
  int follow_seconds = 0;               ///< ReportOptions has it
};

/// {"title", "subtitle", "follow", "notes", "extent", "overview", "observed", "provenance", "scales": [min,
/// max], "formats", "update_formats", "workloads": [{"name", "metric", "unit", "margin", "band", "start",
/// "emulated", "configurations": [...]}], "runs": [...], "replays": [...]}: a configuration has its curves,
/// final values, cost, difference to FP32 (positive is worse) and word; "start" names the run and tensor that
/// the first screen shows (answers.hpp); a run has its recorded histograms, the what-if rates, and under
/// "check" zone counts of this library against which the page tests its own arithmetic; a replay has the
/// paths of its policies' scales. page_sections.hpp has what sections show beside curves. Non-finite numbers
/// become null. "<" is written "\u003c", so that a script element may hold the text.
std::string report_data(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                        std::span<const ReplayFile> replays, const PageHead& head, const PageDetail& detail);

/// The split on which a workload's runs were evaluated, "test" if there is one; empty if there are no
/// evaluations.
std::string evaluation_split(const RunSet& set, const Workload& workload);

}  // namespace fp16lab::reports
