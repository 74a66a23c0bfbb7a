// A sweep by Slurm: one script, submitted as one array of jobs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/app/sweep/sweep_engine.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t most_elements = 1000;  ///< below MaxArraySize as it is without a line in slurm.conf(5)

/// What one of Slurm's programs says. CommandError(unavailable) where it is not here, (run_failed) with its
/// own words if it fails.
std::string answer_of(const std::string& name, const std::vector<std::string>& arguments) {
  const std::filesystem::path program = program_called(name);
  if (program.empty())
    throw CommandError(
        ExitCode::unavailable,
        fmt::format("--engine slurm: there is no {} in PATH: submit on a machine of the cluster "
                    "(Debian: slurm-client), or take --engine parallel or local",
                    name));
  const ProgramAnswer answer = ask(program, arguments);
  if (answer.status == 0) return answer.text;
  std::string words = answer.text.substr(0, answer.text.find_last_not_of('\n') + 1);
  std::replace(words.begin(), words.end(), '\n', ' ');
  throw CommandError(ExitCode::run_failed,
                     fmt::format("{} ended with exit code {}: {}", name, answer.status, words));
}

/// The script of an element after what is its sweep's own. $SLURM_ARRAY_TASK_ID counts elements from 0.
constexpr std::string_view body = R"(
child= told= stopping=
tell() {
  if [[ -n $stopping && -n $child && -z $told ]]; then
    told=1
    kill -TERM "$child" 2>/dev/null
  fi
}
trap 'stopping=1; tell' TERM
# Told to end while the job is running (its time is nearly over, or it must give way), it is queued again:
# by scontrol, or by this exit code where the cluster has RequeueExit=143. A job that is cancelled is not.
leave() {
  state=$(scontrol show job "$SLURM_JOB_ID")
  [[ $state == *JobState=* && $state != *JobState=RUNNING* ]] && exit 130
  scontrol requeue "$SLURM_JOB_ID"
  exit 143
}
failed=0
for task in "${tasks[@]:SLURM_ARRAY_TASK_ID * runs:runs}"; do
  for ((try = 1; try <= tries; ++try)); do
    [[ -n $stopping ]] && leave
    told=
    "${run[@]}" "$task" </dev/null >/dev/null &
    child=$!
    tell
    # A signal ends wait, not the child.
    while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
    child=
    [[ $code == 0 ]] && continue 2
  done
  [[ -n $stopping ]] && leave
  echo "task $task: exit code $code" >&2
  failed=1
done
exit $failed
)";

struct Array {
  std::filesystem::path script;
  std::vector<std::string> call;  ///< of sbatch
  std::string text;               ///< of the script
};

std::filesystem::path folder_of(const SweepPlan& plan) {
  return std::filesystem::absolute(plan.folder / sweep_plan);
}

/// By which squeue finds the jobs of this sweep's folder.
std::string job_name(const SweepPlan& plan) {
  return "fp16lab-" + sha256_of(folder_of(plan).string()).substr(0, 12);
}

Array make_array(const SweepPlan& plan, const std::vector<std::size_t>& tasks, const SweepOptions& options,
                 const EngineOptions& engine) {
  const std::size_t runs = engine.runs_per_element ? static_cast<std::size_t>(*engine.runs_per_element)
                                                   : (tasks.size() + most_elements - 1) / most_elements;
  const int cpus = engine.cpus.value_or(1);
  const std::filesystem::path folder = folder_of(plan);
  Array array{.script = folder / "slurm.sh", .call = {}, .text = {}};
  // The log is named from --chdir on, because a name that sbatch fills in may not hold what a path may.
  array.call = {"sbatch",
                "--parsable",
                "--requeue",
                "--job-name=" + job_name(plan),
                fmt::format("--array=0-{}{}", (tasks.size() + runs - 1) / runs - 1,
                            options.jobs > 0 ? fmt::format("%{}", options.jobs) : ""),
                "--chdir=" + folder.string(),
                "--output=slurm-%A_%a.log",
                fmt::format("--cpus-per-task={}", cpus)};
  for (const auto& [option, value] :
       {std::pair{"--partition=", &engine.partition}, {"--time=", &engine.time}, {"--mem=", &engine.memory}})
    if (!value->empty()) array.call.push_back(option + *value);
  array.call.insert(array.call.end(), engine.sbatch.begin(), engine.sbatch.end());
  array.call.push_back(array.script.string());
  std::vector<std::string> run = task_arguments(plan, cpus, options.force);
  run.insert(run.begin(), fp16lab_program().string());
  array.text = fmt::format(R"(#!/bin/bash
# Made by fp16lab sweep --engine slurm. Submitted by:
#   {}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
cd {} || exit 1
run=({})
tasks=({})
runs={} tries={}{})",
                           shell_line(array.call), shell_line({std::filesystem::current_path().string()}),
                           shell_line(run), fmt::join(tasks, " "), runs, engine.tries.value_or(3), body);
  return array;
}

/// The first number that is a line of `text`, as sbatch and squeue print ids ("ID" or "ID;CLUSTER") among
/// what else they may say; empty: there is none.
std::string job_id(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string id = line.substr(0, line.find_first_of("; "));
    if (!id.empty() && id.find_first_not_of("0123456789") == std::string::npos) return id;
  }
  return "";
}

/// CommandError(usage) while an earlier job of this sweep is in the queue.
void require_ended(const SweepPlan& plan) {
  const std::string id =
      job_id(answer_of("squeue", {"--noheader", "--format=%F", "--name=" + job_name(plan)}));
  if (id.empty()) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format("{}: an earlier Slurm job of this sweep is still in the queue: {}; wait for it, or end "
                  "it by 'scancel {}'",
                  plan.folder.string(), id, id));
}

}  // namespace

Submission submit_to_slurm(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                           const EngineOptions& engine) {
  const FolderClaim claim(plan.folder, "another sweep is working in it");
  require_ended(plan);
  const std::vector<std::size_t> tasks = open_tasks(plan, common, options);
  write_plan(plan, options.force);
  Submission submission{.runs = tasks.size(), .job = {}};
  if (tasks.empty()) return submission;
  Array array = make_array(plan, tasks, options, engine);
  write_file_atomically(array.script, array.text);
  array.call.erase(array.call.begin());
  const std::string answer = answer_of("sbatch", array.call);
  submission.job = job_id(answer);
  if (submission.job.empty())
    throw CommandError(
        ExitCode::run_failed,
        fmt::format("sbatch --parsable: expected the number of a job, found '{}'", shown(answer)));
  return submission;
}

std::string slurm_dry_run(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                          const EngineOptions& engine) {
  const std::vector<std::size_t> tasks = open_tasks(plan, common, options);
  if (tasks.empty()) return "";
  const Array array = make_array(plan, tasks, options, engine);
  return fmt::format("{}\n\n{}:\n{}", shell_line(array.call),
                     (plan.folder / sweep_plan / "slurm.sh").string(), array.text);
}

}  // namespace fp16lab::experiments
