// What a report is asked to show: run folders and replays, named singly or by the folder that holds them.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

namespace fp16lab::reports {

struct ReportInput {
  std::vector<std::filesystem::path> runs;     ///< folders with a manifest.json
  std::vector<std::filesystem::path> replays;  ///< replay.json files
  std::vector<std::filesystem::path> missing;  ///< planned configurations without a run (fp16lab::sweep_plan)
};

/// Each path is a file of a sweep's plan whose run is missing, a run folder, a folder with a replay.json, or
/// a folder that holds such (a sweep's; at most three levels are searched, names in order). Replays inside a
/// run folder count too. Nothing is taken twice. What a sweep's folder plans and does not hold is
/// missing. So that SWEEP/* is as good as SWEEP, files, `figures` and `plan` are passed over beside such folders. Any
/// other path that is not there, or holds neither, throws std::runtime_error.
ReportInput find_report_input(std::span<const std::filesystem::path> paths);

}  // namespace fp16lab::reports
