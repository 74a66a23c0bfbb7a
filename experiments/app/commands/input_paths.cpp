#include "experiments/app/commands/input_paths.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <set>
#include <system_error>

#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/folder.hpp"

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

}  // namespace

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

}  // namespace fp16lab::experiments
