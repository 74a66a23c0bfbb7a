// JSON of the page's parts, for report_data() to put together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/data/run_gradients.hpp"
#include "reports/data/run_set.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/page/page_detail.hpp"

namespace fp16lab::reports {

/// A run's recorded histograms for the explorer, its gradients thinned to `snapshots` steps, what the casts
/// did to them, the tensors' formats, the what-if rates over every observed step, and zone counts of this
/// library against which the page tests its own arithmetic. `others`: histograms of tensors that are no
/// gradients.
OrderedJson gradients_json(const Run& run, const std::string& workload, const std::string& label,
                           const RunGradients& gradients, const std::map<Observed, RunGradients>& others,
                           std::size_t snapshots);

/// The paths of every policy's scale as changes, and the steps that it skips.
OrderedJson replay_json(const ReplayFile& replay, const PageDetail& detail);

}  // namespace fp16lab::reports
