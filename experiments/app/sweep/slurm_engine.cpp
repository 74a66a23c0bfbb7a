// A sweep by Slurm: one script, submitted as arrays of jobs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/app/sweep/sweep_engine.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t default_array_size = 1001;  ///< MaxArraySize, slurm.conf(5)

std::filesystem::path script_of(const SweepPlan& plan) { return plan.folder / sweep_plan / "slurm.sh"; }
std::filesystem::path jobs_of(const SweepPlan& plan) { return plan.folder / sweep_plan / "slurm.jobs"; }

std::filesystem::path slurm_program(const std::string& name) {
  std::filesystem::path program = program_called(name);
  if (program.empty())
    throw CommandError(
        ExitCode::unavailable,
        fmt::format("--engine slurm: there is no {} in PATH: submit on a machine of the cluster "
                    "(Debian: slurm-client), or take --engine parallel or local",
                    name));
  return program;
}

/// CommandError(run_failed) with the program's own words if it fails.
std::string answer_of(const std::string& name, const std::vector<std::string>& arguments) {
  const ProgramAnswer answer = ask(slurm_program(name), arguments);
  if (answer.status == 0) return answer.text;
  std::string words = answer.text.substr(0, answer.text.find_last_not_of('\n') + 1);
  std::replace(words.begin(), words.end(), '\n', ' ');
  throw CommandError(ExitCode::run_failed,
                     fmt::format("{} ended with exit code {}: {}", name, answer.status, words));
}

/// How many elements an array may have. Its greatest index is one less than MaxArraySize.
std::size_t array_size() {
  std::istringstream lines(answer_of("scontrol", {"show", "config"}));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, equals;
    std::size_t value = 0;
    if (words >> key >> equals >> value && key == "MaxArraySize" && value > 0) return value;
  }
  throw CommandError(ExitCode::run_failed,
                     "scontrol show config: expected a line 'MaxArraySize = N' with N above 0; a cluster "
                     "without arrays of jobs cannot make a sweep");
}

/// A path as --output takes it, where a backslash anywhere ends all replacement (sbatch(1), filename pattern).
std::string as_pattern(const std::filesystem::path& path) {
  if (path.string().find('\\') != std::string::npos)
    throw CommandError(
        ExitCode::usage,
        fmt::format("--engine slurm: '{}': sbatch takes a backslash in the name of a log for a sign of "
                    "its own; expected a path without it",
                    printable(path.string())));
  std::string pattern;
  for (const char c : path.string()) pattern += c == '%' ? "%%" : std::string(1, c);
  return pattern;
}

constexpr std::string_view after_previous = "--dependency=afterany:PREVIOUS";

struct Arrays {
  std::string script;
  std::vector<std::vector<std::string>> calls;  ///< of sbatch; PREVIOUS: the id that the call before gave
};

/// The script of an element up to what is its sweep's own.
constexpr std::string_view head = R"(child= told= stopping=
tell() {
  if [[ -n $stopping && -n $child && -z $told ]]; then
    told=1
    kill -TERM "$child" 2>/dev/null
  fi
}
trap 'stopping=1; tell' TERM
)";

/// The rest: SLURM_ARRAY_TASK_ID counts from 0 in each array, $1 is where the array begins.
constexpr std::string_view body = R"(
# Told to end while the job is running (its time is nearly over, or it must give way), it is queued again:
# by scontrol, or by this exit code where the cluster has RequeueExit=143. A job that is cancelled is not.
leave() {
  state=$(scontrol show job "$SLURM_JOB_ID")
  [[ $state == *JobState=* && $state != *JobState=RUNNING* ]] && exit 130
  scontrol requeue "$SLURM_JOB_ID"
  exit 143
}
failed=0
for task in "${tasks[@]:(${1:-0} + SLURM_ARRAY_TASK_ID) * runs:runs}"; do
  for ((try = 1; try <= tries; ++try)); do
    [[ -n $stopping ]] && leave
    told=
    "${run[@]}" "$task" </dev/null >/dev/null &
    child=$!
    tell
    # A signal ends wait, not the child.
    while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
    child=
    [[ $code == 0 ]] && break
  done
  if [[ $code != 0 ]]; then
    [[ -n $stopping ]] && leave
    echo "task $task: exit code $code" >&2
    failed=1
  fi
done
exit $failed
)";

Arrays make_arrays(const SweepPlan& plan, const std::vector<std::size_t>& tasks, std::size_t most,
                   const SweepOptions& options, const EngineOptions& engine) {
  const auto runs = static_cast<std::size_t>(engine.runs_per_element.value_or(1));
  const int cpus = engine.cpus.value_or(1);
  const std::size_t elements = (tasks.size() + runs - 1) / runs;
  Arrays arrays;
  const std::filesystem::path folder = std::filesystem::absolute(plan.folder / sweep_plan);
  for (std::size_t begin = 0; begin < elements; begin += most) {
    const std::size_t count = std::min(most, elements - begin);
    std::vector<std::string> call{
        "sbatch",
        "--parsable",
        "--requeue",
        fmt::format("--array=0-{}{}", count - 1, options.jobs > 0 ? fmt::format("%{}", options.jobs) : ""),
        "--output=" + as_pattern(folder) + "/slurm-%A_%a.log",
        fmt::format("--cpus-per-task={}", cpus)};
    for (const auto& [option, value] : {std::pair{"--partition=", &engine.partition},
                                        {"--time=", &engine.time},
                                        {"--mem=", &engine.memory}})
      if (!value->empty()) call.push_back(option + *value);
    // So many elements at a time are meant of the whole sweep.
    if (options.jobs > 0 && begin > 0) call.emplace_back(after_previous);
    call.insert(call.end(), engine.sbatch.begin(), engine.sbatch.end());
    call.insert(call.end(), {(folder / "slurm.sh").string(), std::to_string(begin)});
    arrays.calls.push_back(std::move(call));
  }

  std::string& script = arrays.script;
  script = "#!/bin/bash\n# Made by fp16lab sweep --engine slurm. Submitted by:\n";
  for (const std::vector<std::string>& call : arrays.calls) script += "#   " + shell_line(call) + "\n";
  script +=
      "#SBATCH --job-name=fp16lab\n#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --open-mode=append\n"
      "#SBATCH --signal=B:TERM@120\n";
  std::vector<std::string> call{fp16lab_program().string()};
  const std::vector<std::string> arguments = task_arguments(plan, cpus, options.force);
  call.insert(call.end(), arguments.begin(), arguments.end());
  script += fmt::format("{}cd {} || exit 1\nrun=({})\ntasks=({})\nruns={} tries={}\n{}", head,
                        shell_line({std::filesystem::current_path().string()}), shell_line(call),
                        fmt::join(tasks, " "), runs, engine.tries.value_or(3), body.substr(1));
  return arrays;
}

/// Ids of this sweep's earlier arrays that squeue still shows.
void require_ended(const SweepPlan& plan) {
  if (!is_there(jobs_of(plan))) return;
  std::istringstream queue(answer_of("squeue", {"--noheader", "--format=%F"}));
  std::set<std::string> queued;
  for (std::string id; queue >> id;) queued.insert(id);
  std::vector<std::string> ours;
  for (const std::string& id : read_lines(jobs_of(plan)).complete)
    if (queued.contains(id)) ours.push_back(id);
  if (ours.empty()) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format(
          "{}: earlier Slurm jobs of this sweep are still in the queue: {}; wait for them, or end them by "
          "'scancel {}'",
          plan.folder.string(), fmt::join(ours, ", "), fmt::join(ours, " ")));
}

/// The id that `sbatch --parsable` prints, "ID" or "ID;CLUSTER", among what else it may say.
std::string job_id(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string id = line.substr(0, line.find(';'));
    if (!id.empty() && id.find_first_not_of("0123456789") == std::string::npos) return id;
  }
  throw CommandError(ExitCode::run_failed,
                     fmt::format("sbatch --parsable: expected the number of a job, found '{}'", shown(text)));
}

}  // namespace

Submission submit_to_slurm(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                           const EngineOptions& engine) {
  slurm_program("sbatch");
  const FolderClaim claim(plan.folder, "another sweep is working in it");
  require_ended(plan);
  const std::vector<std::size_t> tasks = open_tasks(plan, common, options);
  write_plan(plan, options.force);
  Submission submission{.runs = tasks.size(), .jobs = {}};
  if (tasks.empty()) return submission;
  const Arrays arrays = make_arrays(plan, tasks, array_size(), options, engine);
  write_file_atomically(script_of(plan), arrays.script);
  std::string ids;
  for (std::vector<std::string> call : arrays.calls) {
    call.erase(call.begin());
    for (std::string& word : call)
      if (word == after_previous) word = "--dependency=afterany:" + submission.jobs.back();
    try {
      submission.jobs.push_back(job_id(answer_of("sbatch", call)));
    } catch (const CommandError& error) {
      if (submission.jobs.empty()) throw;
      throw CommandError(error.code, fmt::format("{}; submitted before, and in the queue: {}", error.what(),
                                                 fmt::join(submission.jobs, ", ")));
    }
    ids += submission.jobs.back() + "\n";
    write_file_atomically(jobs_of(plan), ids);
  }
  return submission;
}

std::string slurm_dry_run(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                          const EngineOptions& engine) {
  const std::vector<std::size_t> tasks = open_tasks(plan, common, options);
  if (tasks.empty()) return "";
  std::size_t most = default_array_size;
  std::string unknown;
  try {
    most = array_size();
  } catch (const CommandError& error) {
    unknown = error.what();
  }
  const Arrays arrays = make_arrays(plan, tasks, most, options, engine);
  if (!unknown.empty() && !common.quiet)
    say("sweep: note: MaxArraySize is taken for Slurm's default, {}: {}", most, unknown);
  std::string text;
  for (const std::vector<std::string>& call : arrays.calls) text += shell_line(call) + "\n";
  return text + fmt::format("\n{}:\n{}", script_of(plan).string(), arrays.script);
}

}  // namespace fp16lab::experiments
