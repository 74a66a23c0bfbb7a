// fp16lab sweep: carries a grid out and sums it up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <tuple>

#include "experiments/app/commands.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/registry.hpp"
#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/app/sweep/sweep_engine.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/report_input.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/page/report.hpp"

namespace fp16lab::experiments {
namespace {

struct SweepCommand {
  CommonOptions common;
  SweepOptions options;
  EngineOptions engine;
  bool report = false;                 ///< also write report.html
  bool dry_run = false;                ///< only check and print the plan, or what the engine would call
  bool twin = false;                   ///< add_twins
  std::vector<std::string> policies;   ///< added to the file's variants; "all": every one
  std::optional<std::uint64_t> seeds;  ///< load_sweep
  std::optional<std::uint64_t> task;   ///< only this run
  std::string plan;                    ///< plan_id that the numbers of tasks must have; empty: any
  bool list_tasks = false;             ///< only say what is where
  bool collect = false;                ///< only sum up what is there
};

void print_plan(const SweepPlan& plan, const std::vector<RunState>& states) {
  fmt::print("run,workload,variant,seed,state\n");
  for (std::size_t i = 0; i < states.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    fmt::print("{},{},{},{},{}\n", run.name, run.workload, run.variant, run.config.train.seed,
               name_of(states[i]));
  }
}

void print_tasks(const SweepPlan& plan) {
  fmt::print("task,folder,state,claimed_by\n");
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    const std::optional<Claimant> owner = claimant_of(run.folder);
    fmt::print("{},{},{},{}\n", i + 1, printable(run.folder.string()), name_of(state_of(run)),
               owner ? fmt::format("{}:{}", printable(owner->host), owner->process) : "");
  }
}

/// The sweep file's plan, or the one in the output folder.
SweepPlan plan_of(const SweepCommand& command) {
  const CommonOptions& common = command.common;
  if (common.config.empty() && !common.out.empty() &&
      (command.task || command.list_tasks || command.collect || has_written_plan(common.out))) {
    if (!common.set.empty() || common.seed || command.seeds || command.twin || !command.policies.empty())
      throw CommandError(ExitCode::usage,
                         fmt::format("--set, --seed, --seeds, --policies and --twin make a plan from a sweep "
                                     "file; {} has a plan already: give the file with -c",
                                     common.out.string()));
    return read_written_plan(common.out, command.task);
  }
  SweepPlan plan = load_sweep(common, false, command.policies, command.seeds);
  if (command.twin) add_twins(plan);
  if (command.task && (*command.task < 1 || *command.task > plan.runs.size()))
    throw CommandError(ExitCode::usage, fmt::format("--task: {}: expected 1 to {}, the number of runs of {}",
                                                    *command.task, plan.runs.size(), common.config.string()));
  if ((command.task || command.list_tasks || command.collect) && has_written_plan(plan.folder))
    require_written_plan(plan, command.task);
  else if (const std::string others = left_out(plan); !others.empty() && !common.quiet)
    say("sweep: note: {}", others);
  return plan;
}

/// Summary and, if wanted, page of the runs that are there.
void sum_up(const SweepPlan& plan, const CommonOptions& common, bool page) {
  const auto& [folders, missing] = runs_of(plan);
  if (folders.empty()) return;
  const reports::RunSet runs = reports::load_runs(folders, missing, told);
  const std::vector<reports::WorkloadSummary> summaries = reports::summarise(runs);
  write_file_atomically(plan.folder / "summary.csv", summary_csv(summaries));
  write_file_atomically(plan.folder / "summary.json", summary_json(summaries));
  print_result(reports::summary_table(runs, summaries));
  if (!page) return;
  const std::vector<std::filesystem::path> replays = reports::find_report_input(folders).replays;
  const std::string undrawn = write_report_page(common, runs, summaries, replays, plan.folder, plan.folder);
  if (!undrawn.empty() && !common.quiet) say("sweep: note: {}", undrawn);
}

/// What is there, in one line: "57 of 60 runs are complete; not yet: a, b and 1 more".
ExitCode collect(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options) {
  std::vector<RunState> states;
  std::vector<std::string> lacking;
  for (const PlannedRun& run : plan.runs) {
    states.push_back(state_of(run));
    if (states.back() != RunState::complete && states.back() != RunState::other_build)
      lacking.push_back(states.back() == RunState::planned
                            ? run.name
                            : fmt::format("{} ({})", run.name, name_of(states.back())));
  }
  require_one_build(plan, states, options, common);
  write_plan(plan, false);  // the page names the runs of the plan that are not there
  sum_up(plan, common, true);
  if (common.quiet) return ExitCode::ok;
  constexpr std::size_t most = 20;
  const std::size_t more = lacking.size() > most ? lacking.size() - most : 0;
  const std::size_t complete = plan.runs.size() - lacking.size();
  lacking.resize(lacking.size() - more);
  say("sweep: {} of {} runs are complete{}{}{}", complete, plan.runs.size(),
      lacking.empty() ? "" : "; incomplete: ", fmt::join(lacking, ", "),
      more == 0 ? "" : fmt::format(" and {} more (--list-tasks has all)", more));
  return ExitCode::ok;
}

ExitCode dry_run(const SweepPlan& plan, const SweepCommand& command) {
  const auto& [common, options, engine] = std::tie(command.common, command.options, command.engine);
  if (engine.name == "parallel") {
    fmt::print("{}", parallel_dry_run(plan, common, options, engine));
  } else if (engine.name == "slurm") {
    fmt::print("{}", slurm_dry_run(plan, common, options, engine));
  } else {
    const Survey found = survey(plan, options, common);
    print_plan(plan, found.states);
    require_safe(plan, found.states, options, common);
  }
  return ExitCode::ok;
}

/// stdout: the id of the job.
ExitCode submit(const SweepPlan& plan, const SweepCommand& command) {
  const Submission submission = submit_to_slurm(plan, command.common, command.options, command.engine);
  if (!submission.job.empty()) fmt::print("{}\n", submission.job);
  if (command.common.quiet) return ExitCode::ok;
  const std::string then = own_command({"sweep", "--collect", "-o", plan.folder.string()});
  if (submission.job.empty())
    say("sweep: nothing is left to do; table and page: {}", then);
  else
    say("sweep: {} in Slurm's job {}; table and page, also while they run: {}",
        counted(submission.runs, "run"), submission.job, then);
  return ExitCode::ok;
}

void require_one_purpose(const SweepCommand& command) {
  std::vector<std::string_view> given;
  if (command.task) given.emplace_back("--task");
  if (command.list_tasks) given.emplace_back("--list-tasks");
  if (command.collect) given.emplace_back("--collect");
  if (command.dry_run) given.emplace_back("--dry-run");
  if (command.engine.name != "local" && !command.dry_run && !given.empty()) given.emplace_back("--engine");
  if (given.size() > 1)
    throw CommandError(ExitCode::usage, fmt::format("{}: expected one of them", fmt::join(given, " and ")));
}

ExitCode run_sweep(SweepCommand command) {
  require_one_purpose(command);
  require_fitting(command.engine);
  if (command.report && command.engine.name == "slurm")
    throw CommandError(ExitCode::usage,
                       "--report is not for --engine slurm, which does not wait for runs: expected --collect "
                       "afterwards, which writes the page");
  CommonOptions& common = command.common;
  if (common.out.empty() && !common.config.empty())
    common.out = std::filesystem::path("results") / common.config.stem();
  SweepPlan plan = plan_of(command);
  if (!command.plan.empty() && command.plan != plan_id(plan))
    throw CommandError(ExitCode::usage,
                       fmt::format("--plan: {}: the plan of {} is now {}, in which tasks have other numbers; "
                                   "start the sweep's engine again",
                                   printable(command.plan), common.out.string(), plan_id(plan)));
  if (command.task) return run_task(plan, *command.task, common, command.options);
  if (command.collect) return collect(plan, common, command.options);
  if (command.list_tasks) {
    print_tasks(plan);
    return ExitCode::ok;
  }
  if (command.dry_run) return dry_run(plan, command);
  if (command.engine.name == "slurm") return submit(plan, command);

  const SweepOutcome outcome = command.engine.name == "parallel"
                                   ? execute_by_parallel(plan, common, command.options, command.engine)
                                   : execute_sweep(plan, common, command.options);
  if (outcome.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command continues with the remaining runs");
  sum_up(plan, common, command.report);
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command retries them",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
  return ExitCode::ok;
}

}  // namespace

Command sweep_command() {
  return {
      .name = "sweep",
      .description =
          "Train a grid of runs, resumable; prints a summary table. FILE is a sweep file, or the "
          "configuration of one run,\nwhich is then trained in FP32 and as configured (or under --policies), "
          "with three seeds",
      .examples =
          "  fp16lab sweep -c demo -o results/demo --report\n"
          "  fp16lab sweep -c lenet5 --policies torch,megatron --twin --report\n"
          "  fp16lab sweep -c full -o results/full --engine slurm --partition cpu --time 4:00:00 --dry-run",
      .uses = {.config = "Sweep file in TOML, or the configuration of one run",
               .bare_config = true,
               .set = "Override a configuration key, such as --set scaler.policy=dynamic (repeatable)",
               .sweeps = true,
               .out = "Folder of the runs (default: results/SWEEP)",
               .seed = "Use this one seed for all runs, instead of the file's",
               .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<SweepCommand>();
        options.flag("--report", command->report,
                     "Also write figures and report.html into the output folder");
        options.flag("--dry-run", command->dry_run,
                     "Only check every run, and print the runs as CSV, or the engine's commands");
        options.flag("--twin", command->twin,
                     "Also run a twin of every FP32 run, with initial weights one ulp off, to show how much "
                     "training varies by itself");
        options
            .add("--task", command->task,
                 "Make only the K-th run of the plan: exit with 0 at once if it is complete, else continue "
                 "it from its checkpoint or start it; without -c, the plan is that of the output folder")
            .type("K")
            .at_least(1);
        options
            .add("--plan", command->plan,
                 "With --task, for engines: only if this is still the number of the plan")
            .type("ID")
            .not_empty("the number of a plan");
        options.flag("--list-tasks", command->list_tasks,
                     "Only print number, folder and state of every run as CSV");
        options.flag("--collect", command->collect,
                     "Only sum up the runs that exist: summary and report.html, even while runs continue");
        options
            .add(
                "--seeds", command->seeds,
                "Use N seeds for every workload, counting from its first one (or --seed), instead of its own")
            .type("N")
            .at_least(1, 10000);
        options.add_sweeping(command->options);
        add_engine(options, command->engine);
        options
            .add("--policies", command->policies,
                 "Besides the file's variants, run FP32, and amp.level=O1 (or the one run's level) under "
                 "each of these loss-scale policies; all: every one of `policy --list`")
            .separated(',')
            .offers({.words = [] {
              std::vector<std::string> names = policy_names();
              names.emplace_back("all");
              return names;
            }});
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_sweep(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
