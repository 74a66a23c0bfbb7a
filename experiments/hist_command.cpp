// fp16lab hist: where the recorded gradients of a run, or the arrays of the user's own dumps, sit in FP16.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "analysis/range_output.hpp"
#include "experiments/array_dumps.hpp"
#include "experiments/commands.hpp"
#include "experiments/exact_dumps.hpp"
#include "experiments/input_paths.hpp"
#include "experiments/replay/fixed_scale.hpp"
#include "numerics/decimal.hpp"
#include "numerics/files/printable_text.hpp"
#include "numerics/files/run_folder.hpp"
#include "reports/figure_style.hpp"
#include "reports/histogram_figure.hpp"
#include "reports/run_config.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

double parse_scale(const std::string& option, const std::string& text) {
  double scale = 0;
  try {
    scale = parse_number(text).value.to_double();
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("{}: {}", option, error.what()));
  }
  if (!std::isfinite(scale) || scale <= 0)
    throw CommandError(ExitCode::usage,
                       fmt::format("{} {}: expected a finite number above 0, such as 2^15", option, text));
  return scale;
}

/// The histogram of one tensor, at the scale that it carried.
struct Tensor {
  std::string name;
  ExponentHistogram values;
  double recorded_scale = 1;
};

/// What one report, and one figure, is made of. Not empty.
struct Tensors {
  std::vector<Tensor> list;
  std::vector<HistogramRow> rows;  ///< of a run: the same, with what the casts stored

  analysis::RangeReport report() const {
    analysis::RangeReport report;
    for (const HistogramRow& row : rows) report.add(row);
    if (!rows.empty()) return report;
    for (const Tensor& tensor : list) report.add(tensor.name, tensor.values, tensor.recorded_scale);
    return report;
  }

  /// Least and greatest: they differ where layers, or losses, had scales of their own.
  std::pair<double, double> recorded_scales() const {
    const auto [least, greatest] = std::minmax_element(
        list.begin(), list.end(),
        [](const Tensor& a, const Tensor& b) { return a.recorded_scale < b.recorded_scale; });
    return {least->recorded_scale, greatest->recorded_scale};
  }

  /// Where nothing else was asked for: the scale that all carried, or none, each at its own.
  std::optional<double> common_scale() const {
    const auto [least, greatest] = recorded_scales();
    return least == greatest ? std::optional<double>(least) : std::nullopt;
  }
};

double factor_of(const Tensor& tensor, const std::optional<double>& scale) {
  return scale ? *scale / tensor.recorded_scale : 1;
}

reports::HistogramPanel panel_of(const Tensor& tensor, const std::optional<double>& scale) {
  return {tensor.name, tensor.values, factor_of(tensor, scale)};
}

/// All values in one panel; none if factors differ by what is no power of two, because then bins do not meet bins.
std::optional<reports::HistogramPanel> merged_panel(const Tensors& tensors,
                                                    const std::optional<double>& scale) {
  // In units of the greatest factor, values only move down, where the lowest bin holds all that is below it.
  double greatest = 0;
  for (const Tensor& tensor : tensors.list) greatest = std::max(greatest, factor_of(tensor, scale));
  reports::HistogramPanel all{fmt::format("all {} tensors", tensors.list.size()), {}, greatest};
  for (const Tensor& tensor : tensors.list) {
    const double ratio = factor_of(tensor, scale) / greatest;
    const int shift = std::ilogb(ratio);
    if (std::scalbn(1.0, shift) != ratio) return std::nullopt;
    ExponentHistogram moved = tensor.values;
    moved.bins.fill(0);
    for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin)
      moved.bins[static_cast<std::size_t>(std::max(bin + shift, 0))] +=
          tensor.values.bins[static_cast<std::size_t>(bin)];
    all.values += moved;
  }
  return all;
}

/// All tensors together, then those that lose the largest share of their values, in their own order.
std::vector<reports::HistogramPanel> panels_of(const Tensors& tensors, const std::optional<double>& scale) {
  if (tensors.list.size() == 1) return {panel_of(tensors.list.front(), scale)};
  std::vector<std::size_t> order;
  std::vector<double> rates;
  for (const Tensor& tensor : tensors.list) {
    order.push_back(order.size());
    rates.push_back(underflow_rate(tensor.values, factor_of(tensor, scale)));
  }
  if (order.size() >= reports::max_histogram_panels) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return rates[a] > rates[b]; });
    order.resize(reports::max_histogram_panels - 1);
    std::sort(order.begin(), order.end());
  }
  std::vector<reports::HistogramPanel> panels;
  if (std::optional<reports::HistogramPanel> all = merged_panel(tensors, scale))
    panels.push_back(std::move(*all));
  for (const std::size_t i : order) panels.push_back(panel_of(tensors.list[i], scale));
  return panels;
}

void draw(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const std::optional<double>& scale) {
  const std::vector<reports::HistogramPanel> panels = panels_of(tensors, scale);
  const std::size_t shown = std::min(tensors.list.size(), reports::max_histogram_panels - 1);
  const std::string caption = shown < tensors.list.size()
                                  ? fmt::format("the {} of {} that lose most", shown, tensors.list.size())
                                  : "";
  const reports::HistogramFigure figure{
      .stem = "hist-" + reports::slug(subject),
      .title = printable(fmt::format("Gradient magnitudes in FP16, {}, at {}", subject,
                                     scale ? "loss scale " + reports::pretty(reports::scale_text(*scale))
                                           : "the loss scales that they carried")),
      .caption = tensors.list.size() > 1 ? caption : ""};
  std::filesystem::create_directories(command.common.out);
  const std::string problem = reports::draw_histogram_figure(figure, panels, command.common.out);
  if (!problem.empty())
    fmt::print(stderr, "fp16lab: note: {}\n", problem);
  else if (!command.common.quiet)
    fmt::print(stderr, "figure: {}\n", (command.common.out / (figure.stem + ".png")).string());
}

/// The table or the JSON on stdout, with `additions` at the end of the JSON; the figure where it is asked for.
void show(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const std::optional<double>& scale, const Json& additions,
          std::span<const analysis::NamedExactMass> exact = {}) {
  const analysis::RangeReport report = tensors.report();
  const analysis::SuggestedScale suggestion = analysis::suggest_scale(report);
  if (command.json) {
    std::ostringstream text;
    analysis::write_json(text, report, scale, suggestion, exact);
    Json json = Json::parse(text.str());
    json.update(additions);
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    analysis::print_table(std::cout, report, scale, suggestion, exact);
  }
  if (!command.common.out.empty()) draw(command, tensors, subject, scale);
}

/// Steps in file order that have histograms.
std::vector<std::uint64_t> recorded_steps(const std::filesystem::path& run) {
  std::vector<std::uint64_t> steps;
  for_each_histogram(run, [&steps](const HistogramRow& row) {
    if (steps.empty() || steps.back() != row.step) steps.push_back(row.step);
  });
  return steps;
}

/// The suggestion, which was made of one step, tried on every step that the run recorded; nothing where there is none.
std::optional<FixedScaleReplay> replayed(const std::filesystem::path& run,
                                         const analysis::SuggestedScale& suggestion) {
  if (!suggestion.suggested) return std::nullopt;
  try {
    return replay_fixed_scale(RecordedRun(run), *suggestion.suggested);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "note: the suggested scale was not replayed: {}\n", error.what());
    return std::nullopt;
  }
}

Json replay_json(const FixedScaleReplay& replay) {
  return {{"log2_scale", replay.log2_scale},
          {"steps", replay.steps},
          {"overflows", replay.overflows},
          {"unknown", replay.unknown},
          {"first", replay.first == 0 ? Json(nullptr) : Json(replay.first)},
          {"highest", replay.highest ? Json(*replay.highest) : Json(nullptr)}};
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
  Tensors tensors;
  for_each_histogram(run, [&](const HistogramRow& row) {
    if (row.step != step) return;
    tensors.list.push_back({row.tensor, row.before, row.loss_scale});
    tensors.rows.push_back(row);
  });
  const std::optional<double> scale =
      command.scale.empty() ? tensors.common_scale() : parse_scale("--scale", command.scale);
  if (!command.common.quiet) {
    const auto [least, greatest] = tensors.recorded_scales();
    const std::string recorded =
        least == greatest ? fmt::format("loss scale {}", least)
                          : fmt::format("loss scales from {} to {}, which differ by tensor", least, greatest);
    fmt::print(stderr, "{}: step {}, recorded at {}, shown at {}\n", run.string(), step, recorded,
               scale ? fmt::format("{}", *scale) : "each tensor's own");
  }
  const std::string name = std::filesystem::absolute(run).lexically_normal().filename().string();
  const std::string subject = fmt::format(
      "{}, step {}", name.empty() ? std::filesystem::absolute(run).parent_path().filename().string() : name,
      step);
  const std::optional<FixedScaleReplay> replay = replayed(run, analysis::suggest_scale(tensors.report()));
  show(command, tensors, subject, scale,
       replay ? Json{{"suggestion_replay", replay_json(*replay)}} : Json::object());
  if (replay && !command.json) fmt::print("{}\n", sentence(*replay));
}

Json shape_json(const std::vector<std::uint64_t>& shape) {
  return shape.empty() ? Json::array() : Json(shape);
}

Json additions_of(const CountedDumps& dumps, double recorded_scale) {
  Json arrays = Json::array(), skipped = Json::array();
  for (const CountedArray& array : dumps.arrays)
    arrays.push_back({{"tensor", array.label},
                      {"file", array.file.string()},
                      {"format", name_of(array.format)},
                      {"name", array.info.name},
                      {"dtype", array.info.dtype},
                      {"shape", shape_json(array.info.shape)},
                      {"fortran_order", array.info.fortran_order},
                      {"below_fp32", array.counts.below_fp32},
                      {"above_fp32", array.counts.above_fp32}});
  for (const SkippedArray& array : dumps.skipped)
    skipped.push_back({{"file", array.file.string()}, {"name", array.name}, {"reason", array.reason}});
  return {{"recorded_scale", recorded_scale}, {"arrays", std::move(arrays)}, {"skipped", std::move(skipped)}};
}

void print_notes(const CountedDumps& dumps) {
  constexpr std::size_t shown_at_most = 10;
  for (std::size_t i = 0; i < std::min(dumps.skipped.size(), shown_at_most); ++i)
    fmt::print(stderr, "note: {}: '{}' is skipped: {}\n", printable(dumps.skipped[i].file.string()),
               printable(dumps.skipped[i].name), dumps.skipped[i].reason);
  if (dumps.skipped.size() > shown_at_most)
    fmt::print(stderr, "note: {} more are skipped\n", dumps.skipped.size() - shown_at_most);
  std::uint64_t below = 0, above = 0;
  for (const CountedArray& array : dumps.arrays) {
    below += array.counts.below_fp32;
    above += array.counts.above_fp32;
  }
  if (below > 0)
    fmt::print(
        stderr,
        "note: {} FP64 values are below FP32's smallest number and count in the lowest bin, (0, 2^-126]\n",
        below);
  if (above > 0)
    fmt::print(stderr,
               "note: {} finite FP64 values are beyond FP32's largest number; those above 2^128 count in the "
               "highest bin, (2^127, 2^128], and make L1 and L2 too small\n",
               above);
}

void show_dumps(const HistCommand& command, std::span<const std::filesystem::path> files) {
  Tensors tensors;
  const double recorded_scale =
      command.recorded_scale.empty() ? 1 : parse_scale("--recorded-scale", command.recorded_scale);
  const double scale = command.scale.empty() ? recorded_scale : parse_scale("--scale", command.scale);
  const CountedDumps dumps = count_dumps(files, command.common.threads);
  for (const CountedArray& array : dumps.arrays)
    tensors.list.push_back({array.label, array.counts.values, recorded_scale});
  if (!command.common.quiet) print_notes(dumps);
  const std::string subject =
      files.size() == 1 ? files.front().filename().string() : fmt::format("{} files", files.size());
  std::vector<analysis::NamedExactMass> exact;
  if (command.exact_mass) exact = exact_masses(dumps, scale / recorded_scale, command.common.threads);
  show(command, tensors, subject, scale, additions_of(dumps, recorded_scale), exact);
}

}  // namespace

ExitCode run_hist(const HistCommand& command) {
  std::vector<std::filesystem::path> runs, files;
  for (const std::filesystem::path& input : expand_inputs(command.inputs)) {
    if (!std::filesystem::is_directory(input))
      files.push_back(input);
    else if (is_run_folder(input))
      runs.push_back(input);
    else
      throw CommandError(
          ExitCode::usage,
          fmt::format("{}: a folder without a manifest.json, so no run folder; for the dumps in it, "
                      "'{}'",
                      input.string(), (input / "*.npz").string()));
  }
  if (command.step && runs.empty())
    throw CommandError(ExitCode::usage, fmt::format("--step {}: only run folders have steps", *command.step));
  if (!command.recorded_scale.empty() && files.empty())
    throw CommandError(ExitCode::usage, "--recorded-scale: run folders know the scale of their gradients");
  if (command.exact_mass && files.empty())
    throw CommandError(ExitCode::usage, "--exact-mass: run folders hold counts, not values; give it dumps");
  for (const std::filesystem::path& run : runs) show_run(command, run);
  if (!files.empty()) show_dumps(command, files);
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
