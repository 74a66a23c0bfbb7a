// A sweep by GNU parallel.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "experiments/app/process.hpp"
#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/app/sweep/sweep_engine.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

std::filesystem::path job_log(const SweepPlan& plan) { return plan.folder / sweep_plan / "parallel.joblog"; }

/// The whole command line. Jobs get their tasks by number; retries and other machines are GNU
/// parallel's.
std::vector<std::string> words_of(const SweepPlan& plan, const std::vector<std::size_t>& tasks,
                                  const CommonOptions& common, const SweepOptions& options,
                                  const EngineOptions& engine) {
  const int jobs = std::max(1, options.jobs);
  // Ended, a run saves first: it is killed only if that takes ten minutes.
  std::vector<std::string> words{"parallel",  "--will-cite",
                                 "--quote",   "--ungroup",
                                 "--joblog",  "+" + job_log(plan).string(),
                                 "--retries", std::to_string(engine.tries.value_or(3)),
                                 "--jobs",    std::to_string(jobs),
                                 "--termseq", "TERM,600000,KILL,1000"};
  if (!engine.ssh_logins.empty() || !engine.ssh_login_file.empty()) {
    for (const std::string& login : engine.ssh_logins) words.insert(words.end(), {"--sshlogin", login});
    if (!engine.ssh_login_file.empty())
      words.insert(words.end(), {"--sshloginfile", engine.ssh_login_file.string()});
    words.insert(words.end(), {"--workdir", std::filesystem::current_path().string()});
    for (char** variable = environ; *variable != nullptr; ++variable)
      if (const std::string_view text = *variable; text.starts_with("FP16LAB_"))
        words.insert(words.end(), {"--env", std::string(text.substr(0, text.find('=')))});
  }
  std::vector<std::string> call{fp16lab_program().string()};
  const std::vector<std::string> arguments =
      task_arguments(plan, std::max(1, common.threads / jobs), options.force);
  call.insert(call.end(), arguments.begin(), arguments.end());
  for (const std::string& word : call)
    if (word.find('{') != std::string::npos || !is_printable(word))
      throw CommandError(
          ExitCode::usage,
          fmt::format(
              "--engine parallel: '{}': GNU parallel takes '{{' for a "
              "place to fill in, and a job for a line; expected a path without control characters and '{{'",
              printable(word)));
  words.insert(words.end(), call.begin(), call.end());
  words.emplace_back("{}");
  words.emplace_back(":::");
  for (const std::size_t task : tasks) words.push_back(std::to_string(task));
  return words;
}

std::filesystem::path gnu_parallel() {
  const std::filesystem::path program = program_called("parallel");
  if (program.empty())
    throw CommandError(
        ExitCode::unavailable,
        "--engine parallel: there is no GNU parallel in PATH (Debian: parallel); --engine local needs none");
  if (ask(program, {"--version"}).text.find("GNU parallel") == std::string::npos)
    throw CommandError(
        ExitCode::unavailable,
        fmt::format("--engine parallel: {} is another program than GNU parallel (Debian: parallel)",
                    program.string()));
  return program;
}

}  // namespace

SweepOutcome execute_by_parallel(const SweepPlan& plan, const CommonOptions& common,
                                 const SweepOptions& options, const EngineOptions& engine) {
  const std::filesystem::path program = gnu_parallel();
  catch_interrupts();
  const FolderClaim claim(plan.folder, "another sweep is working in it");
  const bool here = engine.ssh_logins.empty() && engine.ssh_login_file.empty();
  const std::vector<std::size_t> tasks =
      open_tasks(plan, common, options, here ? static_cast<std::size_t>(std::max(1, options.jobs)) : 0);
  SweepOutcome outcome{.done_before = plan.runs.size() - tasks.size(), .run_now = 0, .failed = {}};
  write_plan(plan, options.force);
  if (tasks.empty()) return outcome;

  std::vector<std::string> words = words_of(plan, tasks, common, options, engine);
  words.erase(words.begin());
  if (!common.quiet && isatty(STDERR_FILENO) != 0) words.insert(words.begin(), "--bar");
  ChildProcess parallel(program, words);
  std::optional<int> status = parallel.poll();
  for (; !status; status = parallel.poll()) {
    if (interrupted()) parallel.stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  outcome.interrupted = interrupted();
  for (const std::size_t task : tasks)
    if (is_kept(state_of(plan.runs[task - 1]), options))
      ++outcome.run_now;
    else
      outcome.failed.push_back(plan.runs[task - 1].name);
  if (!outcome.failed.empty() && !outcome.interrupted)
    say("sweep: parallel ended with exit code {}; {} says how its jobs ended", *status,
        job_log(plan).string());
  return outcome;
}

std::string parallel_dry_run(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options,
                             const EngineOptions& engine) {
  const std::vector<std::size_t> tasks = open_tasks(plan, common, options);
  if (tasks.empty()) return "";
  return shell_line(words_of(plan, tasks, common, options, engine)) + " </dev/null >/dev/null\n";
}

}  // namespace fp16lab::experiments
