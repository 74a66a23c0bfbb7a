#include "experiments/app/config/shipped_configs.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "numerics/files/disk/atomic_file.hpp"

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

}  // namespace

std::filesystem::path shipped_config(std::string_view file) {
  return as_typed(std::filesystem::path(FP16LAB_CONFIGS) / file);
}

std::vector<ShippedConfig> shipped_configs() {
  std::vector<ShippedConfig> configs;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(FP16LAB_CONFIGS, gone)) {
    if (entry.path().extension() != ".toml") continue;
    const Lines lines = read_lines(entry.path());
    ShippedConfig config{.path = as_typed(entry.path())};
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
