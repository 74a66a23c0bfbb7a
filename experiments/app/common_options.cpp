#include "experiments/app/common_options.hpp"

namespace fp16lab::experiments {

RunConfig resolve_config(const CommonOptions& common) { return resolve_config(common, RunConfig{}); }

RunConfig resolve_config(const CommonOptions& common, const RunConfig& base) {
  const RunConfig below = common.config.empty() ? base : load_config(common.config);
  const std::string source = common.config.empty() ? "configuration" : common.config.string();
  RunConfig config = below;
  for (const std::string& setting : common.set) apply_setting(config, setting, "--set");
  if (common.seed) config.train.seed = *common.seed;
  resolve_scaler_policy(config, source);
  require_policy_parameters(below, config, source);
  require_policy_parameters(common.set, config, "--set");
  validate_config(config, source);
  return config;
}

}  // namespace fp16lab::experiments
