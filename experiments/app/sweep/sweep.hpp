// A sweep: workloads x variants x seeds, one run folder each, one process per run.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/common_options.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/files/run/run_schema.hpp"

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
  std::vector<std::string>
      notes{};  ///< what was given and does not count, and what counts for all: a sentence each
};

/// One [[workload]] or [[variant]] of a sweep file.
struct SweepWorkload {
  std::string name;
  RunConfig config;
  std::vector<std::uint64_t> seeds;
  std::vector<std::string> variants = {};  ///< names of those that it takes part in; empty: all
  std::string where = "sweep";             ///< for messages
  /// "key=value" of its file and its own list: some run must read those that the file alone does not.
  std::vector<std::string> given = {};
};
struct SweepVariant {
  std::string name;
  std::vector<std::string> set;  ///< "key=value", applied over the workload's configuration
  std::string where = "sweep";   ///< for messages
};

/// A key of a [[workload]] or [[variant]] table, "workload.seeds".
struct SweepFileKey {
  std::string_view name, expected, absent,
      doc;  ///< `absent`: what counts where it is not there; empty: it must be
};
std::span<const SweepFileKey> sweep_file_keys();

/// Multiplies out: workload by workload, variant by variant, seed by seed; the variants in their own order,
/// also where a workload names them. --set comes last and --seed replaces the seeds. Every configuration is
/// validated. CommandError(usage) on bad, unknown or repeated names, and for a parameter of loss-scale
/// policies that is given to the whole sweep, a workload or a variant where none of its runs has a policy
/// with it.
SweepPlan make_plan(const std::vector<SweepWorkload>& workloads, const std::vector<SweepVariant>& variants,
                    const CommonOptions& common);

/// Reads a sweep file (sweep_file_keys) or the configuration of one run, of which it makes a sweep: one
/// workload, called as the file, with three seeds from its train.seed on, in FP32 and, without `policies`, as
/// the file says. CommandError(usage) "FILE:LINE: ..." for anything else. With `keep_sizes`, the workloads'
/// own `set` lists are left out: configs/tutorials.toml makes its runs small by them. `policies` adds a
/// variant "fp32" and one for each of these loss-scale policies under amp.level = "O1" (of a single run:
/// under its level, where that is not O0), for all workloads, and takes the place of the [[variant]] tables
/// where there are none; "all" means every policy. `seeds`: so many from a workload's first one on (or
/// from --seed), in the place of its own.
SweepPlan load_sweep(const CommonOptions& common, bool keep_sizes = false,
                     const std::vector<std::string>& policies = {}, std::optional<std::uint64_t> seeds = {});

/// "train.steps is 40 there and 20 here", of the first key that differs; empty: none does.
std::string difference_of(const RunConfig& there, const RunConfig& here);

/// What is in a planned run's folder.
enum class RunState {
  planned,      ///< nothing that would be lost
  unfinished,   ///< this run, begun
  complete,     ///< this run, done by this build of the program
  damaged,      ///< this run, done, but its folder lacks some of what it wrote (RunFolder::damage)
  other_build,  ///< this run, done by another build: another commit, other changes to it, compiler or flags
  other_configuration,  ///< a run of another configuration that is complete or has checkpoints
  unreadable,           ///< a run whose manifest cannot be read
};
constexpr std::array<std::string_view, 7> names_of(RunState) {
  return {
      "planned",   "unfinished", "complete", "damaged", "complete by another build", "another configuration",
      "unreadable"};
}
RunState state_of(const PlannedRun& run);
/// Another build of the program may give other bits; a run is not made of both.
bool can_continue(const PlannedRun& run, RunState state);

/// Run by run as the plan has them.
struct Survey {
  std::vector<RunState> states;
  std::vector<RunLength> lengths;  ///< of those that are to be made; zeros for the others
};
/// Checks the configuration of every run that is to be made, with its data, network and back end, as the run
/// itself would, and looks into every folder. CommandError that begins with the run's name.
Survey survey(const SweepPlan& plan, const SweepOptions& options, const CommonOptions& common);

/// A warning where the `jobs` runs that take most memory would not fit in what there is.
void note_memory_of_runs(const Survey& found, std::size_t jobs, const CommonOptions& common);

/// May the sweep go on? CommandError(usage) where it would replace a run that is worth something, take a
/// damaged one for complete, or put runs of several builds beside each other, and `options` do not say so.
/// Tells runs of another build on stderr.
void require_safe(const SweepPlan& plan, const std::vector<RunState>& states, const SweepOptions& options,
                  const CommonOptions& common);

/// The last of these alone: what comparing the runs needs.
void require_one_build(const SweepPlan& plan, const std::vector<RunState>& states,
                       const SweepOptions& options, const CommonOptions& common);

/// Is a run in this state left as it is?
bool is_kept(RunState state, const SweepOptions& options);

/// Is the run on disk, complete, undamaged, and made from the same configuration?
bool is_done(const PlannedRun& run);

/// The plan's runs: their folders, whatever came of them, and the planned configurations of those that left
/// none.
struct RunsOfPlan {
  std::vector<std::filesystem::path> folders, missing;
};
RunsOfPlan runs_of(const SweepPlan& plan);

/// Beside every FP32 run of the plan its twin: the same run, every initial weight moved by one ulp
/// (train.perturb_ulps). Variant "NAME-twin" of variant NAME, without histograms; one that the plan has
/// stays. CommandError(usage) where the plan has no FP32 run, and where a run that is not perturbed has a
/// twin's name.
void add_twins(SweepPlan& plan);

/// Writes the plan beside the runs (fp16lab::sweep_plan): a configuration for each, and their list, by whose
/// numbers `sweep --task` finds them. Configurations of earlier sweeps stay, so that a run of theirs that is
/// gone is still known to be missing; with `forget`, those of runs that are not there go.
void write_plan(const SweepPlan& plan, bool forget);
/// What the written plan has that this one has not, in a sentence; empty: nothing that was made.
std::string left_out(const SweepPlan& plan);
bool has_written_plan(const std::filesystem::path& folder);
/// The plan that was last written there. `only`: the number of a task, from 1; the other runs have no
/// configuration then. CommandError(usage) if there is none, or none of that number, (run_failed)
/// "FILE:LINE: ..." if it cannot be read.
SweepPlan read_written_plan(const std::filesystem::path& folder, std::optional<std::size_t> only = {});

/// CommandError(usage) that names the first difference if the plan in plan.folder has other runs, other
/// numbers or other configurations; `only`: of the configurations that of this task. As read_written_plan if
/// it cannot be read.
void require_written_plan(const SweepPlan& plan, std::optional<std::size_t> only = {});
/// Which run has which number, as 12 hex digits.
std::string plan_id(const SweepPlan& plan);

/// Carries out one run of the plan, in this process, whichever engine called it: one that is kept (is_kept)
/// stays as it is, one that this build began is continued from its newest checkpoint, all others begin. The
/// run's folder is claimed first, so that of several processes with one task one works. Returns ok for a run
/// that diverged, too: it is complete. Otherwise as train().
ExitCode run_task(const SweepPlan& plan, std::size_t number, const CommonOptions& common,
                  const SweepOptions& options);
/// The command line by which another process carries one out, after the program's name and before the number
/// of the task: `sweep --out ... --plan ID ... --task`. It is refused where the numbers mean other runs by
/// then.
std::vector<std::string> task_arguments(const SweepPlan& plan, int threads, bool force);

struct SweepOutcome {
  std::size_t done_before = 0;
  std::size_t run_now = 0;
  std::vector<std::string> failed;  ///< names of runs that crashed or ended with an error
  bool interrupted = false;
};

/// Carries the plan out, some child processes (`fp16lab sweep --task`) at a time among which the threads are
/// shared, so that a run that crashes or is killed takes nothing with it. Before the first one starts, every
/// run is checked (survey, require_safe), and the plan is written beside the runs (fp16lab::sweep_plan),
/// where those of earlier sweeps stay. Complete runs with the same configuration are skipped; those that this
/// build of the program began with it are continued from their newest checkpoint; all others start afresh.
/// Two sweeps cannot work in one folder at once (CommandError(usage)).
SweepOutcome execute_sweep(const SweepPlan& plan, const CommonOptions& common,
                           const SweepOptions& options = {});

}  // namespace fp16lab::experiments
