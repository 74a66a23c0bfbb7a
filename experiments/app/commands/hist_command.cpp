// fp16lab hist: where the recorded gradients of a run, or the arrays of the user's own dumps, sit in FP16 and
// other formats.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/tensor_state.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/array_dumps.hpp"
#include "experiments/app/commands/hist_blocks.hpp"
#include "experiments/app/commands/hist_show.hpp"
#include "experiments/app/commands/name_selection.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/range_figure.hpp"

namespace fp16lab::experiments {
namespace {

struct Matches {
  glob_t list{};
  Matches() = default;
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  ~Matches() { ::globfree(&list); }
};

/// The folder that a pattern names before its first wildcard, where it is not there: "" otherwise.
std::filesystem::path missing_folder(const std::filesystem::path& pattern) {
  std::filesystem::path folder;
  for (const std::filesystem::path& part : pattern.parent_path()) {
    if (part.string().find_first_of("*?[") != std::string::npos) break;
    folder /= part;
    if (!is_there(folder)) return folder;
  }
  return {};
}

std::vector<std::filesystem::path> matches_of(const std::string& pattern) {
  if (const std::filesystem::path missing = missing_folder(pattern); !missing.empty())
    throw CommandError(ExitCode::usage,
                       fmt::format("{}: folder {} does not exist", pattern, missing.string()));
  Matches matches;
  const int code = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &matches.list);
  if (code == GLOB_NOMATCH) throw CommandError(ExitCode::usage, fmt::format("{}: no file matches", pattern));
  if (code != 0)
    throw CommandError(ExitCode::usage, fmt::format("{}: a folder of this pattern cannot be read", pattern));
  const std::span<char*> paths(matches.list.gl_pathv, matches.list.gl_pathc);
  return {paths.begin(), paths.end()};
}

/// Each argument is a path that exists, or a pattern of *, ? and [...] (as glob(7); quoted, so that the shell
/// leaves it alone), which stands for the paths it matches in alphabetical order. A path that comes twice is
/// kept once, at its first place. CommandError(usage) for a path that is not there and a pattern without a
/// match.
std::vector<std::filesystem::path> expand_inputs(std::span<const std::filesystem::path> arguments) {
  std::vector<std::filesystem::path> paths;
  std::set<std::filesystem::path> seen;
  const auto add = [&](const std::filesystem::path& path) {
    std::error_code error;
    const std::filesystem::path one = std::filesystem::weakly_canonical(path, error);
    if (seen.insert(error ? path : one).second) paths.push_back(path);
  };
  for (const std::filesystem::path& argument : arguments) {
    if (is_there(argument)) {  // whatever characters its name has
      add(argument);
    } else if (argument.string().find_first_of("*?[") != std::string::npos) {
      for (const std::filesystem::path& path : matches_of(argument.string())) add(path);
    } else {
      throw CommandError(ExitCode::usage, fmt::format("{}: no such file or run folder", argument.string()));
    }
  }
  return paths;
}

/// One counted array: its tensor, and the step.
struct ArrayStep {
  std::string tensor;
  std::uint64_t step = 0;
};

struct DumpSteps {
  std::vector<ArrayStep> arrays;  ///< one for each of CountedDumps::arrays; empty: the files are no steps
  std::string told;               ///< what was assumed, a sentence; "" of a single file
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The numbers in a path, those of up to 18 digits, from left to right.
std::vector<std::uint64_t> numbers_in(const std::string& path) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < path.size();) {
    std::size_t end = i;
    while (end < path.size() && is_digit(path[end])) ++end;
    if (end > i && end - i <= 18) numbers.push_back(std::stoull(path.substr(i, end - i)));
    i = end == i ? i + 1 : end;
  }
  return numbers;
}

/// The number of each path: the first that all have, and in which all differ.
std::optional<std::vector<std::uint64_t>> numbers_of(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::uint64_t>> all;
  for (const std::string& path : paths) all.push_back(numbers_in(path));
  const std::size_t count = std::ranges::min(all, {}, &std::vector<std::uint64_t>::size).size();
  for (std::size_t which = 0; which < count; ++which) {
    std::vector<std::uint64_t> numbers;
    for (const auto& each : all) numbers.push_back(each[which]);
    if (std::set(numbers.begin(), numbers.end()).size() == paths.size()) return numbers;
  }
  return std::nullopt;
}

std::string step_names(const std::vector<std::uint64_t>& ascending) {
  if (ascending.size() <= 6) return fmt::format("steps {}", fmt::join(ascending, ", "));
  return fmt::format("{} steps from {} to {}", ascending.size(), ascending.front(), ascending.back());
}

/// Files with the same tensors are steps, in the order of the number in their names ("step-500.npz"): the
/// first number in which all of them differ. Without such a number they are steps 1, 2, ... as given. Of .npy
/// files, which hold one array each, those of a folder are one step, and the number is the folder's. Other
/// files are parts of one whole.
DumpSteps steps_of(const CountedDumps& dumps) {
  const auto unit_of = [](const CountedArray& array) {
    return (array.format == ArrayFormat::npy ? array.file.parent_path() : array.file).string();
  };
  const auto tensor_of = [](const CountedArray& array) {
    return array.format == ArrayFormat::npy ? printable(array.file.stem().string())
                                            : printable(array.info.name);
  };
  std::vector<std::string> units;  // in the order given
  std::map<std::string, std::set<std::string>> tensors;
  std::set<std::string> files;
  for (const CountedArray& array : dumps.arrays) {
    files.insert(array.file.string());
    const auto [names, added] = tensors.try_emplace(unit_of(array));
    if (added) units.push_back(unit_of(array));
    if (!names->second.insert(tensor_of(array)).second) return {};  // two names, made printable, became one
  }
  if (files.size() < 2) return {};
  const bool agree = units.size() > 1 && std::ranges::all_of(units, [&](const std::string& unit) {
                       return tensors[unit] == tensors[units.front()];
                     });
  if (!agree)
    return {.arrays = {},
            .told = fmt::format("{} files with different tensors: taken as parts of one set (--separate "
                                "reports them one by one).",
                                files.size())};
  const std::optional<std::vector<std::uint64_t>> numbers = numbers_of(units);
  std::map<std::string, std::uint64_t> steps;
  for (std::size_t i = 0; i < units.size(); ++i) steps[units[i]] = numbers ? (*numbers)[i] : i + 1;
  DumpSteps result;
  for (const CountedArray& array : dumps.arrays)
    result.arrays.push_back({tensor_of(array), steps[unit_of(array)]});
  std::vector<std::uint64_t> ascending;
  for (const auto& [unit, step] : steps) ascending.push_back(step);
  std::ranges::sort(ascending);
  const bool folders = units.size() < files.size() || dumps.arrays.front().format == ArrayFormat::npy;
  result.told = fmt::format(
      "{} {} with the same {}: taken as {} of one run, {} (--separate reports {} one by one).", units.size(),
      folders ? "folders" : "files",
      tensors[units.front()].size() == 1 ? std::string("tensor")
                                         : fmt::format("{} tensors", tensors[units.front()].size()),
      step_names(ascending),
      numbers ? "by the numbers in their names"
              : "in the order given, since no number in their names distinguishes them",
      folders ? "their files" : "them");
  return result;
}

using Json = HistJson;

Json shape_json(const std::vector<std::uint64_t>& shape) {
  return shape.empty() ? Json::array() : Json(shape);
}

/// "recorded_scale" is null where it differs by array, "step" where the files are no steps.
Json additions_of(const CountedDumps& dumps, const DumpSteps& steps, const analysis::RangeReport& report,
                  const std::optional<double>& recorded_scale) {
  Json arrays = Json::array(), skipped = Json::array(), changes = Json::array();
  for (std::size_t i = 0; i < dumps.arrays.size(); ++i) {
    const CountedArray& array = dumps.arrays[i];
    arrays.push_back({{"tensor", array.label},
                      {"file", array.file.string()},
                      {"format", name_of(array.format)},
                      {"name", array.info.name},
                      {"dtype", array.info.dtype},
                      {"taken_as", array.taken_as ? Json(name_of(*array.taken_as)) : Json(nullptr)},
                      {"shape", shape_json(array.info.shape)},
                      {"fortran_order", array.info.fortran_order},
                      {"recorded_scale", array.recorded_scale},
                      {"below_fp32", array.values.below_fp32()},
                      {"above_fp32", array.values.above_fp32()},
                      {"step", steps.arrays.empty() ? Json(nullptr) : Json(steps.arrays[i].step)}});
  }
  for (const SkippedArray& array : dumps.skipped)
    skipped.push_back({{"file", array.file.string()}, {"name", array.name}, {"reason", array.reason}});
  for (const analysis::StepChange& change : analysis::step_changes(report))
    changes.push_back({{"tensor", change.tensor},
                       {"from", change.from},
                       {"to", change.to},
                       {"greatest", {change.before, change.after}}});
  return {{"recorded_scale", recorded_scale ? Json(*recorded_scale) : Json(nullptr)},
          {"assumed", steps.told},
          {"arrays", std::move(arrays)},
          {"changes", std::move(changes)},
          {"skipped", std::move(skipped)}};
}

/// Notes the array with most zeros, among those whose own type rounds small values to zero.
void note_zeros(const CountedDumps& dumps) {
  const CountedArray* worst = nullptr;
  double most = 0;
  std::size_t others = 0;
  for (const CountedArray& array : dumps.arrays) {
    if (*array.info.type != DType::f16 && !is_byte_format(*array.info.type)) continue;
    const double share =
        static_cast<double>(array.values.zero()) / static_cast<double>(array.info.element_count());
    if (share == 0) continue;
    if (worst != nullptr) ++others;
    if (share <= most) continue;
    most = share;
    worst = &array;
  }
  if (worst == nullptr) return;
  say("note: {}: {:.3g} % of its values are zeros, which rounding to its own type, {}, may have caused; no "
      "scale restores them{}",
      worst->label, 100 * most, title_of(*worst->info.type),
      others > 0 ? fmt::format(" (likewise {})", counted(others, "other array")) : "");
}

void print_notes(const CountedDumps& dumps) {
  constexpr std::size_t shown_at_most = 10;
  std::size_t skipped = 0, no_gradients = 0;
  for (const SkippedArray& array : dumps.skipped) {
    if (array.no_gradient)
      ++no_gradients;
    else if (++skipped <= shown_at_most)
      say("note: {}: '{}' is skipped: {}", printable(array.file.string()), printable(array.name),
          array.reason);
  }
  if (skipped > shown_at_most) say("note: {} more are skipped", skipped - shown_at_most);
  if (no_gradients > 0)
    say("note: {} tensors are left out: according to the dump they are not gradients (--include counts them)",
        no_gradients);
  note_zeros(dumps);
  std::uint64_t below = 0, above = 0;
  for (const CountedArray& array : dumps.arrays) {
    below += array.values.below_fp32();
    above += array.values.above_fp32();
  }
  if (below > 0) say("note: {} FP64 values are below FP32's smallest number", below);
  if (above > 0) say("note: {} finite FP64 values are beyond FP32's largest number", above);
}

/// What explains an Inf or NaN; where no scale suits all, the same without the tensor that overflows first;
/// where another scale would mend what is wrong, the same at that one; else the tables.
std::string next_of(const HistCommand& command, std::span<const std::filesystem::path> files,
                    const HistQuestion& question, double recorded_scale,
                    const analysis::SuggestedScale& suggestion, const analysis::Finding* worst) {
  if (worst != nullptr && worst->trouble == analysis::Trouble::non_finite)
    return analysis::explained_in_pytorch(recorded_scale) + " (for PyTorch; docs/nan.md has the others)";
  std::vector<std::string> words{"hist"};
  if (command.separate)
    for (const std::filesystem::path& file : files) words.push_back(file.string());
  else
    for (const std::filesystem::path& input : command.inputs) words.push_back(input.string());
  const auto add = [&words](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) words.insert(words.end(), {option, value});
  };
  add("--format", command.formats);
  add("--include", command.include);
  add("--exclude", command.exclude);
  add("--as", command.as);
  if (!command.recorded_scale.empty()) add("--recorded-scale", {command.recorded_scale});
  const std::string& first = suggestion.overflows_first;
  if (suggestion.suggested && !suggestion.fits() && !first.empty() && first != suggestion.asks_most) {
    if (!command.scale.empty()) add("--scale", {command.scale});
    add("--exclude", {first});
    return own_command(words) + " (what the other tensors need)";
  }
  if (worst != nullptr && suggestion.suggested && question.scale != std::scalbn(1.0, *suggestion.suggested)) {
    add("--scale", {fmt::format("2^{}", *suggestion.suggested)});
    return own_command(words) + " (the same at the suggested scale)";
  }
  if (!command.scale.empty()) add("--scale", {command.scale});
  words.emplace_back("--all");
  return own_command(words) + " (every tensor, by count and by magnitude)";
}

void show_dumps(const HistCommand& command, std::span<const std::filesystem::path> files,
                NameSelection& selection) {
  const std::vector<DType> formats =
      parse_formats("--format", dtypes<is_judged>, command.formats).value_or(std::vector<DType>{DType::f16});
  DumpQuestion asked;
  for (const DType format : formats) asked.ranges.push_back(range_of(format));
  if (!command.scale.empty()) asked.scale = parse_scale("--scale", command.scale);
  if (!command.recorded_scale.empty())
    asked.recorded_scale = parse_scale("--recorded-scale", command.recorded_scale);
  asked.as = parse_formats("--as", dtypes<is_stored>, command.as).value_or(std::vector<DType>{});
  for (std::size_t i = 0; i + 1 < asked.as.size(); ++i)
    for (std::size_t j = i + 1; j < asked.as.size(); ++j)
      if (size_of(asked.as[i]) == size_of(asked.as[j]))
        throw CommandError(
            ExitCode::usage,
            fmt::format("--as {},{}: both have {}; give one of them, and --include the arrays of that type",
                        name_of(asked.as[i]), name_of(asked.as[j]), counted(size_of(asked.as[i]), "byte")));
  const std::vector<Quantizer> blocks = parse_quantizers("--blocks", command.blocks);
  const CountedDumps dumps = count_dumps(files, asked, selection, command.common.threads);
  if (!blocks.empty()) {
    if (!command.common.quiet) print_notes(dumps);
    return show_blocks(dumps, blocks, command.all, command.json, command.common.threads);
  }
  const DumpSteps steps = steps_of(dumps);
  Tensors tensors;
  for (std::size_t i = 0; i < dumps.arrays.size(); ++i) {
    const CountedArray& array = dumps.arrays[i];
    tensors.report.add(array.label, array.values, array.recorded_scale);
    if (!steps.arrays.empty())
      tensors.report.is_step(array.label, steps.arrays[i].tensor, steps.arrays[i].step);
    tensors.saw_scale(array.recorded_scale);
    if (command.draws())
      tensors.drawn.push_back({array.label, array.values.exponents(), array.recorded_scale});
  }
  if (!command.common.quiet) print_notes(dumps);
  const std::string subject =
      files.size() == 1 ? files.front().filename().string() : fmt::format("{} files", files.size());
  const HistQuestion question{.formats = formats,
                              .scale = asked.scale ? asked.scale : tensors.common_scale()};
  const std::vector<analysis::SuggestedScale> suggestions = suggestions_of(tensors.report, formats);
  HistAnswer answer{.before = steps.told.empty() ? "" : steps.told + "\n"};
  for (const DType format : formats)
    answer.accounts.push_back(analysis::account_of(tensors.report, format, question.scale));
  answer.next = next_of(command, files, question, tensors.greatest_scale, suggestions.front(),
                        answer.accounts.front().worst());
  show(command, tensors, subject, question, suggestions, answer,
       command.json ? additions_of(dumps, steps, tensors.report, tensors.common_scale()) : Json::object());
}

ExitCode run_hist(const HistCommand& command) {
  std::vector<std::filesystem::path> runs, files;
  for (const std::filesystem::path& input : expand_inputs(command.inputs)) {
    if (!is_folder(input))
      files.push_back(input);
    else if (is_run_folder(input))
      runs.push_back(input);
    else
      throw CommandError(
          ExitCode::usage,
          fmt::format("{}: not a run folder, since it has no manifest.json; for the dumps in it, give '{}'",
                      input.string(), (input / "*.npz").string()));
  }
  if (command.step && runs.empty())
    throw CommandError(ExitCode::usage, fmt::format("--step {}: only run folders have steps", *command.step));
  if (!command.recorded_scale.empty() && files.empty())
    throw CommandError(ExitCode::usage,
                       "--recorded-scale is for dumps: run folders record the scale of their gradients");
  if (command.observed != Observed::gradients && runs.empty())
    throw CommandError(
        ExitCode::usage,
        fmt::format("--tensors {}: only run folders record what their tensors are", command.tensors));
  if (!command.as.empty() && files.empty())
    throw CommandError(ExitCode::usage, "--as is for dumps: run folders record what their tensors are");
  if (command.separate && files.empty())
    throw CommandError(ExitCode::usage,
                       "--separate is for dumps: run folders are always reported one by one");
  if (!command.blocks.empty() && files.empty())
    throw CommandError(ExitCode::usage,
                       "--blocks is for dumps: run folders hold counts, which do not say who shares a scale");
  if (!command.blocks.empty() && (!command.formats.empty() || !command.scale.empty() || command.exact_mass ||
                                  command.draws()))
    throw CommandError(ExitCode::usage,
                       "--blocks has tables of its own: it goes without --format, --scale, --exact-mass and -o");
  if (command.exact_mass && files.empty())
    throw CommandError(ExitCode::usage, "--exact-mass is for dumps: run folders hold counts, not values");
  for (const std::filesystem::path& run : runs) {
    NameSelection selection(command.include, command.exclude);
    show_run(command, run, selection);
  }
  if (files.empty()) return ExitCode::ok;
  const std::size_t together = command.separate ? 1 : files.size();
  for (std::size_t i = 0; i < files.size(); i += together) {
    if (i > 0 && !command.json) fmt::print("\n");
    if (command.separate && !command.json) fmt::print("{}:\n", printable(files[i].string()));
    std::fflush(stdout);
    NameSelection selection(command.include, command.exclude);
    show_dumps(command, std::span(files).subspan(i, together), selection);
  }
  return ExitCode::ok;
}

}  // namespace

Command hist_command() {
  return {
      .name = "hist",
      .description =
          "Show where gradients fall in FP16 or other formats: at any loss scale, those of run folders, or "
          "of your own\ndumps (.npy, .npz, .safetensors; f2 f4 f8 and F16 BF16 F32 F64 F8_E4M3 F8_E5M2), per "
          "tensor and\ntogether. Dumps are counted exactly, value by value; run folders hold histograms, "
          "which give bounds where\nthe exact number is unknown. Tensors in a file of train --dump-gradients "
          "that are not gradients are left out.\nThe output shows what is wrong, then the worst tensors, "
          "then which scales fit; --all lists every\ntensor. Several dumps with the same tensors are steps, "
          "ordered by the number in their names.\nA layer's \".input\" is the gradient of its input, "
          "\"loss.prediction\" that of the network's output.\nPrints one table or JSON document per run, one "
          "for all dumps; -o DIR draws the figures.",
      .examples =
          "  fp16lab hist results/classifier --scale 2^15\n"
          "  fp16lab hist results/classifier --step 100 --json\n"
          "  fp16lab hist results/classifier --tensors updates     how many weights do not move?\n"
          "  fp16lab hist gradients.npz --format f16,bf16,e5m2     would another format do?\n"
          "  fp16lab hist step.safetensors --include fc1 --exclude '*.bias'\n"
          "  fp16lab hist gradients.npz --blocks nvfp4,mxfp8       or one with a scale for each block?\n"
          "  fp16lab hist words.npy --as bf16                      uint16, because numpy has no BF16\n"
          "  fp16lab hist gradients.npz 'dumps/step-*.safetensors' --scale 2^10 -o results/hist",
      .uses = {.out = "Folder for the histogram as a figure", .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<HistCommand>();
        options.add("FILE", command->inputs, "Run folders, dumps, and quoted patterns of them")
            .required()
            .offers(offer_runs({".npy", ".npz", ".safetensors"}));
        options
            .add("--format", command->formats,
                 fmt::format("Format to judge by: {}, or several (default: the one in which a run\nstored "
                             "its gradients, f16 for dumps)",
                             fmt::join(dtype_names<is_judged>, ", ")))
            .type("NAME,...")
            .repeatable()
            .offers(offer_names(dtype_names<is_judged>));
        options
            .add("--include", command->include,
                 "Only tensors with this name; '*' and '?' are wildcards, \"fc1\" is all inside fc1 "
                 "(repeatable)")
            .type("PATTERN")
            .repeatable();
        options.add("--exclude", command->exclude, "Leave out tensors with this name (repeatable)")
            .type("PATTERN")
            .repeatable();
        options
            .add("--recorded-scale", command->recorded_scale,
                 "Loss scale of the values in the dumps (default: the one that a dump of fp16lab names, else "
                 "1)")
            .type("SCALE");
        options
            .add("--as", command->as,
                 fmt::format(
                     "Type of arrays of bytes or words in dumps, which have no floating-point type:\n{}",
                     fmt::join(dtype_names<is_stored>, ", ")))
            .type("NAME,...")
            .repeatable()
            .offers(offer_names(dtype_names<is_stored>));
        options
            .add("--scale", command->scale, "Loss scale to judge at, 2^K or a number (default: as recorded)")
            .type("SCALE");
        options
            .add("--tensors", command->tensors,
                 "(run folders only) Which of the tensors of observe.tensors to show (default: gradients)")
            .one_of({"gradients", "activations", "weights", "updates", "optimizer_state"})
            .type("KIND");
        options.add("--step", command->step, "Recorded step (default: the last one)").type("N").at_least(0);
        options
            .add("--blocks", command->blocks,
                 "(dumps only) What formats with a scale for each block keep instead: nvfp4,mxfp8, or with "
                 "a rule\nmxfp8:rceil (fp16lab list quantizers)")
            .type("NAME,...")
            .repeatable();
        options.flag(
            "--exact-mass", command->exact_mass,
            "(dumps only) Also L1, L2, and exactly how much is lost and overflows (--json: every zone)");
        options.flag("--all", command->all,
                     "Show every tensor in full tables, by count and by magnitude, and every recorded cast");
        options.flag(
            "--separate", command->separate,
            "Report every dump by itself (default: files with the same tensors are steps of one run)");
        options.flag("--json", command->json, "Print JSON with every tensor");
        return [command](const CommonOptions& common) {
          command->common = common;
          command->observed = *enumerator_called<Observed>(command->tensors);
          return run_hist(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
