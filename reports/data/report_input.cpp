#include "reports/data/report_input.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::reports {
namespace {

constexpr int deepest_search = 3;

void add_once(std::vector<std::filesystem::path>& list, const std::filesystem::path& path) {
  std::error_code error;
  const auto same = [&](const std::filesystem::path& other) {
    return std::filesystem::equivalent(other, path, error);
  };
  if (std::none_of(list.begin(), list.end(), same)) list.push_back(path);
}

/// What the plan of a sweep's folder names and the folder does not hold.
void add_missing(const std::filesystem::path& folder, ReportInput& input) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / sweep_plan, error))
    if (entry.path().extension() == ".toml" && !is_run_folder(folder / entry.path().stem()))
      add_once(input.missing, entry.path());
  std::sort(input.missing.begin(), input.missing.end());
}

void search(const std::filesystem::path& folder, int depth, ReportInput& input) {
  const bool run = is_run_folder(folder);
  if (run) add_once(input.runs, folder);
  if (std::filesystem::is_regular_file(folder / replay_name::json))
    add_once(input.replays, folder / replay_name::json);
  if (!run) add_missing(folder, input);
  // Inside a run only its replays are looked for.
  if (depth == 0) return;
  std::vector<std::filesystem::path> inside;
  std::error_code error;  // a folder that may not be read holds nothing for us
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.is_directory(error) && !error) inside.push_back(entry.path());
  std::sort(inside.begin(), inside.end());
  for (const std::filesystem::path& path : inside)
    if (!run || std::filesystem::is_regular_file(path / replay_name::json))
      search(path, run ? 0 : depth - 1, input);
}

}  // namespace

ReportInput find_report_input(std::span<const std::filesystem::path> paths) {
  if (paths.empty()) throw std::runtime_error("nothing to report on: no folder was named");
  ReportInput input;
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    if (path.parent_path().filename() == sweep_plan && std::filesystem::is_regular_file(path, error)) {
      add_once(input.missing, path);
      continue;
    }
    const std::filesystem::path folder = path.filename() == replay_name::json ? path.parent_path() : path;
    if (!std::filesystem::is_directory(folder.empty() ? "." : folder, error))
      throw std::runtime_error(fmt::format("{}: no such run folder, sweep or replay", path.string()));
    ReportInput found;
    search(folder.empty() ? "." : folder, deepest_search, found);
    for (const std::filesystem::path& run : found.runs) add_once(input.runs, run);
    for (const std::filesystem::path& replay : found.replays) add_once(input.replays, replay);
    for (const std::filesystem::path& planned : found.missing) add_once(input.missing, planned);
    if (found.runs.empty() && found.replays.empty())
      throw std::runtime_error(fmt::format(
          "{}: neither a run folder (with {}) nor a replay (with {}), nor a folder that holds such",
          path.string(), run_file::manifest, replay_name::json));
  }
  return input;
}

}  // namespace fp16lab::reports
