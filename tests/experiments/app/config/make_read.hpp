// Makes a configuration one that reads a key, by what the key's own table says.
#pragma once

#include <algorithm>
#include <string>

#include "experiments/app/config/config.hpp"

namespace fp16lab::experiments::make_read {

inline const ConfigKey& key_named(std::string_view name) {
  return *std::ranges::find(all_config_keys(), name, &ConfigKey::name);
}

/// A value of the chooser with which the key is read.
inline std::string reading_value(const ReadWith& with) {
  if (!with.others) return with.values.front();
  if (with.key == "amp.level") return "O1";  // which every dialect has
  const ConfigKey& chooser = key_named(with.key);
  for (const std::string& choice : chooser.choices)
    if (std::ranges::find(with.values, choice) == with.values.end()) return choice;
  return chooser.type == ConfigType::real ? "0.5" : "2";
}

/// Settings with which a run reads the key, the choosers' own first. A parameter of loss-scale policies also
/// needs a policy that has it.
inline std::vector<std::string> settings_for(const ConfigKey& key) {
  std::vector<std::string> settings;
  for (const std::vector<ReadWith>& alternatives : key.readers)
    for (std::string& setting : settings_for(key_named(alternatives.front().key)))
      settings.push_back(std::move(setting));
  for (const std::vector<ReadWith>& alternatives : key.readers)
    settings.push_back(alternatives.front().key + "=" + reading_value(alternatives.front()));
  if (key.parameter != nullptr)
    for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
      if (policy.find(key.parameter->name) != nullptr) {
        settings.push_back("scaler.policy=" + std::string(policy.name));
        break;
      }
  return settings;
}

inline void make_read(RunConfig& config, const ConfigKey& key) {
  for (const std::string& setting : settings_for(key)) apply_setting(config, setting, "make_read");
}

}  // namespace fp16lab::experiments::make_read
