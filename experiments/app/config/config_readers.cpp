// Which keys a run reads, what becomes of the others, and what --set makes of a configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "experiments/app/config/config.hpp"
#include "numerics/text/toml_text.hpp"

namespace fp16lab::experiments {
namespace {

const ConfigKey* find_named(std::string_view name) {
  const auto found = std::ranges::find(all_config_keys(), name, &ConfigKey::name);
  return found == all_config_keys().end() ? nullptr : &*found;
}

/// The key that a "key=value" sets; null for a value of [[model.layer]].
const ConfigKey* key_of(std::string_view setting) {
  std::string_view name = setting.substr(0, setting.find('='));
  name.remove_prefix(std::min(name.find_first_not_of(" \t"), name.size()));
  return find_named(name.substr(0, name.find_last_not_of(" \t") + 1));
}

/// The loss-scale policy that a run of this configuration has; null where its dialect does not have its
/// level.
const engine::amp::PolicyDescription* policy_of(RunConfig config) {
  try {
    resolve_names(config);
  } catch (const std::invalid_argument&) {
    return nullptr;
  }
  return &engine::amp::scale_policy(config.scaler.policy);
}

/// [optimizer.MODEL] says what [optimizer] does not say for both.
const ConfigKey& key_that_counts(const RunConfig& config, std::string_view name) {
  const ConfigKey& key = *find_named(name);
  if (!std::holds_alternative<std::monostate>(key.read(config))) return key;
  constexpr std::string_view section = "optimizer.";
  if (!name.starts_with(section)) return key;
  return *find_named(fmt::format("{}{}", section, name.substr(name.rfind('.') + 1)));
}

/// Text without quotes.
std::string plain_value(const RunConfig& config, const ConfigKey& key) {
  const ConfigValue value = key.read(config);
  const auto* const text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : value_text(config, key);
}

/// Empty if `with` holds, and the key that it names is read.
std::string why_not(const RunConfig& config, const ReadWith& with) {
  const ConfigKey& chooser = key_that_counts(config, with.key);
  if (std::string why = why_unread(config, chooser); !why.empty()) return why;
  const std::string value = plain_value(config, chooser);
  const bool named = std::ranges::find(with.values, value) != with.values.end();
  if (named != with.others) return {};
  std::vector<std::string> readers = with.values;
  if (with.others) {
    readers = chooser.choices;
    std::erase_if(readers, [&](const std::string& choice) {
      return std::ranges::find(with.values, choice) != with.values.end();
    });
    if (readers.empty()) readers.emplace_back("another value");
  } else if (chooser.choices.empty()) {
    for (std::string& reader : readers) reader = fmt::format("{} = {}", chooser.name, reader);
  }
  return fmt::format("{} = {} does not read it; {} {}", chooser.name, value, fmt::join(readers, ", "),
                     readers.size() == 1 ? "does" : "do");
}

std::string why_unread_by(const RunConfig& config, const std::vector<std::vector<ReadWith>>& readers) {
  for (const std::vector<ReadWith>& alternatives : readers) {
    std::string why;
    for (const ReadWith& with : alternatives) {
      const std::string this_one = why_not(config, with);
      if (this_one.empty()) {
        why.clear();
        break;
      }
      if (why.empty())
        why = this_one;
      else
        why += fmt::format(", and so does any {}", with.key);
    }
    if (!why.empty()) return why;
  }
  return {};
}

const RunConfig& defaults() {
  static const RunConfig config;
  return config;
}

/// What the configuration says and does not have by default: its keys, and parameters of loss-scale policies,
/// which
/// read as nothing where the policy does not have them.
std::vector<const ConfigKey*> keys_set(const RunConfig& config) {
  std::vector<const ConfigKey*> keys;
  for (const ConfigKey& key : all_config_keys())
    if (key.parameter != nullptr ? config.scaler.parameters.contains(std::string(key.parameter->name))
                                 : key.read(config) != key.read(defaults()))
      keys.push_back(&key);
  return keys;
}

/// "optimizer.nesterov = true".
std::string said(const RunConfig& config, const ConfigKey& key) {
  if (key.parameter == nullptr) return fmt::format("{} = {}", key.name, value_text(config, key));
  return fmt::format("{} = {}", key.name,
                     real_text(config.scaler.parameters.at(std::string(key.parameter->name))));
}

}  // namespace

std::vector<KeyDifference> key_differences(const RunConfig& a, const RunConfig& b) {
  std::vector<KeyDifference> all;
  for (const ConfigKey& key : all_config_keys()) {
    const auto of = [&key](const RunConfig& config) {
      return is_read(config, key) ? value_text(config, key) : std::string();
    };
    KeyDifference difference{.key = &key, .a = of(a), .b = of(b)};
    if (difference.a != difference.b) all.push_back(std::move(difference));
  }
  return all;
}

std::string readers_text(const ConfigKey& key) {
  std::vector<std::string> clauses;
  for (const std::vector<ReadWith>& alternatives : key.readers) {
    std::vector<std::string> texts;
    for (const ReadWith& with : alternatives)
      texts.push_back(
          fmt::format("{} {} {}", with.key, with.others ? "other than" : "=", fmt::join(with.values, ", ")));
    clauses.push_back(fmt::format("{}", fmt::join(texts, ", or ")));
  }
  return fmt::format("{}", fmt::join(clauses, "; "));
}

std::string why_unread(const RunConfig& config, const ConfigKey& key) {
  if (key.parameter != nullptr) {
    const engine::amp::PolicyDescription* const policy = policy_of(config);
    try {
      if (policy != nullptr) engine::amp::require_parameter(policy, key.parameter->name);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }
  std::string why = why_unread_by(config, key.readers);
  constexpr std::string_view section = "optimizer.";
  const std::string_view name = key.name;
  const bool shared = name.starts_with(section) && name.find('.', section.size()) == std::string_view::npos;
  if (why.empty() || !shared) return why;
  for (const auto& [model, fields] : config.own_optimizers) {
    const std::string own = fmt::format("{}{}.{}", section, model, name.substr(section.size()));
    if (const ConfigKey* const of_model = find_named(own); of_model != nullptr && is_read(config, *of_model))
      return {};
  }
  return why;
}

bool is_read(const RunConfig& config, const ConfigKey& key) { return why_unread(config, key).empty(); }

std::vector<std::string> leave_out_unread(RunConfig& config) {
  std::vector<const ConfigKey*> unread;
  std::vector<std::string> sentences;
  for (const ConfigKey* const key : keys_set(config)) {
    const std::string why = why_unread(config, *key);
    if (why.empty()) continue;
    unread.push_back(key);
    sentences.push_back(
        fmt::format("{} is left out: {}", said(config, *key), why.substr(0, why.find_first_of(":;"))));
  }
  for (const ConfigKey* const key : unread)
    if (key->parameter != nullptr)
      config.scaler.parameters.erase(std::string(key->parameter->name));
    else
      key->write(config, key->read(defaults()));
  return sentences;
}

std::string why_unread(const RunConfig& config, std::string_view setting) {
  const ConfigKey* const key = key_of(setting);
  return key == nullptr ? std::string() : why_unread(config, *key);
}

std::vector<std::string> settings_unread(const RunConfig& config) {
  std::vector<std::string> settings;
  for (const ConfigKey* const key : keys_set(config))
    if (!is_read(config, *key)) settings.push_back(said(config, *key));
  return settings;
}

void require_read(const std::vector<std::string>& settings, const RunConfig& config, std::string_view where) {
  std::string first;
  std::vector<std::string> others;
  for (const std::string& setting : settings) {
    const std::string why = why_unread(config, setting);
    if (why.empty()) continue;
    if (first.empty())
      first = fmt::format("{}: {}", setting, why);
    else
      others.push_back(setting);
  }
  if (first.empty()) return;
  if (!others.empty()) first += fmt::format(" (nothing reads {} either)", fmt::join(others, ", "));
  refuse_config(where, first);
}

std::vector<std::string> apply_settings(RunConfig& config, const std::vector<std::string>& settings,
                                        std::string_view where) {
  const auto before = config.scaler.parameters;
  const engine::amp::PolicyDescription* const meant = before.empty() ? nullptr : policy_of(config);
  for (const std::string& setting : settings) apply_setting(config, setting, where);
  const engine::amp::PolicyDescription* const chosen = before.empty() ? nullptr : policy_of(config);
  if (meant == chosen || meant == nullptr || chosen == nullptr) return {};
  std::vector<std::string> gone;
  for (const auto& [name, value] : before) {
    const std::string key = "scaler." + name;
    const auto gives = [&key](const std::string& setting) {
      const ConfigKey* const set = key_of(setting);
      return set != nullptr && set->name == key;
    };
    if (std::ranges::any_of(settings, gives)) continue;
    if (meant->find(name) == nullptr && chosen->find(name) != nullptr)
      continue;  // whom else was it meant for?
    if (chosen->find(name) != nullptr)
      gone.push_back(fmt::format("{} = {} was meant for the policy {}; {} uses its own default", key,
                                 real_text(value), meant->name, chosen->name));
    config.scaler.parameters.erase(name);
  }
  return gone;
}

}  // namespace fp16lab::experiments
