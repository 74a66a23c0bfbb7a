#include "experiments/app/commands/dump_steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "numerics/text/message.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

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

}  // namespace

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
    return {
        .arrays = {},
        .told = fmt::format("{} files whose tensors differ: taken as parts of one whole (--separate reports "
                            "them one by one).",
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
      numbers ? "by the numbers in their names" : "in the order given, since no number tells them apart",
      folders ? "their files" : "them");
  return result;
}

}  // namespace fp16lab::experiments
