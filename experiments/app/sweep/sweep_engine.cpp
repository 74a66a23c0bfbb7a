#include "experiments/app/sweep/sweep_engine.hpp"

#include <fmt/format.h>

#include <string_view>

#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr const char* own = "--engine";

}  // namespace

void add_engine(Options& options, EngineOptions& engine) {
  options
      .add("--engine", engine.name,
           "Who starts the runs that are left: this program (local); GNU parallel, also on other machines, "
           "--jobs on each; or Slurm, --jobs at a time (default: no limit): then this program returns when "
           "all is submitted, and --collect says what is there. The machines share the file system; bits do "
           "not depend on the engine")
      .type("NAME")
      .group(own)
      .one_of({"local", "parallel", "slurm"});
  options.add("--tries", engine.tries, "parallel, slurm: how often a run is tried that fails (default: 3)")
      .type("N")
      .group(own)
      .at_least(1, 1000);
  options
      .add("--sshlogin", engine.ssh_logins,
           "parallel: another machine, as its own --sshlogin has it; ':' is this one (repeatable)")
      .type("LOGIN")
      .group(own)
      .repeatable();
  options.add("--sshloginfile", engine.ssh_login_file, "parallel: a file of such machines, one a line")
      .type("FILE")
      .group(own)
      .not_empty("a file");
  options
      .add("--runs-per-element", engine.runs_per_element,
           "slurm: runs that one element of an array makes, one after another (default: 1; more where runs "
           "take minutes)")
      .type("N")
      .group(own)
      .at_least(1, 1000000);
  options.add("--cpus", engine.cpus, "slurm: processors of an element, and threads of its runs (default: 1)")
      .type("N")
      .group(own)
      .at_least(1, 1024);
  options.add("--partition", engine.partition, "slurm: passed to sbatch")
      .type("NAME")
      .group(own)
      .not_empty("a partition");
  options
      .add("--time", engine.time,
           "slurm: limit of an element, passed to sbatch; two minutes before it the run saves, and the "
           "element is queued again")
      .type("TIME")
      .group(own)
      .not_empty("a time as sbatch takes it");
  options.add("--mem", engine.memory, "slurm: passed to sbatch")
      .type("SIZE")
      .group(own)
      .not_empty("a size as sbatch takes it");
  options
      .add("--sbatch", engine.sbatch,
           "slurm: any other option of sbatch, such as --sbatch=--account=lab (repeatable)")
      .type("OPTION")
      .group(own)
      .repeatable();
}

void require_fitting(const EngineOptions& engine) {
  const auto require = [&](bool given, std::string_view option, std::string_view of) {
    if (given && engine.name != of)
      throw CommandError(ExitCode::usage,
                         fmt::format("{} is for --engine {}: expected that, or no {}", option, of, option));
  };
  if (engine.tries && engine.name == "local")
    throw CommandError(ExitCode::usage,
                       "--tries is for --engine parallel and slurm: expected one of them, or no --tries");
  require(!engine.ssh_logins.empty(), "--sshlogin", "parallel");
  require(!engine.ssh_login_file.empty(), "--sshloginfile", "parallel");
  require(engine.runs_per_element.has_value(), "--runs-per-element", "slurm");
  require(engine.cpus.has_value(), "--cpus", "slurm");
  require(!engine.partition.empty(), "--partition", "slurm");
  require(!engine.time.empty(), "--time", "slurm");
  require(!engine.memory.empty(), "--mem", "slurm");
  require(!engine.sbatch.empty(), "--sbatch", "slurm");
  // Slurm takes a number alone for minutes, and the signal comes two of them before the end.
  if (engine.time.size() == 1 && engine.time.front() >= '0' && engine.time.front() <= '9')
    throw CommandError(
        ExitCode::usage,
        fmt::format("--time {}: to Slurm these are minutes, and a run saves two before the end, so that it "
                    "would be queued again and again: expected 10 or more, or hours as in 4:00:00",
                    engine.time));
  for (const std::string& option : engine.sbatch)
    if (!option.starts_with("-") || !is_printable(option))
      throw CommandError(ExitCode::usage,
                         fmt::format("--sbatch: '{}': expected an option of sbatch in one word, such as "
                                     "--sbatch=--account=lab",
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
