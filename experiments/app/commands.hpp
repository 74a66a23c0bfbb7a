// The commands of fp16lab. A new one is a file in commands/, its declaration here and its row in
// command_line.cpp.
#pragma once

#include <filesystem>
#include <vector>

#include "experiments/app/arguments.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::experiments {

Command train_command();
Command sweep_command();
Command model_command();
Command hist_command();
Command replay_command();
Command compare_command();
Command mismatch_command();
Command sensitivity_command();
Command report_command();
Command inspect_command();
Command softfloat_command();
Command mma_command();
Command reveal_command();
Command policy_command();
Command list_command();
Command devices_command();
Command self_check_command();

/// What fp16lab report does with runs that are loaded, for sweep --report: writes the page and its figures
/// into `out`, under the name of the folder `named`, and prints its path. Returns why files of figures are
/// missing; empty: none is. `replays`: replay.json files. `follow_seconds`: ReportOptions has it; a page that is
/// written quietly again is not named again.
std::string write_report_page(const CommonOptions& common, const reports::RunSet& runs,
                              const std::vector<reports::WorkloadSummary>& summaries,
                              const std::vector<std::filesystem::path>& replays,
                              const std::filesystem::path& out, const std::filesystem::path& named,
                              int follow_seconds = 0, const reports::DrawingOptions& drawing = {});

}  // namespace fp16lab::experiments
