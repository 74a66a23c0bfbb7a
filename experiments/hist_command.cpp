// fp16lab hist: where the recorded gradients of a run sit in FP16.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "analysis/range_output.hpp"
#include "experiments/commands.hpp"
#include "numerics/decimal.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

double parse_scale(const std::string& text) {
  double scale = 0;
  try {
    scale = parse_number(text).value.to_double();
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("--scale: {}", error.what()));
  }
  if (!std::isfinite(scale) || scale <= 0)
    throw CommandError(ExitCode::usage,
                       fmt::format("--scale {}: expected a finite number above 0, such as 2^15", text));
  return scale;
}

/// Steps in file order that have histograms.
std::vector<std::uint64_t> recorded_steps(const std::filesystem::path& run) {
  std::vector<std::uint64_t> steps;
  for_each_histogram(run, [&steps](const HistogramRow& row) {
    if (steps.empty() || steps.back() != row.step) steps.push_back(row.step);
  });
  return steps;
}

void show_run(const HistCommand& command, const std::filesystem::path& run) {
  const std::vector<std::uint64_t> steps = recorded_steps(run);
  if (steps.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{}: no histograms recorded (observe.histograms_every was 0, or "
                                   "the run ended before its first step)",
                                   run.string()));
  const std::uint64_t step = command.step.value_or(steps.back());
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    throw CommandError(ExitCode::usage, fmt::format("--step {}: {} has histograms of the steps {}", step,
                                                    run.string(), fmt::join(steps, ", ")));
  analysis::RangeReport report;
  double recorded_scale = 1;
  for_each_histogram(run, [&](const HistogramRow& row) {
    if (row.step != step) return;
    report.add(row);
    recorded_scale = row.loss_scale;
  });
  const double scale = command.scale.empty() ? recorded_scale : parse_scale(command.scale);
  if (!command.common.quiet)
    fmt::print(stderr, "{}: step {}, recorded at loss scale {}, shown at {}\n", run.string(), step,
               recorded_scale, scale);
  const analysis::SuggestedScale suggestion = analysis::suggest_scale(report);
  if (command.json)
    analysis::write_json(std::cout, report, scale, suggestion);
  else
    analysis::print_table(std::cout, report, scale, suggestion);
}

}  // namespace

ExitCode run_hist(const HistCommand& command) {
  for (const std::filesystem::path& input : command.inputs) {
    if (!is_run_folder(input))
      throw CommandError(
          ExitCode::usage,
          std::filesystem::exists(input)
              ? fmt::format(
                    "{}: not a run folder (no manifest.json); this version of hist reads run folders, "
                    "not array files",
                    input.string())
              : fmt::format("{}: no such run folder", input.string()));
    show_run(command, input);
  }
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
