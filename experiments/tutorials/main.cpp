// exp_tutorials: do the systems of the AMP tutorials behave as the tutorials say, and why?
//
// Every system and variant of configs/tutorials.toml runs in this process, so that the loss before the first
// step and the bits of every stored weight after every step are known. A few runs that no configuration file
// can hold come on top. The expectations (experiments/tutorials/expectations.hpp) were fixed before anything
// was measured.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/app/command_line.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/tutorials/expectations.hpp"
#include "experiments/tutorials/full_table.hpp"
#include "experiments/tutorials/mindspore_draws.hpp"
#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::experiments {
namespace {

TutorialTable measure(const CommonOptions& common, const SweepPlan& plan) {
  const std::filesystem::path csv = common.out / "exp_tutorials.csv";
  Progress progress(common.quiet);
  TutorialTable table;
  for (const PlannedRun& planned : plan.runs) {
    progress.show(fmt::format("exp_tutorials: {}/{} {} {}", table.runs().size() + 1, plan.runs.size(),
                              planned.workload, planned.variant));
    table.add(run_tutorial(planned.workload, planned.variant, planned.config, common.threads,
                           draws_of(planned.workload)));
    write_file_atomically(csv, table.csv());  // what there is survives an interrupt
  }
  // What a random start does to an FP32 run; on synthetic data another seed is another task.
  for (const PlannedRun& planned : plan.runs) {
    if (task_of(planned.config).data == engine::data::DataKind::synthetic ||
        !identity_of(planned.config).is_reference())
      continue;
    for (const std::int64_t more : {1, 2}) {
      RunConfig config = planned.config;
      config.train.seed += more;
      progress.show(
          fmt::format("exp_tutorials: {} {} seed {}", planned.workload, planned.variant, config.train.seed));
      table.add_repetition(run_tutorial(planned.workload, planned.variant, config, common.threads));
    }
  }
  add_special_runs(table, common.threads,
                   [&](const std::string& name) { progress.show(fmt::format("exp_tutorials: {}", name)); });
  write_file_atomically(csv, table.csv());
  return table;
}

ExitCode run_exp_tutorials(const CommonOptions& common, bool full) {
  const SweepPlan plan = load_sweep(common, full);
  catch_interrupts();
  return run_study(
      common, Study<TutorialTable>{
                  .question = "do the systems of the AMP tutorials behave as the tutorials say, and why?",
                  .questions = tutorial_questions(),
                  .measure = [&] { return measure(common, plan); },
                  .describe = [](const TutorialTable& table) { return table.text(); }});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  bool full = false;
  std::string runs, weights;
  const auto declare = [&](Options& options) {
    options.flag("--full", full, "the tutorials' own sizes (gigabytes of memory, and hours without a GPU)");
    options.add("--runs", runs,
                "only print the tables of Paddle's tutorials beside the runs of this folder "
                "(tutorials_full.toml)");
    options.add("--weights", weights,
                "only write the initial weights of MindSpore's tutorial to this file (safetensors)");
    return [&](const CommonOptions& common) {
      if (!weights.empty()) {
        write_mindspore_weights(weights);
        return ExitCode::ok;
      }
      if (runs.empty()) return run_exp_tutorials(common, full);
      fmt::print("{}", full_size_tables(runs));
      return ExitCode::ok;
    };
  };
  Command command;  // GCC 12 takes a designated one for uninitialized (-Wmaybe-uninitialized)
  command.name = "exp_tutorials";
  command.description = "Do the systems of the AMP tutorials behave as the tutorials say, and why?";
  command.examples =
      "  exp_tutorials -o results/exp_tutorials\n"
      "  exp_tutorials --seed 2 --threads 2";
  command.declare = declare;
  return experiment_main(argc, argv, command, {.out = "results/exp_tutorials", .config = "tutorials.toml"});
}
