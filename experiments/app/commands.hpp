// The commands of fp16lab. A new one is a file in commands/, its declaration here and its row in
// command_line.cpp.
#pragma once

#include <filesystem>
#include <vector>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

Command train_command();
Command sweep_command();
Command model_command();
Command hist_command();
Command replay_command();
Command compare_command();
Command report_command();
Command inspect_command();
Command softfloat_command();
Command mma_command();
Command policy_command();
Command list_command();
Command devices_command();

/// What fp16lab report does, for sweep --report. `runs`: run folders, folders of runs, or what replay wrote;
/// `mix_builds`: judge runs of several builds by each other.
ExitCode write_report_page(const CommonOptions& common, const std::vector<std::filesystem::path>& runs,
                           bool mix_builds);

}  // namespace fp16lab::experiments
