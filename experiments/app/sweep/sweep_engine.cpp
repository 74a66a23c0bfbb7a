#include "experiments/app/sweep/sweep_engine.hpp"

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
void add_engine(Options& options, EngineOptions& engine) {
  const auto add = [&options](const char* name, auto& value, const char* type, const char* help) {
    return options.add(name, value, help).type(type).group("--engine");
  };
  add("--engine", engine.name, "NAME",
      "What starts the remaining runs: this program (local); GNU parallel, also on other machines, --jobs on "
      "each; or Slurm, --jobs at a time (default: no limit): then this program returns once everything is "
      "submitted, and --collect shows what is done. The machines share the file system; bits do not depend "
      "on the engine")
      .one_of({"local", "parallel", "slurm"});
  add("--tries", engine.tries, "N", "parallel, slurm: how often a failing run is tried (default: 3)")
      .at_least(1, 1000);
  add("--sshlogin", engine.ssh_logins, "LOGIN",
      "parallel: another machine, as in its own --sshlogin; ':' is this one (repeatable)")
      .repeatable();
  add("--sshloginfile", engine.ssh_login_file, "FILE", "parallel: a file of such machines, one a line")
      .not_empty("a file");
  add("--runs-per-element", engine.runs_per_element, "N",
      "slurm: runs of one array element, one after another (default: 1, or enough for 1000 elements; use "
      "more where runs take minutes)")
      .at_least(1, 1000000);
  add("--cpus", engine.cpus, "N", "slurm: processors of an element, and threads of its runs (default: 1)")
      .at_least(1, 1024);
  add("--partition", engine.partition, "NAME", "slurm: passed to sbatch").not_empty("a partition");
  add("--time", engine.time, "TIME",
      "slurm: time limit of an element, passed to sbatch; two minutes before it, the run saves and the "
      "element is queued again")
      .not_empty("a time as sbatch takes it");
  add("--mem", engine.memory, "SIZE", "slurm: passed to sbatch").not_empty("a size as sbatch takes it");
  add("--sbatch", engine.sbatch, "OPTION",
      "slurm: any other option of sbatch, such as --sbatch=--account=lab (repeatable)")
      .repeatable();
}

void require_fitting(const EngineOptions& engine) {
  const auto refuse = [](const std::string& why) { throw CommandError(ExitCode::usage, why); };
  if (engine.tries && engine.name == "local")
    refuse("--tries is for --engine parallel and slurm: expected one of them, or no --tries");
  for (const auto& [given, option, of] :
       {std::tuple{!engine.ssh_logins.empty(), "--sshlogin", "parallel"},
        {!engine.ssh_login_file.empty(), "--sshloginfile", "parallel"},
        {engine.runs_per_element.has_value(), "--runs-per-element", "slurm"},
        {engine.cpus.has_value(), "--cpus", "slurm"},
        {!engine.partition.empty(), "--partition", "slurm"},
        {!engine.time.empty(), "--time", "slurm"},
        {!engine.memory.empty(), "--mem", "slurm"},
        {!engine.sbatch.empty(), "--sbatch", "slurm"}})
    if (given && engine.name != of)
      refuse(fmt::format("{} is for --engine {}: expected that, or no {}", option, of, option));
  // Slurm takes a number alone for minutes, and the signal comes two of them before the end.
  if (engine.time.size() == 1 && engine.time.front() >= '0' && engine.time.front() <= '9')
    refuse(
        fmt::format("--time {}: Slurm reads minutes, and a run saves two minutes before the end, so it would "
                    "be queued again and again: expected 10 or more, or hours as in 4:00:00",
                    engine.time));
  for (const std::string& option : engine.sbatch)
    if (!option.starts_with("-") || !is_printable(option))
      refuse(fmt::format(
          "--sbatch: '{}': expected an option of sbatch in one word, such as --sbatch=--account=lab",
          printable(option)));
}

std::vector<std::size_t> open_tasks(const SweepPlan& plan, const CommonOptions& common,
                                    const SweepOptions& options, std::size_t jobs) {
  const Survey found = survey(plan, options, common);
  require_safe(plan, found.states, options, common);
  note_memory_of_runs(found, jobs, common);
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < found.states.size(); ++i)
    if (!is_kept(found.states[i], options)) numbers.push_back(i + 1);
  if (!common.quiet && numbers.size() < plan.runs.size())
    say("sweep: {} of {} runs are already complete", plan.runs.size() - numbers.size(), plan.runs.size());
  return numbers;
}

}  // namespace fp16lab::experiments
