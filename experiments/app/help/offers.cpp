// What completion offers for the kinds of values that several options share.
#include <utility>

#include "experiments/app/arguments.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments {

Offer offer_words(std::vector<std::string> words) {
  return {.words = [words = std::move(words)] { return words; }};
}

Offer offer_names(std::span<const std::string_view> names) {
  return offer_words({names.begin(), names.end()});
}

Offer offer_files(std::vector<std::string> endings) { return {.folders = true, .files = std::move(endings)}; }

Offer offer_folders() { return {.folders = true}; }

Offer offer_runs(std::vector<std::string> dumps) {
  return {.folders = true, .runs = true, .files = std::move(dumps)};
}

Offer offer_configs(bool sweeps, bool trainings) {
  const auto names = [sweeps, trainings] {
    std::vector<std::string> found;
    for (const ShippedConfig& config : shipped_configs())
      if (config.is_sweep ? sweeps : trainings) found.push_back(config.path.stem().string());
    return found;
  };
  return {.words = names, .folders = true, .files = {".toml"}};
}

Offer offer_settings() {
  return {.words = [] {
    std::vector<std::string> settings;
    for (const ConfigKey& key : config_keys()) {
      settings.push_back(key.name + "=");
      std::vector<std::string> values = key.choices;
      if (key.type == ConfigType::boolean) values = {"true", "false"};
      for (const std::string& value : values) settings.push_back(key.name + "=" + value);
    }
    return settings;
  }};
}

Offer offer_policy_settings() {
  return {.words = [] {
    std::vector<std::string> settings;
    for (const ConfigKey& key : config_keys())
      if (key.parameter != nullptr) settings.push_back(std::string(key.parameter->name) + "=");
    return settings;
  }};
}

}  // namespace fp16lab::experiments
