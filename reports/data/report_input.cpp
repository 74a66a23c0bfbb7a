#include "reports/data/report_input.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <set>
#include <stdexcept>
#include <utility>

#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::reports {
namespace {

constexpr int deepest_search = 3;

/// Takes each file and folder once, whatever its paths are called.
class Search {
 public:
  /// Does the folder hold a run or a replay?
  bool add(const std::filesystem::path& folder, int depth) {
    const bool run = is_run_folder(folder);
    if (run) add_once(input_.runs, folder);
    const bool replay = is_file(folder / replay_name::json);
    if (replay) add_once(input_.replays, folder / replay_name::json);
    if (!run) add_plan_of(folder);
    bool any = run || replay;
    // Inside a run only its replays are looked for.
    if (depth == 0) return any;
    // A folder that may not be read holds nothing for us.
    for (const std::filesystem::path& path : entries_of(folder))
      if (is_folder(path) && (!run || is_file(path / replay_name::json)))
        any = add(path, run ? 0 : depth - 1) || any;
    return any;
  }

  void add_missing(const std::filesystem::path& planned) { add_once(input_.missing, planned); }

  /// What the plan of a sweep's folder names and the folder does not hold.
  void add_plan_of(const std::filesystem::path& folder) {
    for (const std::filesystem::path& planned : entries_of(folder / sweep_plan))
      if (planned.extension() == ".toml" && !is_run_folder(folder / planned.stem())) add_missing(planned);
  }

  ReportInput found() && { return std::move(input_); }

 private:
  void add_once(std::vector<std::filesystem::path>& list, const std::filesystem::path& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0 || taken_.emplace(file.st_dev, file.st_ino).second)
      list.push_back(path);
  }

  ReportInput input_;
  std::set<std::pair<dev_t, ino_t>> taken_;
};

}  // namespace

ReportInput find_report_input(std::span<const std::filesystem::path> paths) {
  if (paths.empty()) throw std::runtime_error("nothing to report on: no folder was given");
  Search search;
  std::vector<std::filesystem::path> others;          // hold neither a run nor a replay
  std::set<std::filesystem::path> folders_of_inputs;  // the folders of those that do
  for (const std::filesystem::path& path : paths) {
    if (path.parent_path().filename() == sweep_plan && is_file(path)) {
      search.add_missing(path);
      continue;
    }
    const std::filesystem::path named = path.filename() == replay_name::json ? path.parent_path() : path;
    const std::filesystem::path folder = named.empty() ? "." : named;
    if (is_folder(folder) && search.add(folder, deepest_search))
      folders_of_inputs.insert(path.parent_path());
    else
      others.push_back(path);
  }
  for (const std::filesystem::path& path : others) {
    const bool is_output =
        is_file(path) || path.filename() == run_file::figures || path.filename() == sweep_plan;
    if (!is_output || !folders_of_inputs.contains(path.parent_path()))
      throw std::runtime_error(
          is_folder(path)
              ? fmt::format(
                    "{}: neither a run folder (with {}) nor a replay (with {}), nor a folder that holds one",
                    path.string(), run_file::manifest, replay_name::json)
              : fmt::format("{}: no such run folder, sweep or replay", path.string()));
    if (path.filename() == sweep_plan) search.add_plan_of(path.parent_path());
  }
  return std::move(search).found();
}

}  // namespace fp16lab::reports
