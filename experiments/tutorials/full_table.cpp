#include "experiments/tutorials/full_table.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "experiments/app/exit_code.hpp"
#include "experiments/tutorials/tutorial_table.hpp"
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

}  // namespace

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

}  // namespace fp16lab::experiments
