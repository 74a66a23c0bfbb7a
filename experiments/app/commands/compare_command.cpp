// fp16lab compare: two run folders, step by step and tensor by tensor; two dumps, number by number.
#include <fmt/format.h>

#include <iostream>
#include <limits>
#include <memory>
#include <sstream>

#include "analysis/dump_comparison.hpp"
#include "analysis/paired_verdict.hpp"
#include "analysis/run_comparison_output.hpp"
#include "engine/amp/levels/level.hpp"
#include "engine/train/tensor_dump.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/hist_show.hpp"
#include "experiments/app/commands/name_selection.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/comparison_figure.hpp"

namespace fp16lab::experiments {
namespace {

struct CompareCommand {
  CommonOptions common;
  std::filesystem::path a, b;
  double threshold = 0.01;  ///< relative
  bool strict = false;      ///< any differing bit is exit code 5
  bool json = false;
  // For dumps:
  bool tensors = false;  ///< run folders are dumps: their weights and checkpoints
  bool all = false;
  std::string scale_a, scale_b;
  std::vector<std::string> as, include, exclude;

  bool asks_dumps() const {
    return all || !scale_a.empty() || !scale_b.empty() || !as.empty() || !include.empty() || !exclude.empty();
  }
};

RunFolder read_run(const std::filesystem::path& path, bool strict) {
  // Without them there is nothing to compare.
  if (read_manifest(path).state != ExitState::running)
    for (const std::string_view name : {run_file::steps, run_file::evaluations})
      if (!is_there(path / name))
        throw CommandError(strict ? ExitCode::mismatch : ExitCode::run_failed,
                           fmt::format("{} is missing", (path / name).string()));
  return read_run_folder(path);
}

/// Hands the rows of histograms.jsonl to `add`; says what is odd about the file.
template <class Add>
void read_histograms_of(char which, const RunFolder& run, Add add, std::vector<std::string>& notes) {
  if (!is_there(run.path / run_file::histograms)) return;  // among the run's damage
  if (const std::size_t bytes = for_each_histogram(run.path, add); bytes > 0)
    notes.push_back(fmt::format("{}: {}: the last line is cut off ({} bytes) and was left out", which,
                                run_file::histograms, bytes));
}

/// What a reader should know of one of the runs before he trusts the comparison.
void add_notes(char which, const RunFolder& run, std::vector<std::string>& notes) {
  for (const std::string& note : run.notes) notes.push_back(fmt::format("{}: {}", which, note));
  if (run.manifest.state != ExitState::finished) {
    const std::uint64_t last = run.steps.empty() ? 0 : run.steps.back().step;
    notes.push_back(fmt::format("{}: the run is {}, its last step is {}{}", which,
                                name_of(run.manifest.state), last,
                                run.manifest.message.empty() ? "" : " (" + run.manifest.message + ")"));
  }
  if (const std::string text = library_products_text(run.manifest); !text.empty())
    notes.push_back(fmt::format("{}: {}", which, text));
  for (const Resumption& resumption : run.manifest.resumptions)
    notes.push_back(fmt::format("{}: continued after step {} at {} by {}", which, resumption.step,
                                resumption.time, resumption.git_hash));
}

void add_histogram_notes(const analysis::HistogramsComparison& histograms, const RunFolder& a,
                         const RunFolder& b, std::vector<std::string>& notes) {
  const auto none = [&](char which, const RunFolder& run, std::size_t rows) {
    if (rows == 0 && run.damage.empty())
      notes.push_back(
          fmt::format("{}: no histograms recorded (observe.histograms_every was 0): gradients are not "
                      "compared",
                      which));
  };
  none('A', a, histograms.rows_a);
  none('B', b, histograms.rows_b);
  if (histograms.rows_a == 0 || histograms.rows_b == 0) return;
  if (histograms.unmatched_rows > 0)
    notes.push_back(fmt::format(
        "{} histograms have no counterpart: only one of the runs recorded that tensor in that step",
        histograms.unmatched_rows));
  const auto only = [&](char which, const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    notes.push_back(fmt::format("gradients only in {}: {}", which, list));
  };
  only('A', histograms.only_a);
  only('B', histograms.only_b);
}

analysis::RunComparison compare(const CompareCommand& command) {
  const RunFolder a = read_run(command.a, command.strict), b = read_run(command.b, command.strict);
  analysis::RunComparison result{.name_a = printable(command.a.string()),
                                 .name_b = printable(command.b.string()),
                                 .threshold = command.threshold};
  const auto settings = [](const RunFolder& run) {
    const std::string where = (run.path / run_file::config).string();
    return reports::flatten_toml(told(run.manifest).config, where);
  };
  result.settings = analysis::differing_settings(settings(a), settings(b));
  result.steps = analysis::compare_steps(a.steps, b.steps, command.threshold,
                                         analysis::steps_of_two_versions(a.manifest, b.manifest));
  result.evaluations = analysis::compare_evaluations(a.evaluations, b.evaluations);
  analysis::HistogramComparer comparer;
  read_histograms_of(
      'A', a, [&](const HistogramRow& row) { comparer.add_a(row); }, result.notes);
  read_histograms_of(
      'B', b, [&](const HistogramRow& row) { comparer.add_b(row); }, result.notes);
  result.histograms = comparer.result();
  result.overflows = analysis::compare_overflows(read_overflows(a.path), read_overflows(b.path));
  result.culprits = analysis::compare_culprits(read_culprits(a.path), read_culprits(b.path));
  result.operands = analysis::compare_operands(read_recipe(a.path), read_recipe(b.path));
  for (const std::string& damage : a.damage) result.missing.push_back("A: " + damage);
  for (const std::string& damage : b.damage) result.missing.push_back("B: " + damage);
  add_notes('A', a, result.notes);
  add_notes('B', b, result.notes);
  add_histogram_notes(result.histograms, a, b, result.notes);
  if (!result.evaluations.last.empty() && !result.evaluations.equal)
    result.notes.push_back(
        fmt::format("the last evaluations are a single pair, too few for a verdict: that takes {} seeds or "
                    "more, and FP32's twin (fp16lab sweep --twin)",
                    analysis::fewest_pairs));
  for (const analysis::SettingDifference& setting : result.settings)
    if (setting.key == "train.seed" && !result.equal())
      result.notes.push_back(
          "train.seed differs: the runs diverge for that reason alone, since initial weights and batches "
          "differ");
  if (const auto builds_a = builds_of(a.manifest), builds_b = builds_of(b.manifest); builds_a != builds_b)
    result.notes.push_back(fmt::format("the runs were made by different builds: A by {}, B by {}",
                                       fmt::join(builds_a, ", "), fmt::join(builds_b, ", ")));
  return result;
}

analysis::DumpComparison compare_values(const CompareCommand& command) {
  analysis::DumpComparisonQuestion question{.threshold = command.threshold};
  if (!command.scale_a.empty()) question.scale_a = parse_scale("--scale-a", command.scale_a);
  if (!command.scale_b.empty()) question.scale_b = parse_scale("--scale-b", command.scale_b);
  question.as = parse_formats("--as", dtypes<is_stored>, command.as).value_or(std::vector<DType>{});
  // Weights and batches in a dump of ours carry no scale.
  question.scale_of = [](const auto& metadata, std::string_view name, std::optional<double> asked) {
    const auto no_gradients = split_at_commas(engine::GradientDump::no_gradients_of(metadata));
    if (engine::amp::matches_any(no_gradients, name)) return 1.0;
    return asked.value_or(engine::GradientDump::carried_scale(metadata));
  };
  NameSelection selection(command.include, command.exclude);
  question.takes = [&selection](std::string_view name) { return selection.takes(name); };
  for (const std::filesystem::path& path : {command.a, command.b})
    if (!is_folder(path)) refuse_pytorch(path);
  analysis::DumpComparison comparison = analysis::compare_dumps(command.a, command.b, question);
  selection.check();
  return comparison;
}

template <class Comparison>
void write_files(const CompareCommand& command, const Comparison& comparison) {
  const std::filesystem::path& folder = command.common.out;
  make_folders(folder);
  std::ostringstream json, csv;
  analysis::write_comparison_json(json, comparison);
  analysis::write_comparison_csv(csv, comparison);
  write_file_atomically(folder / "compare.json", json.str());
  write_file_atomically(folder / "compare.csv", csv.str());
  if constexpr (std::is_same_v<Comparison, analysis::RunComparison>) {
    const std::string trouble = reports::draw_comparison(comparison, folder);
    if (!trouble.empty()) say("fp16lab compare: {}", trouble);
  }
}

template <class Comparison>
ExitCode tell(const CompareCommand& command, const Comparison& comparison, std::size_t most) {
  if (!command.common.out.empty()) write_files(command, comparison);
  if (command.json)
    analysis::write_comparison_json(std::cout, comparison);
  else
    analysis::print_comparison(std::cout, comparison,
                               command.all ? std::numeric_limits<std::size_t>::max() : most);
  return command.strict && is_mismatch(claim_of(comparison)) ? ExitCode::mismatch : ExitCode::ok;
}

/// Do the arguments name dumps: files, or folders of them? Else both are run folders.
bool are_dumps(const CompareCommand& command) {
  bool dumps = command.tensors;
  for (const std::filesystem::path& path : {command.a, command.b}) {
    if (!is_there(path))
      throw CommandError(ExitCode::usage, fmt::format("{}: no such run folder or dump", path.string()));
    if (is_run_folder(path)) continue;
    if (is_folder(path) && analysis::array_files_in(path).empty())
      throw CommandError(ExitCode::usage, fmt::format("{}: neither a run folder (no manifest.json) nor a "
                                                      "folder of dumps (no .npy, .npz or .safetensors file)",
                                                      path.string()));
    dumps = true;
  }
  return dumps;
}

ExitCode run_compare(const CompareCommand& command) {
  if (are_dumps(command)) return tell(command, compare_values(command), 30);
  if (command.asks_dumps())
    throw CommandError(ExitCode::usage,
                       "--all, --as, --include, --exclude, --scale-a and --scale-b are for dumps; --tensors "
                       "compares the weights and checkpoints of run folders as dumps");
  return tell(command, compare(command), 20);
}

}  // namespace

Command compare_command() {
  return {
      .name = "compare",
      .description =
          "Compare two runs or two dumps: runs step by step, dumps tensor by tensor. For runs: are their "
          "bits the same, which\nsettings differ, at which step do their states diverge, how fast does the "
          "difference of the losses\ngrow, how far apart are the gradients' distributions, and what do the "
          "last evaluations say? For\ndumps (.npy, .npz, .safetensors, folders of them): which tensor "
          "differs first, by how many ulps of\nthe narrower format, and does a cast alone explain it? Prints "
          "a table; -o DIR adds\ncompare.json, compare.csv and, for runs, a figure. A difference is not an "
          "error, unless --strict\nmakes it one, with exit code 5.",
      .examples =
          "  fp16lab compare results/fp32 results/fp16\n"
          "  fp16lab compare results/emulated results/device --strict --quiet\n"
          "  fp16lab compare results/fp32 results/fp16 --threshold 0.05 --json -o results/fp32-fp16\n"
          "  fp16lab compare fp32.safetensors fp16.safetensors --scale-b 2^16     gradients, a loss scale "
          "taken out\n"
          "  fp16lab compare results/fp32 results/fp16 --tensors                  weights and checkpoints",
      .uses = {.out = "Folder for the comparison as JSON and CSV, and a figure for runs"},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<CompareCommand>();
        for (const auto& [name, path] : {std::pair{"A", &command->a}, {"B", &command->b}})
          options.add(name, *path, "Run folder, dump, or folder of dumps")
              .required()
              .not_empty("a folder")
              .offers(offer_runs({".npy", ".npz", ".safetensors"}));
        options
            .add("--threshold", command->threshold,
                 "From which relative difference of a step's loss, grad_norm, loss_scale or lr, or relative "
                 "L2 of a\ntensor, it is counted as large (default: 0.01)")
            .type("X")
            .not_negative();
        options.flag("--strict", command->strict,
                     "Exit with code 5 if anything that one run recorded differs by a bit in the other, or "
                     "is missing");
        options.flag("--tensors", command->tensors,
                     "(run folders only) Compare their weights and checkpoints, as dumps");
        for (const auto& [name, scale] :
             {std::pair{"--scale-a", &command->scale_a}, {"--scale-b", &command->scale_b}})
          options
              .add(name, *scale,
                   "(dumps only) Loss scale to divide the values by, 2^K or a number (default: the one that "
                   "a dump of\nfp16lab names, else 1)")
              .type("SCALE");
        options
            .add("--as", command->as,
                 fmt::format(
                     "(dumps only) Type of arrays of bytes or words, which have no floating-point type: {}",
                     fmt::join(dtype_names<is_stored>, ", ")))
            .type("NAME,...")
            .repeatable()
            .offers(offer_names(dtype_names<is_stored>));
        options
            .add("--include", command->include,
                 "(dumps only) Only tensors with this name; '*' and '?' are wildcards, \"fc1\" is all inside "
                 "fc1 (repeatable)")
            .type("PATTERN")
            .repeatable();
        options
            .add("--exclude", command->exclude, "(dumps only) Leave out tensors with this name (repeatable)")
            .type("PATTERN")
            .repeatable();
        options.flag("--all", command->all,
                     "(dumps only) List every tensor that differs (default: the first 30)");
        options.flag("--json", command->json, "Print JSON instead of a table");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_compare(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
