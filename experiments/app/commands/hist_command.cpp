// fp16lab hist: where the recorded gradients of a run, or the arrays of the user's own dumps, sit in FP16 and
// other formats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "analysis/range_output.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/array_dumps.hpp"
#include "experiments/app/commands/input_paths.hpp"
#include "experiments/app/commands/name_selection.hpp"
#include "experiments/app/replay/fixed_scale.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/range_figure.hpp"

namespace fp16lab::experiments {
namespace {

struct HistCommand {
  CommonOptions common;
  std::vector<std::filesystem::path> inputs;  ///< run folders, dumps, patterns
  std::vector<std::string> formats;  ///< to judge in; empty: in which the values were stored, else f16
  std::vector<std::string> include, exclude;  ///< patterns of tensor names
  std::string scale;                          ///< "2^15" or a number; empty: as recorded
  std::string recorded_scale;         ///< what the values of dumps carry; empty: what they say, else 1
  std::optional<std::uint64_t> step;  ///< default: the last recorded one
  bool exact_mass = false;            ///< of dumps: also exact sums
  bool json = false;

  bool draws() const { return !common.out.empty(); }
};

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

/// --format f16,bf16; std::nullopt: not given.
std::optional<std::vector<DType>> parse_formats(const std::vector<std::string>& names) {
  std::vector<DType> formats;
  for (const std::string& name : split_at_commas(fmt::format("{}", fmt::join(names, ",")))) {
    const std::optional<DType> format = dtype_called<is_file_low_precision>(name);
    if (!format)
      throw CommandError(ExitCode::usage, fmt::format("--format {}: {}", name,
                                                      known_are(name, dtype_names<is_file_low_precision>)));
    if (std::find(formats.begin(), formats.end(), *format) == formats.end()) formats.push_back(*format);
  }
  return formats.empty() ? std::nullopt : std::optional(formats);
}

/// What one report is made of, and its figures.
struct Tensors {
  analysis::RangeReport report;
  std::vector<reports::ScaledTensor> drawn;  ///< filled only for figures: 2 kB a tensor
  /// Least and greatest recorded scale: they differ where layers, or losses, had scales of their own.
  double least_scale = std::numeric_limits<double>::infinity();
  double greatest_scale = 0;

  void saw_scale(double scale) {
    least_scale = std::min(least_scale, scale);
    greatest_scale = std::max(greatest_scale, scale);
  }
  bool empty() const { return greatest_scale == 0; }

  /// Where nothing else was asked for: the scale that all carried, or none, each at its own.
  std::optional<double> common_scale() const {
    return least_scale == greatest_scale ? std::optional<double>(least_scale) : std::nullopt;
  }
};

/// What is asked of it.
struct Question {
  std::vector<DType> formats;   ///< not empty
  std::optional<double> scale;  ///< none: each tensor at its own
};

/// One figure a format. Where one was not asked for among several, its name is that of the subject alone.
void draw(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const Question& question) {
  for (const DType format : question.formats) {
    const reports::RangeFigure figure{.subject = subject,
                                      .name_has_format = question.formats.size() > 1,
                                      .format = format,
                                      .scale = question.scale};
    const auto [stem, problem] =
        reports::draw_range_figure(figure, tensors.drawn, tensors.report, command.common.out);
    if (!problem.empty())
      fmt::print(stderr, "fp16lab: note: {}\n", problem);
    else if (!command.common.quiet)
      fmt::print(stderr, "figure: {}\n", (command.common.out / (stem + ".png")).string());
  }
}

/// The tables or the JSON on stdout, with `additions` at the end of the JSON; the figures where they are
/// asked for.
void show(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const Question& question, std::span<const analysis::SuggestedScale> suggestions,
          const Json& additions) {
  std::vector<analysis::RangeView> views;
  for (const DType format : question.formats) views.push_back({format, question.scale, command.exact_mass});
  if (command.json) {
    Json documents = Json::array();
    for (std::size_t i = 0; i < views.size(); ++i) {
      std::ostringstream text;
      analysis::write_json(text, tensors.report, views[i], suggestions[i]);
      documents.push_back(Json::parse(text.str()));
    }
    Json json = views.size() == 1 ? documents[0] : Json{{"formats", std::move(documents)}};
    json.update(additions);
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    if (views.size() > 1) analysis::print_formats(std::cout, tensors.report, views, suggestions);
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (i > 0) std::cout << '\n';
      analysis::print_table(std::cout, tensors.report, views[i], suggestions[i]);
    }
    analysis::print_casts(std::cout, tensors.report);
  }
  if (command.draws()) draw(command, tensors, subject, question);
}

/// One for each format.
std::vector<analysis::SuggestedScale> suggestions_of(const analysis::RangeReport& report,
                                                     const std::vector<DType>& formats) {
  std::vector<analysis::SuggestedScale> suggestions;
  for (const DType format : formats) suggestions.push_back(analysis::suggest_scale(report, format));
  return suggestions;
}

/// What is told of all steps of a run, beside the one that is shown.
struct AllSteps {
  std::vector<std::uint64_t> steps;   ///< in file order, that have histograms
  std::map<DType, CastCounts> casts;  ///< of the tensors that are taken
  bool rounded = false;               ///< a tensor is not FP32
  std::vector<std::string> damage;    ///< what the folder lacks of what its run wrote
  bool rows_missing = false;          ///< some of these histograms
};

AllSteps survey(const std::filesystem::path& run, NameSelection& selection) {
  AllSteps all;
  const std::size_t torn = for_each_histogram(run, [&](const HistogramRow& row) {
    if (all.steps.empty() || all.steps.back() != row.step) all.steps.push_back(row.step);
    all.rounded = all.rounded || row.dtype != DType::f32;
    const std::optional<CastCounts> counts = cast_counts(row.dtype, row.before, row.after);
    if (counts && selection.takes(row.tensor)) all.casts[row.dtype] += *counts;
  });
  try {
    const RunFolder folder = read_run_folder(run);
    all.damage = folder.damage;
    all.rows_missing = folder.damaged(run_file::histograms);
  } catch (const std::runtime_error& error) {
    all.damage.push_back(error.what());
  }
  if (torn > 0 && !all.rows_missing)
    all.damage.push_back(
        fmt::format("{}: the last line is cut off ({} bytes) and was left out", run_file::histograms, torn));
  return all;
}

/// What the casts did in the whole run, a line each format; nothing without casts.
std::string pooled_sentence(const AllSteps& all, bool selected) {
  std::string text;
  for (const auto& [dtype, counts] : all.casts)
    text += fmt::format(
        "Recorded {}{}: the casts to {} rounded {} of {} finite non-zero values to zero ({:.2g} %), {} "
        "became Inf or NaN.\n",
        over_steps(all.steps.size(), all.rows_missing), selected ? ", of the tensors shown" : "",
        title_of(dtype), counts.underflow, counts.values, 100 * counts.underflow_rate(), counts.overflow);
  return text;
}

Json pooled_json(const AllSteps& all) {
  Json casts = Json::array();
  for (const auto& [dtype, counts] : all.casts)
    casts.push_back({{"dtype", name_of(dtype)},
                     {"values", counts.values},
                     {"underflow", counts.underflow},
                     {"overflow", counts.overflow}});
  return {{"steps", all.steps.size()}, {"casts", std::move(casts)}};
}

/// In which most of the tensors were stored; FP16 if none was stored in 16 bits.
DType stored_format(std::span<const HistogramRow> rows) {
  const auto stored_as = [&rows](DType dtype) {
    return std::count_if(rows.begin(), rows.end(),
                         [dtype](const HistogramRow& row) { return row.dtype == dtype; });
  };
  return stored_as(DType::bf16) > stored_as(DType::f16) ? DType::bf16 : DType::f16;
}

std::string titles_of(const std::vector<DType>& formats) {
  std::vector<std::string> titles;
  for (const DType format : formats) titles.push_back(title_of(format));
  return fmt::format("{}", fmt::join(titles, ", "));
}

/// The suggestion, which was made of one step, tried on every step that the run recorded, each tensor in the
/// format that held it; nothing where there is none.
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
  return {
      {"log2_scale", replay.log2_scale},
      {"steps", replay.steps},
      {"overflows", replay.overflows},
      {"unknown", replay.unknown},
      {"first", replay.first == 0 ? Json(nullptr) : Json(replay.first)},
      {"first_certain", replay.first_certain == 0 ? Json(nullptr) : Json(replay.first_certain)},
      {"first_unknown", replay.first_unknown == 0 ? Json(nullptr) : Json(replay.first_unknown)},
      {"highest", replay.highest ? Json(*replay.highest) : Json(nullptr)},
      {"highest_not_certain", replay.highest_not_certain ? Json(*replay.highest_not_certain) : Json(nullptr)},
      {"for_run", replay.for_run() ? Json(*replay.for_run()) : Json(nullptr)}};
}

void show_run(const HistCommand& command, const std::filesystem::path& run, NameSelection& selection) {
  const AllSteps all = survey(run, selection);
  const std::vector<std::uint64_t>& steps = all.steps;
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
  std::vector<HistogramRow> rows;
  for_each_histogram(run, [&](const HistogramRow& row) {
    if (row.step == step && selection.takes(row.tensor)) rows.push_back(row);
  });
  selection.check();
  for (const HistogramRow& row : rows) {
    tensors.report.add(row);
    if (is_fp8(row.dtype)) continue;
    tensors.saw_scale(row.loss_scale);
    if (command.draws()) tensors.drawn.push_back({row.tensor, row.before, row.loss_scale});
  }
  if (tensors.empty())
    throw CommandError(ExitCode::usage,
                       "nothing is left to show: --include names tensors, --exclude leaves some out");
  const Question question{
      .formats = parse_formats(command.formats).value_or(std::vector<DType>{stored_format(rows)}),
      .scale = command.scale.empty() ? tensors.common_scale() : parse_scale("--scale", command.scale)};
  if (!command.common.quiet) {
    const std::string recorded = tensors.common_scale()
                                     ? fmt::format("loss scale {}", *tensors.common_scale())
                                     : fmt::format("loss scales from {} to {}, which differ by tensor",
                                                   tensors.least_scale, tensors.greatest_scale);
    fmt::print(stderr, "{}: step {}, recorded at {}, shown in {} at {}\n", run.string(), step, recorded,
               titles_of(question.formats),
               question.scale ? fmt::format("{}", *question.scale) : "each tensor's own");
    for (const std::string& damage : all.damage) fmt::print(stderr, "note: {}\n", damage);
    if (all.rounded) fmt::print(stderr, "note: {}\n", behind_rounding);
  }
  const std::string name = std::filesystem::absolute(run).lexically_normal().filename().string();
  const std::string subject = fmt::format(
      "{}, step {}", name.empty() ? std::filesystem::absolute(run).parent_path().filename().string() : name,
      step);
  const std::vector<analysis::SuggestedScale> suggestions = suggestions_of(tensors.report, question.formats);
  const auto stored = std::find(question.formats.begin(), question.formats.end(), stored_format(rows));
  std::optional<FixedScaleReplay> replay;
  if (stored != question.formats.end())
    replay = replayed(run, suggestions[static_cast<std::size_t>(stored - question.formats.begin())]);
  Json additions = {{"all_steps", pooled_json(all)}, {"damage", all.damage}};
  if (replay) additions["suggestion_replay"] = replay_json(*replay);
  show(command, tensors, subject, question, suggestions, additions);
  if (command.json) return;
  const bool selected = !command.include.empty() || !command.exclude.empty();
  fmt::print("{}{}", pooled_sentence(all, selected),
             replay ? sentence(*replay) + (selected ? " This is of all tensors.\n" : "\n") : "");
}

Json shape_json(const std::vector<std::uint64_t>& shape) {
  return shape.empty() ? Json::array() : Json(shape);
}

/// "recorded_scale" is null where it differs by array.
Json additions_of(const CountedDumps& dumps, const std::optional<double>& recorded_scale) {
  Json arrays = Json::array(), skipped = Json::array();
  for (const CountedArray& array : dumps.arrays)
    arrays.push_back({{"tensor", array.label},
                      {"file", array.file.string()},
                      {"format", name_of(array.format)},
                      {"name", array.info.name},
                      {"dtype", array.info.dtype},
                      {"shape", shape_json(array.info.shape)},
                      {"fortran_order", array.info.fortran_order},
                      {"recorded_scale", array.recorded_scale},
                      {"below_fp32", array.values.below_fp32()},
                      {"above_fp32", array.values.above_fp32()}});
  for (const SkippedArray& array : dumps.skipped)
    skipped.push_back({{"file", array.file.string()}, {"name", array.name}, {"reason", array.reason}});
  return {{"recorded_scale", recorded_scale ? Json(*recorded_scale) : Json(nullptr)},
          {"arrays", std::move(arrays)},
          {"skipped", std::move(skipped)}};
}

void print_notes(const CountedDumps& dumps) {
  constexpr std::size_t shown_at_most = 10;
  std::size_t skipped = 0, no_gradients = 0;
  for (const SkippedArray& array : dumps.skipped) {
    if (array.no_gradient)
      ++no_gradients;
    else if (++skipped <= shown_at_most)
      fmt::print(stderr, "note: {}: '{}' is skipped: {}\n", printable(array.file.string()),
                 printable(array.name), array.reason);
  }
  if (skipped > shown_at_most) fmt::print(stderr, "note: {} more are skipped\n", skipped - shown_at_most);
  if (no_gradients > 0)
    fmt::print(
        stderr,
        "note: {} tensors are left out: the dump says that they are no gradients (--include counts them)\n",
        no_gradients);
  std::uint64_t below = 0, above = 0;
  for (const CountedArray& array : dumps.arrays) {
    below += array.values.below_fp32();
    above += array.values.above_fp32();
  }
  if (below > 0) fmt::print(stderr, "note: {} FP64 values are below FP32's smallest number\n", below);
  if (above > 0) fmt::print(stderr, "note: {} finite FP64 values are beyond FP32's largest number\n", above);
}

void show_dumps(const HistCommand& command, std::span<const std::filesystem::path> files,
                NameSelection& selection) {
  const std::vector<DType> formats = parse_formats(command.formats).value_or(std::vector<DType>{DType::f16});
  DumpQuestion asked;
  for (const DType format : formats) asked.ranges.push_back(range_of(format));
  if (!command.scale.empty()) asked.scale = parse_scale("--scale", command.scale);
  if (!command.recorded_scale.empty())
    asked.recorded_scale = parse_scale("--recorded-scale", command.recorded_scale);
  const CountedDumps dumps = count_dumps(files, asked, selection, command.common.threads);
  Tensors tensors;
  for (const CountedArray& array : dumps.arrays) {
    tensors.report.add(array.label, array.values, array.recorded_scale);
    tensors.saw_scale(array.recorded_scale);
    if (command.draws())
      tensors.drawn.push_back({array.label, array.values.exponents(), array.recorded_scale});
  }
  if (!command.common.quiet) print_notes(dumps);
  const std::string subject =
      files.size() == 1 ? files.front().filename().string() : fmt::format("{} files", files.size());
  const Question question{.formats = formats, .scale = asked.scale ? asked.scale : tensors.common_scale()};
  show(command, tensors, subject, question, suggestions_of(tensors.report, formats),
       command.json ? additions_of(dumps, tensors.common_scale()) : Json::object());
}

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
  for (const std::filesystem::path& run : runs) {
    NameSelection selection(command.include, command.exclude);
    show_run(command, run, selection);
  }
  if (files.empty()) return ExitCode::ok;
  NameSelection selection(command.include, command.exclude);
  show_dumps(command, files, selection);
  return ExitCode::ok;
}

}  // namespace

Command hist_command() {
  return {
      .name = "hist",
      .description =
          "Where gradients sit in FP16, or other formats, at any loss scale: those of run folders, or your "
          "own\n"
          "dumps (.npy, .npz, .safetensors; f2 f4 f8 and F16 BF16 F32 F64 F8_E4M3 F8_E5M2), per tensor and\n"
          "together. Dumps are counted value by value, exactly; run folders hold histograms, and say bounds "
          "where\n"
          "they leave something open. What is no gradient in a file of train --dump-gradients is left out.\n"
          "One table or JSON document a run, one for all dumps; -o DIR draws the figures.",
      .examples =
          "  fp16lab hist results/classifier --scale 2^15\n"
          "  fp16lab hist results/classifier --step 100 --json\n"
          "  fp16lab hist gradients.npz --format f16,bf16,e5m2     would another format do?\n"
          "  fp16lab hist step.safetensors --include fc1 --exclude '*.bias'\n"
          "  fp16lab hist gradients.npz 'dumps/step-*.safetensors' --scale 2^10 -o results/hist",
      .uses = {.out = "Folder for the histogram as a figure", .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<HistCommand>();
        options.add("FILE", command->inputs, "Run folders, dumps, and quoted patterns of them").required();
        options
            .add("--format", command->formats,
                 fmt::format(
                     "Format to judge in: {}, or several (default: in which a run stored\nits gradients, "
                     "f16 for dumps)",
                     fmt::join(dtype_names<is_file_low_precision>, ", ")))
            .type("NAME,...")
            .repeatable();
        options
            .add("--include", command->include,
                 "Only tensors of this name; '*' and '?' match, \"fc1\" is all inside fc1 (repeatable)")
            .type("PATTERN")
            .repeatable();
        options.add("--exclude", command->exclude, "Not tensors of this name (repeatable)")
            .type("PATTERN")
            .repeatable();
        options
            .add("--recorded-scale", command->recorded_scale,
                 "Loss scale that the values of the dumps carry (default: what a dump of ours says, else 1)")
            .type("SCALE");
        options
            .add("--scale", command->scale, "Loss scale to judge at, 2^K or a number (default: as recorded)")
            .type("SCALE");
        options.add("--step", command->step, "Recorded step (default: the last one)").type("N").at_least(0);
        options.flag("--exact-mass", command->exact_mass,
                     "Of dumps: also L1, L2 and what is lost and overflows, exactly (--json: every zone)");
        options.flag("--json", command->json, "JSON instead of a table");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_hist(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
