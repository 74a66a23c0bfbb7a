// A training run from beginning, checkpoint or end: what `fp16lab train` and a task of a sweep do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "experiments/app/common_options.hpp"
#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/run/live_panel.hpp"

namespace fp16lab::experiments {

struct TrainRequest {
  CommonOptions common;
  bool force = false;                    ///< replace a finished run
  bool resume = false;                   ///< continue the run in the output folder, where there is one
  bool of_sweep = false;                 ///< the sweep's or question's own command continues it
  std::string name;                      ///< of the configuration, for tables and figures
  std::filesystem::path dump_initial;    ///< empty: not given
  std::filesystem::path dump_gradients;  ///< of the iteration dump_step; empty: not given
  std::uint64_t dump_step = 0;
  bool op_statistics = false;  ///< count the ops of the first step
  LiveMode live = LiveMode::off;
  std::filesystem::path tensorboard;  ///< empty: not given
};

inline constexpr const char* another_writer = "another process is writing this run";

/// Claims the run's folder (common.out, or results/CONFIG-seedN) and trains in it; a JSON summary on stdout.
/// ok, diverged, or interrupted with the state saved. CommandError for everything else, also if another
/// process has the folder.
ExitCode train(const TrainRequest& request);
/// The same in a folder that the caller has claimed: common.out.
ExitCode train(const TrainRequest& request, const FolderClaim& held);

}  // namespace fp16lab::experiments
