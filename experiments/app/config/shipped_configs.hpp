// The configurations that come with the program: experiments/configs/*.toml, installed in
// share/fp16lab/configs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments {

struct ShippedConfig {
  std::filesystem::path path;  ///< as -c takes it: relative where it is below the working directory
  bool is_sweep = false;       ///< has [[workload]] tables: for fp16lab sweep, else for fp16lab train
  std::string description{};   ///< the first comment line
};

/// "demo.toml" where it is, whatever the working directory is; as a path like ShippedConfig::path.
std::filesystem::path shipped_config(std::string_view file);

/// What -c means: `given` where there is such a file; else, of a bare name, the shipped configuration of that
/// name, with or without ".toml". CommandError(usage) for another bare name, telling those that there are,
/// and for a path whose file name is a shipped one's; another path is `given`, which then cannot be read.
std::filesystem::path config_called(const std::filesystem::path& given);

/// By name. Empty where they are gone.
std::vector<ShippedConfig> shipped_configs();

}  // namespace fp16lab::experiments
