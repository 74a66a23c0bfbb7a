#include "experiments/array_dumps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "experiments/exit_code.hpp"
#include "numerics/files/printable_text.hpp"

namespace fp16lab::experiments {
namespace {

std::string label_of(const ArrayFile& file, const ArrayInfo& array, bool several_files) {
  if (!several_files) return printable(array.name);
  const std::string path = printable(file.path().string());
  return file.format() == ArrayFormat::npy ? path : path + ":" + printable(array.name);
}

}  // namespace

CountedDumps count_dumps(std::span<const std::filesystem::path> files, int threads) {
  CountedDumps dumps;
  std::set<std::string> labels;
  for (const std::filesystem::path& path : files) {
    const ArrayFile file(path);
    const std::size_t counted_before = dumps.arrays.size(), skipped_before = dumps.skipped.size();
    const std::size_t empty_before = dumps.empty;
    for (const ArrayInfo& array : file.arrays()) {
      if (!array.type) {
        dumps.skipped.push_back({path, array.name, fmt::format("{}: {}", array.describe(), array.refusal)});
        continue;
      }
      if (std::find(array.shape.begin(), array.shape.end(), 0u) != array.shape.end()) {
        ++dumps.empty;
        continue;
      }
      std::string label = label_of(file, array, files.size() > 1);
      while (!labels.insert(label).second) label += "'";  // made printable, two names may have become one
      dumps.arrays.push_back(
          {std::move(label), path, file.format(), array, count_array(file, array, threads)});
    }
    for (const std::string& member : file.other_members())
      dumps.skipped.push_back({path, member, "not a .npy member"});
    if (dumps.arrays.size() > counted_before) continue;
    const std::string reason = dumps.empty > empty_before ? "its arrays have no elements"
                               : dumps.skipped.size() == skipped_before
                                   ? "it holds no array"
                                   : fmt::format("'{}' is {}", printable(dumps.skipped[skipped_before].name),
                                                 dumps.skipped[skipped_before].reason);
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{}: nothing to count: {}", printable(path.string()), reason));
  }
  return dumps;
}

}  // namespace fp16lab::experiments
