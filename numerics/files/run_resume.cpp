#include "numerics/files/run_resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "numerics/files/atomic_file.hpp"
#include "numerics/files/printable_text.hpp"
#include "numerics/files/run_schema.hpp"
#include "numerics/files/run_text.hpp"

namespace fp16lab {
namespace {

constexpr std::string_view name_prefix = "step-";
constexpr std::string_view name_suffix = ".safetensors";

/// Files that a run replaces as a whole, besides checkpoints.
bool is_whole_file(std::string_view name) {
  return name == run_file::manifest || name == run_file::config || name == run_file::weights ||
         name == run_file::op_statistics;
}

/// The number at the beginning of `text`; nothing if there is none, or if `end` does not follow it.
std::optional<std::uint64_t> number_before(std::string_view text, std::string_view end) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const auto digits = static_cast<std::size_t>(stop - text.data());
  return text.substr(digits).starts_with(end) ? std::optional(number) : std::nullopt;
}

/// Length of a line file up to its last line whose step is at most `last`. `check` sees every line that stays.
/// Where `header` is empty the file has none; lines begin with `prefix` and the step.
std::uintmax_t length_up_to(const std::filesystem::path& path, const std::string& header,
                            std::string_view prefix, std::uint64_t last,
                            const std::function<void(std::string_view, std::uint64_t)>& check) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("cannot read {}", path.string()));
  std::uintmax_t keep = 0;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // no newline at its end: torn
    const auto fail = [&](const std::string& why) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path.string(), number, printable(why)));
    };
    if (number == 1 && !header.empty()) {
      if (line != header) fail(fmt::format("the header must be '{}'", header));
    } else {
      const std::optional<std::uint64_t> step =
          line.starts_with(prefix) ? number_before(std::string_view(line).substr(prefix.size()), ",")
                                   : std::nullopt;
      if (!step) fail(fmt::format("expected {}STEP,...", prefix));
      if (*step > last) break;
      check(line, *step);
    }
    keep += line.size() + 1;
  }
  if (keep == 0 && !header.empty())
    throw std::runtime_error(fmt::format("{}:1: the header must be '{}'", path.string(), header));
  return keep;
}

}  // namespace

std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::uint64_t step) {
  return run_folder / run_file::checkpoints / fmt::format("{}{:06}{}", name_prefix, step, name_suffix);
}

std::vector<StoredCheckpoint> stored_checkpoints(const std::filesystem::path& run_folder) {
  std::vector<StoredCheckpoint> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder / run_file::checkpoints, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(name_prefix) || !name.ends_with(name_suffix)) continue;
    const auto step = number_before(std::string_view(name).substr(name_prefix.size()), name_suffix);
    if (step && entry.path() == checkpoint_path(run_folder, *step)) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step < b.step; });
  return found;
}

void make_checkpoint_folder(const std::filesystem::path& run_folder) {
  make_folder_durably(run_folder / run_file::checkpoints);
}

void remove_old_checkpoints(const std::filesystem::path& run_folder, std::uint64_t keep) {
  const std::vector<StoredCheckpoint> all = stored_checkpoints(run_folder);
  if (keep == 0 || all.size() <= keep) return;
  for (std::size_t i = 0; i < all.size() - keep; ++i) std::filesystem::remove(all[i].path);
}

void remove_temporary_files(const std::filesystem::path& run_folder) {
  std::vector<std::filesystem::path> left_behind;
  for (const std::filesystem::path& folder : {run_folder, run_folder / run_file::checkpoints}) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename().string();
      const std::size_t mark = name.rfind(AtomicFile::temporary_mark);
      if (mark == std::string::npos) continue;
      const std::string_view whole = std::string_view(name).substr(0, mark);
      const bool ours = folder == run_folder ? is_whole_file(whole)
                                             : whole.starts_with(name_prefix) && whole.ends_with(name_suffix);
      const std::string id = name.substr(mark + AtomicFile::temporary_mark.size());
      const bool process = !id.empty() && id.find_first_not_of("0123456789") == std::string::npos;
      if (ours && process) left_behind.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& file : left_behind) std::filesystem::remove(file);
}

RunCut find_cut(const std::filesystem::path& run_folder, std::uint64_t step, std::uint64_t state_hash) {
  const std::filesystem::path steps = run_folder / run_file::steps;
  std::uint64_t reached = 0;
  const auto check = [&](std::string_view line, std::uint64_t number) {
    if (number != reached + 1)
      throw std::runtime_error(fmt::format("{}: step {} follows step {}", steps.string(), number, reached));
    reached = number;
    if (number != step) return;
    StepRow row;
    try {
      row = parse_step_row(line, step_columns);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}: step {}: {}", steps.string(), number, printable(error.what())));
    }
    if (row.state_hash != state_hash)
      throw std::runtime_error(
          fmt::format("{}: step {} has the state_hash {:016x}, but its checkpoint has {:016x}",
                      steps.string(), number, row.state_hash, state_hash));
  };
  const auto any = [](std::string_view, std::uint64_t) {};
  RunCut cut;
  cut.steps = length_up_to(steps, csv_header(step_columns), "", step, check);
  if (reached != step)
    throw std::runtime_error(
        fmt::format("{} ends at step {}, before its checkpoint of step {}", steps.string(), reached, step));
  cut.evaluations =
      length_up_to(run_folder / run_file::evaluations, csv_header(evaluation_columns), "", step - 1, any);
  cut.histograms = length_up_to(run_folder / run_file::histograms, "", "{\"step\":", step, any);
  if (const auto overflows = run_folder / run_file::overflows; std::filesystem::exists(overflows))
    cut.overflows = length_up_to(overflows, "", "{\"step\":", step, any);
  if (const auto culprits = run_folder / run_file::culprits; std::filesystem::exists(culprits))
    cut.culprits = length_up_to(culprits, "", "{\"step\":", step, any);
  return cut;
}

}  // namespace fp16lab
