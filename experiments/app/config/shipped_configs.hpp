// The configurations that come with the sources: experiments/configs/*.toml.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments {

struct ShippedConfig {
  std::filesystem::path path;  ///< as -c takes it: relative where it lies below the working directory
  bool is_sweep = false;       ///< has [[workload]] tables: for fp16lab sweep, else for fp16lab train
  std::string description{};   ///< the first comment line
};

/// "demo.toml" where it lies, whatever the working directory is; as a path like ShippedConfig::path.
std::filesystem::path shipped_config(std::string_view file);

/// By name. Empty where the sources are gone.
std::vector<ShippedConfig> shipped_configs();

}  // namespace fp16lab::experiments
