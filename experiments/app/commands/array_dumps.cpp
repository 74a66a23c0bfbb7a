#include "experiments/app/commands/array_dumps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/range_report.hpp"
#include "engine/amp/levels/level.hpp"
#include "engine/train/tensor_dump.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/arrays/array_values.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

std::string label_of(const ArrayFile& file, const ArrayInfo& array, bool several_files) {
  if (!several_files) return printable(array.name);
  const std::string path = printable(file.path().string());
  return file.format() == ArrayFormat::npy ? path : path + ":" + printable(array.name);
}

/// What is to be counted, from the headers alone.
struct Plan {
  struct Entry {
    std::string label;
    std::size_t file;
    ArrayInfo info;
    std::optional<DType> taken_as;
    double recorded_scale;
  };
  std::vector<Entry> entries;
  std::vector<SkippedArray> skipped;
  std::size_t empty = 0;  ///< as in CountedDumps
};

/// Bytes and words may be the bits of numbers for which the file's format has no name.
std::string hint_of(const ArrayInfo& array) {
  if (array.element_bytes == 1) return " (are they FP8? --as e4m3 or --as e5m2 counts them)";
  if (array.element_bytes == 2) return " (are they BF16 or FP16? --as bf16 or --as f16 counts them)";
  return {};
}

/// The arrays of one file that are asked for.
void plan_file(const ArrayFile& file, std::size_t index, bool several_files, const DumpQuestion& question,
               NameSelection& selection, std::set<std::string>& labels, Plan& plan) {
  const std::vector<std::string> no_gradients =
      split_at_commas(engine::GradientDump::no_gradients_of(file.metadata()));
  const double scale = question.recorded_scale.value_or(engine::GradientDump::carried_scale(file.metadata()));
  const std::size_t skipped_before = plan.skipped.size(), empty_before = plan.empty;
  bool any = false;
  for (ArrayInfo array : file.arrays()) {
    const bool taken = selection.takes(array.name);
    std::optional<DType> taken_as;
    for (const DType format : question.as)
      if (taken && array.take_as(format)) taken_as = format;
    if (!array.type) {
      if (taken)
        plan.skipped.push_back({file.path(), array.name,
                                fmt::format("{}: {}{}", array.describe(), array.refusal, hint_of(array))});
      continue;
    }
    if (std::find(array.shape.begin(), array.shape.end(), 0u) != array.shape.end()) {
      if (taken) ++plan.empty;
      continue;
    }
    any = true;
    if (!taken) continue;
    if (engine::amp::matches_any(no_gradients, array.name) && !selection.includes(array.name)) {
      plan.skipped.push_back({file.path(), array.name, "not a gradient, according to the dump", true});
      continue;
    }
    std::string label = label_of(file, array, several_files);
    while (!labels.insert(label).second) label += "'";  // made printable, two names may have become one
    plan.entries.push_back({std::move(label), index, std::move(array), taken_as, scale});
  }
  for (const std::string& member : file.other_members())
    plan.skipped.push_back({file.path(), member, "not a .npy member"});
  if (any) return;
  const std::string reason = plan.empty > empty_before ? "its arrays have no elements"
                             : plan.skipped.size() == skipped_before
                                 ? "it holds no array"
                                 : fmt::format("'{}' is {}", printable(plan.skipped[skipped_before].name),
                                               plan.skipped[skipped_before].reason);
  throw CommandError(ExitCode::run_failed,
                     fmt::format("{}: nothing to count: {}", printable(file.path().string()), reason));
}

}  // namespace

/// torch.save writes Python objects; its tensors as safetensors keep their dtypes, BF16 and FP8 too.
void refuse_pytorch(const std::filesystem::path& path) {
  if (!is_pytorch_file(path)) return;
  const std::string to = std::filesystem::path(path).replace_extension(safetensors_ending).string();
  constexpr const char* convert =
      "import sys, torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in "
      "torch.load(sys.argv[1], map_location=\"cpu\", weights_only=True).items() if torch.is_tensor(v)}, "
      "sys.argv[2])";
  throw CommandError(
      ExitCode::usage,
      fmt::format("{}: a PyTorch file, which holds Python objects; convert it with: {}",
                  printable(path.string()), shell_line({"python3", "-c", convert, path.string(), to})));
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return parts;
}

CountedDumps count_dumps(std::span<const std::filesystem::path> files, const DumpQuestion& question,
                         NameSelection& selection, int threads) {
  Plan plan;
  std::set<std::string> labels;
  std::set<double> scales;
  for (std::size_t i = 0; i < files.size(); ++i) {
    refuse_pytorch(files[i]);
    plan_file(ArrayFile(files[i]), i, files.size() > 1, question, selection, labels, plan);
  }
  selection.check();
  for (const DType format : question.as)
    if (std::ranges::none_of(plan.entries,
                             [&](const Plan::Entry& entry) { return entry.taken_as == format; }))
      throw CommandError(
          ExitCode::usage,
          fmt::format("--as {}: there is no array of {}-byte elements without a floating-point type",
                      name_of(format), size_of(format)));
  if (plan.entries.empty())
    throw CommandError(ExitCode::usage, "nothing is left to count after --include and --exclude");
  for (const Plan::Entry& entry : plan.entries) scales.insert(entry.recorded_scale);
  const auto bins = analysis::value_bins(question.ranges, std::vector<double>(scales.begin(), scales.end()),
                                         question.scale);
  labels.clear();
  CountedDumps dumps{.arrays = {}, .skipped = std::move(plan.skipped), .empty = plan.empty};
  dumps.arrays.reserve(plan.entries.size());
  std::optional<ArrayFile> file;
  std::size_t open = files.size();
  for (Plan::Entry& entry : plan.entries) {
    if (entry.file != open) file.emplace(files[open = entry.file]);
    ValueHistogram values = count_array(*file, entry.info, bins, threads);
    dumps.arrays.push_back({std::move(entry.label), files[entry.file], file->format(), std::move(entry.info),
                            entry.taken_as, entry.recorded_scale, std::move(values)});
  }
  return dumps;
}

}  // namespace fp16lab::experiments
