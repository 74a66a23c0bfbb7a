#include "experiments/app/config/run_identity.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "experiments/app/exit_code.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::experiments {
namespace {

/// What a run of `config` would have without a word about the key.
std::string default_text(const RunConfig& config, const ConfigKey& key) {
  RunConfig plain;
  plain.scaler.policy = config.scaler.policy;  // whose parameters have its own defaults
  return value_text(plain, key);
}

std::optional<RunConfig> read_config(const std::string& toml) {
  try {
    RunConfig config = parse_config(toml, "a run folder's configuration");
    leave_out_unread(config);
    return config;
  } catch (const CommandError&) {
    return std::nullopt;
  }
}

}  // namespace

RunIdentity identity_of(RunConfig config) {
  try {
    resolve_names(config);
  } catch (const std::invalid_argument&) {
    config.scaler.policy = "none";
  }
  leave_out_unread(config);
  const reports::FlatConfig all = reports::flatten_toml(to_toml(config), "the run's configuration");
  RunIdentity::Keys workload, configuration;
  for (const ConfigKey& key : all_config_keys()) {
    if (key.role != KeyRole::workload && key.role != KeyRole::configuration) continue;
    const auto found = all.find(key.name);
    if (found == all.end() || key.name == "train.seed" ||
        value_text(config, key) == default_text(config, key))
      continue;
    (key.role == KeyRole::workload ? workload : configuration).insert(*found);
  }
  for (const auto& [key, value] : all)
    if (key.starts_with("model.layer.") || key.starts_with("model.block.")) workload.emplace(key, value);
  return fp16lab::identity_of(all, std::move(workload), std::move(configuration));
}

reports::ToldRun told(const Manifest& manifest) {
  if (!is_watched(manifest))
    if (const std::optional<RunConfig> config = read_config(manifest.config))
      return {to_toml(*config), manifest.identity ? *manifest.identity : identity_of(*config)};
  return {manifest.config, manifest.identity ? *manifest.identity
                                             : reports::identity_by_sections(
                                                   reports::flatten_toml(manifest.config, "config"))};
}

}  // namespace fp16lab::experiments
