// A sweep: workloads x variants x seeds, one run folder each, one process per run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/commands.hpp"
#include "experiments/config.hpp"
#include "numerics/files/run_schema.hpp"

namespace fp16lab::experiments {

struct PlannedRun {
  std::string name;  ///< "autoencoder-none-seed1": its folder's name
  std::string workload;
  std::string variant;
  RunConfig config;
  std::filesystem::path folder;
};

struct SweepPlan {
  std::filesystem::path folder;
  std::vector<PlannedRun> runs;
};

/// One [[workload]] or [[variant]] of a sweep file.
struct SweepWorkload {
  std::string name;
  RunConfig config;
  std::vector<std::int64_t> seeds;
  std::vector<std::string> variants = {};  ///< names of those that it takes part in; empty: all
  std::string where = "sweep";             ///< for messages
};
struct SweepVariant {
  std::string name;
  std::vector<std::string> set;  ///< "key=value", applied over the workload's configuration
  std::string where = "sweep";   ///< for messages
};

/// Multiplies out: workload by workload, variant by variant, seed by seed; the variants in their own order, also where
/// a workload names them. --set comes last and --seed replaces the seeds. Every configuration is validated.
/// CommandError(usage) on bad, unknown or repeated names.
SweepPlan make_plan(const std::vector<SweepWorkload>& workloads, const std::vector<SweepVariant>& variants,
                    const CommonOptions& common);

/// Reads a sweep file:
///   [[workload]]  name = "classifier"  config = "classifier.toml" (beside this file)  set = ["key=value",
///   ...]
///                 seeds = [1, 2]    variants = ["none", "fp32"] (of the [[variant]] tables; without it, all)
///   [[variant]]   name = "none"        set = ["amp.level=O1", "scaler.policy=none"]
/// CommandError(usage) "FILE:LINE: ..." for anything else. With `keep_sizes`, the workloads' own `set` lists are left
/// out: configs/tutorials.toml makes its runs small by them. `policies` adds a variant "fp32" and one for each of these
/// loss-scale policies under amp.level = "O1", for all workloads, and takes the place of the [[variant]] tables where
/// there are none; "all" stands for every policy.
SweepPlan load_sweep(const CommonOptions& common, bool keep_sizes = false,
                     const std::vector<std::string>& policies = {});

/// Is the run on disk, complete, and made from the same configuration?
bool is_done(const PlannedRun& run);

struct SweepOutcome {
  std::size_t done_before = 0;
  std::size_t run_now = 0;
  std::vector<std::string> failed;  ///< names of runs that crashed or ended with an error
  bool interrupted = false;
};

/// Carries the plan out, `jobs` child processes (`fp16lab train`) at a time among which the threads are shared, so that
/// a run that crashes or is killed takes nothing with it. Complete runs with the same configuration are skipped; those
/// that this version of the program began with it are continued from their newest checkpoint; all others start
/// afresh. Two sweeps cannot work in one folder at once (CommandError(usage)).
SweepOutcome execute_sweep(const SweepPlan& plan, const CommonOptions& common, int jobs = 1);

}  // namespace fp16lab::experiments
