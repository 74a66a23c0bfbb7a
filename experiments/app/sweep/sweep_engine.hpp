// Who starts the tasks of a sweep: this program, GNU parallel, or Slurm. The two others are called, never
// imitated: they schedule, restart and reach other machines, and each of their jobs is `fp16lab sweep --task
// K` (run_task), which does nothing for a complete run, continues one that was begun, and claims its folder.
// What is complete is always judged by the run folders, never by a scheduler's records. Machines share the
// file system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/arguments.hpp"
#include "experiments/app/sweep/sweep.hpp"

namespace fp16lab::experiments {

struct EngineOptions {
  std::string name = "local";  ///< "local", "parallel" or "slurm"
  std::optional<int> tries;    ///< how often a run is tried that fails; not given: 3
  // Of GNU parallel:
  std::vector<std::string> ssh_logins;
  std::filesystem::path ssh_login_file;
  // Of Slurm:
  std::optional<int> runs_per_element;  ///< one after another in one element of the array
  std::optional<int> cpus;              ///< of an element, and threads of its runs; not given: 1
  std::string partition, time, memory;  ///< in Slurm's own form
  std::vector<std::string> sbatch;      ///< "--account=lab": whatever else sbatch takes
};

/// Declares --engine and all of these.
void add_engine(Options& options, EngineOptions& engine);
/// CommandError(usage) for an option of another engine than the chosen one.
void require_fitting(const EngineOptions& engine);

/// The numbers of the tasks that are left, from 1, after the checks that execute_sweep makes. `jobs`: so many
/// at a time take this machine's memory.
std::vector<std::size_t> open_tasks(const SweepPlan& plan, const CommonOptions& common,
                                    const SweepOptions& options, std::size_t jobs = 0);

/// Writes the plan and waits for GNU parallel, which gets the tasks that are left; options.jobs at a time on
/// each machine. plan/parallel.joblog keeps what it says of them, call after call. SIGINT and SIGTERM are
/// passed on, so that all runs save. CommandError(unavailable) where there is no GNU parallel.
SweepOutcome execute_by_parallel(const SweepPlan& plan, const CommonOptions& common,
                                 const SweepOptions& options, const EngineOptions& engine);
/// The command line of that call; writes nothing.
std::string parallel_dry_run(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                             const EngineOptions& engine);

/// What Slurm was given.
struct Submission {
  std::size_t runs = 0;
  std::string job;  ///< id of the array; empty if no run is left
};
/// Writes the plan and plan/slurm.sh, and submits that script as an array for the tasks that are left;
/// options.jobs > 0: so many elements at a time. An element that Slurm tells to end lets its run save, and is
/// queued again. CommandError(unavailable) where there is no Slurm, (run_failed) with its words where it
/// refuses, (usage) while an earlier job of this sweep is in the queue.
Submission submit_to_slurm(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                           const EngineOptions& engine);
/// The call of sbatch and the script. Writes nothing.
std::string slurm_dry_run(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                          const EngineOptions& engine);

}  // namespace fp16lab::experiments
