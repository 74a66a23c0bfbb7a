// exp_tutorials: do the systems of the AMP tutorials behave as the tutorials say, and why?
//
// Every system and variant of configs/tutorials.toml runs in this process, so that the loss before the first
// step and the bits of every stored weight after every step are known. A few runs that no configuration file
// can hold come on top. The expectations (experiments/tutorials/expectations.hpp) were fixed before anything
// was measured.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/command_line.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/tutorials/expectations.hpp"
#include "experiments/tutorials/mindspore_draws.hpp"
#include "experiments/tutorials/tutorial_table.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::experiments {
namespace {

struct Column {
  std::string_view variant, title;
};

struct Tutorial {
  std::string_view system, title;
  std::vector<Column> columns;  ///< the first one is FP32
};

const std::vector<Tutorial>& tutorials() {
  static const std::vector<Tutorial> all{{"paddle_mlp3",
                                          "Three Linear layers of 4096 (Paddle's short tutorial)",
                                          {{"fp32", "FP32"},
                                           {"o1", "O1"},
                                           {"o2-no-masters", "O2, no master weights"},
                                           {"o1-accumulate10", "O1, ten batches accumulated"}}},
                                         {"paddle_linear9",
                                          "Nine Linear layers of 8192 (Paddle's guide)",
                                          {{"fp32", "FP32"},
                                           {"o1-add", "O1"},
                                           {"o1-add-scale128", "O1, static graph (scale from 128)"},
                                           {"o2-no-masters", "O2, no master weights"},
                                           {"o2-guard-8-of-9", "O2, guard on eight of nine layers"},
                                           {"o1-accumulate10", "O1, ten batches accumulated"}}}};
  return all;
}

std::optional<RunFolder> run_of(const std::filesystem::path& folder, const Tutorial& tutorial,
                                const Column& column) {
  const std::filesystem::path run = folder / fmt::format("{}-{}-seed1", tutorial.system, column.variant);
  if (!is_run_folder(run)) return std::nullopt;
  return read_run_folder(run);
}

/// Micro-batches of a step.
std::size_t accumulated(const RunFolder& run) {
  const reports::FlatConfig config = reports::flatten_toml(run.manifest.config, run.path.string());
  return static_cast<std::size_t>(number_or(config, "train.accumulate", 1));
}

/// The mean of the last `steps` steps.
double mean_loss(const RunFolder& run, std::size_t steps) {
  double sum = 0;
  for (std::size_t i = run.steps.size() - steps; i < run.steps.size(); ++i) sum += run.steps[i].loss;
  return sum / static_cast<double>(steps);
}

std::string percent(double loss, double reference) {
  return fmt::format("{:+.3f} %", 100 * (loss / reference - 1));
}

std::string row_of(const Tutorial& tutorial, const Column& column, const std::optional<RunFolder>& run,
                   const std::optional<RunFolder>& fp32) {
  const TheirResult& theirs = *their_result(tutorial.system, column.variant);
  const TheirResult& their_fp32 = *their_result(tutorial.system, tutorial.columns.front().variant);
  const bool is_fp32 = &theirs == &their_fp32;
  const std::string begin = fmt::format("| {} | {} | {} | ", column.title, theirs.loss,
                                        is_fp32 ? "" : percent(theirs.loss, their_fp32.loss));
  const auto without = [&](const std::string& why) {
    return fmt::format("{}{} | | | {} | |\n", begin, why, theirs.seconds.value());
  };
  if (!run) return without("not run");
  if (!run->finished()) return without(fmt::format("stopped after step {}", run->steps.size()));
  const std::size_t batches = accumulated(*run);
  const bool compares = !is_fp32 && fp32 && fp32->finished() && fp32->steps.size() >= batches;
  double seconds = 0;
  std::size_t skipped = 0;
  for (const StepRow& step : run->steps) {
    seconds += step.seconds;
    skipped += step.skipped ? 1 : 0;
  }
  return begin + fmt::format("{:.7f} | {} | {} of {} | {} | {:.0f} |\n", run->steps.back().loss,
                             compares ? percent(run->steps.back().loss, mean_loss(*fp32, batches)) : "",
                             skipped, run->steps.size(), theirs.seconds.value(), seconds);
}

/// One run a column, so no verdicts.
/// Markdown: a table for each tutorial, of runs in the folder of a sweep (configs/tutorials_full.toml), a row
/// for each of its results: loss, and distance from FP32, theirs and ours. A run that is not there or not
/// finished has no figures but how far it came. "Loss" is the tutorials' measure, that of the last batch
/// before its step; where ten batches are accumulated, our steps record the mean of the ten, and the distance
/// is from FP32's mean over the same ten batches. CommandError(usage) for a folder without any of these runs;
/// std::runtime_error for a damaged one.
std::string full_size_tables(const std::filesystem::path& folder) {
  std::string text;
  bool any = false;
  for (const Tutorial& tutorial : tutorials()) {
    std::vector<std::optional<RunFolder>> runs;
    for (const Column& column : tutorial.columns) {
      runs.push_back(run_of(folder, tutorial, column));
      any = any || runs.back();
    }
    text += fmt::format(
        "{}{}\n\n| | loss, theirs | from FP32 | loss, ours | from FP32 | skipped steps | seconds, theirs | "
        "ours |\n|---|---|---|---|---|---|---|---|\n",
        text.empty() ? "" : "\n", tutorial.title);
    for (std::size_t i = 0; i < runs.size(); ++i)
      text += row_of(tutorial, tutorial.columns[i], runs[i], runs.front());
  }
  if (!any)
    throw CommandError(ExitCode::usage,
                       fmt::format("--runs {}: no run of tutorials_full.toml is there; make them with cmake "
                                   "--build build --target tutorials_full",
                                   folder.string()));
  return text;
}

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
