#include "experiments/app/config/shipped_configs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <vector>

#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/platform/own_place.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

std::filesystem::path as_typed(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path relative = std::filesystem::proximate(path, ignored);
  return ignored || relative.empty() || *relative.begin() == ".." ? path : relative;
}

std::string description_of(std::string_view line) {
  const std::size_t first = line.find_first_not_of("# ");
  return line.starts_with('#') && first != std::string_view::npos ? std::string(line.substr(first)) : "";
}

/// Where a relative path is looked for.
std::filesystem::path folder_of(const std::filesystem::path& given) {
  std::error_code gone;
  const std::filesystem::path whole = std::filesystem::absolute(given, gone);
  return (gone ? given : whole).parent_path();
}

/// The file in the same folder whose name is nearest to that of `given`; "" if none is near.
std::string nearest_sibling(const std::filesystem::path& given) {
  std::vector<std::string> names;
  const std::filesystem::path folder = given.has_parent_path() ? given.parent_path() : ".";
  for (const std::filesystem::path& path : entries_of(folder))
    if (path.extension() == ".toml") names.push_back(path.filename().string());
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view nearest = nearest_name(given.filename().string(), known);
  return nearest.empty() ? "" : std::filesystem::path(given).replace_filename(nearest).string();
}

/// Beside the program in the build tree, or where it is installed.
std::filesystem::path folder() { return first_beside_us({FP16LAB_CONFIGS, "../share/fp16lab/configs"}); }

}  // namespace

std::filesystem::path shipped_config(std::string_view file) { return as_typed(folder() / file); }

std::filesystem::path config_called(const std::filesystem::path& given) {
  std::error_code unreadable;
  if (given.empty() || std::filesystem::exists(given, unreadable) || unreadable) return given;
  if (!given.has_parent_path())
    for (const std::string& name : {given.string() + ".toml", given.string()})
      if (std::filesystem::path path = shipped_config(name);
          std::filesystem::is_regular_file(path, unreadable))
        return path;
  const std::string missing = fmt::format("--config {}: there is no such file", given.string());
  if (given.has_extension() || given.has_parent_path()) {
    if (const std::string name = given.stem().string();
        std::filesystem::is_regular_file(shipped_config(name + ".toml"), unreadable))
      throw CommandError(ExitCode::usage,
                         fmt::format("{}; fp16lab includes one of that name: -c {}", missing, name));
    if (const std::string sibling = nearest_sibling(given); !sibling.empty())
      throw CommandError(ExitCode::usage, fmt::format("{}; did you mean '{}'?", missing, sibling));
  }
  std::vector<std::string> names;
  for (const ShippedConfig& config : shipped_configs()) names.push_back(config.path.stem().string());
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw CommandError(ExitCode::usage,
                     fmt::format("{} in {}, and none of that name comes with fp16lab: {}", missing,
                                 folder_of(given).string(), known_are(given.stem().string(), known)));
}

std::vector<ShippedConfig> shipped_configs() {
  std::vector<ShippedConfig> configs;
  for (const std::filesystem::path& path : entries_of(folder())) {
    if (path.extension() != ".toml") continue;
    const Lines lines = read_lines(path);
    ShippedConfig config{.path = as_typed(path)};
    if (!lines.complete.empty()) config.description = description_of(lines.complete.front());
    config.is_sweep = std::any_of(lines.complete.begin(), lines.complete.end(),
                                  [](const std::string& line) { return line.starts_with("[[workload]]"); });
    configs.push_back(std::move(config));
  }
  std::sort(configs.begin(), configs.end(),
            [](const ShippedConfig& a, const ShippedConfig& b) { return a.path < b.path; });
  return configs;
}

}  // namespace fp16lab::experiments
