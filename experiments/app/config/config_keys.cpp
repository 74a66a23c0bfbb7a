// The one table of configuration keys: all sections in their order, and what the values of a key may be.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/two_models.hpp"
#include "experiments/app/config/config_key_rows.hpp"

namespace fp16lab::experiments {
namespace {

std::string bounds_text(const ConfigRange& range) {
  const auto number = [](double x) { return fmt::format("{}", x); };
  const bool unbounded = std::isinf(range.maximum) || range.maximum == keys::largest_integer;
  if (range.minimum == 0 && range.minimum_excluded && unbounded) return "above 0";
  if (unbounded) return number(range.minimum) + (range.minimum_excluded ? " excluded, and more" : " or more");
  return fmt::format("from {}{} to {}{}", number(range.minimum), range.minimum_excluded ? " (excluded)" : "",
                     number(range.maximum), range.maximum_excluded ? " (excluded)" : "");
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) {
    if (!text.empty()) text += ", ";
    text += choice.empty() ? "\"\"" : choice;
  }
  return text;
}

/// What a model's own section means by a field that it does not say: the epsilon of its own rule, if that has
/// one and [optimizer] gives none either; else nothing.
ConfigValue unsaid(const RunConfig& config, const std::map<std::string, ConfigValue>& said,
                   std::string_view field) {
  const auto rule = said.find("name");
  if (field != "epsilon" || config.optimizer.epsilon || rule == said.end()) return {};
  using engine::optim::Algorithm;
  const Algorithm name = *enumerator_called<Algorithm>(std::get<std::string>(rule->second));
  return name == Algorithm::sgd ? ConfigValue() : row_of(name).epsilon;
}

/// The keys of [optimizer.MODEL].
void add_optimizer_of(std::string_view method, std::string_view model, std::vector<ConfigKey>& all) {
  constexpr std::string_view section = "optimizer.";
  for (const ConfigKey& base : keys::of_optimizer()) {
    const std::string field = base.name.substr(section.size());
    if (field == "kahan" || field == "loss_scale") continue;
    ConfigKey own = base;
    own.name = fmt::format("{}{}.{}", section, model, field);
    own.read = [model = std::string(model), field](const RunConfig& config) -> ConfigValue {
      const auto said = config.own_optimizers.find(model);
      if (said == config.own_optimizers.end()) return {};
      const auto value = said->second.find(field);
      return value == said->second.end() ? unsaid(config, said->second, field) : value->second;
    };
    own.write = [model = std::string(model), field](RunConfig& config, const ConfigValue& value) {
      if (std::holds_alternative<std::monostate>(value))
        config.own_optimizers[model].erase(field);
      else
        config.own_optimizers[model][field] = value;
    };
    for (std::vector<ReadWith>& alternatives : own.readers)
      for (ReadWith& with : alternatives)
        if (with.key.starts_with(section))
          with.key = fmt::format("{}{}.{}", section, model, with.key.substr(section.size()));
    all.push_back(std::move(own).read_with("train.method", {std::string(method)}));
  }
}

/// The keys of the table, and how many of them are in config_keys().
struct KeyTable {
  std::vector<ConfigKey> all;
  std::size_t listed = 0;
};

const KeyTable& key_table() {
  static const KeyTable table = [] {
    KeyTable made;
    std::vector<ConfigKey>& all = made.all;
    for (const auto& section : {keys::of_model, keys::of_data, keys::of_train, keys::of_optimizer,
                                keys::of_schedule, keys::of_amp, keys::of_scaler, keys::of_backend,
                                keys::of_parallel, keys::of_observe, keys::of_checkpoint, keys::of_report})
      std::ranges::move(section(), std::back_inserter(all));
    made.listed = all.size();
    for (const std::string_view model : engine::TwoModels::names) add_optimizer_of("two_models", model, all);
    for (const std::string_view model : engine::AdversarialTraining::names)
      add_optimizer_of("gan", model, all);
    return made;
  }();
  return table;
}

}  // namespace

ConfigKey ConfigKey::as(KeyRole what) && {
  role = what;
  return std::move(*this);
}

ConfigKey ConfigKey::read_with(std::string key, std::vector<std::string> values) && {
  return std::move(*this).read_by({{.key = std::move(key), .values = std::move(values)}});
}

ConfigKey ConfigKey::read_unless(std::string key, std::vector<std::string> values) && {
  return std::move(*this).read_by({{.key = std::move(key), .values = std::move(values), .others = true}});
}

ConfigKey ConfigKey::read_by(std::vector<ReadWith> alternatives) && {
  readers.push_back(std::move(alternatives));
  return std::move(*this);
}

std::span<const ConfigKey> config_keys() { return all_config_keys().first(key_table().listed); }

std::span<const ConfigKey> all_config_keys() { return key_table().all; }

std::string expectation_of(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::text:
      return key.choices.empty() ? "text" : "one of " + choices_text(key.choices);
    case ConfigType::integer:
      return "an integer, " + bounds_text(key.range);
    case ConfigType::real:
      return "a number, " + bounds_text(key.range);
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integers:
      return "an integer or a list of them, each " + bounds_text(key.range);
    case ConfigType::texts:
      return key.choices.empty() ? "a list of texts, none of them empty"
                                 : "a list, each one of " + choices_text(key.choices);
    case ConfigType::parameter:
      return engine::amp::expectation_of(*key.parameter);
  }
  throw std::logic_error("unknown type of key");
}

}  // namespace fp16lab::experiments
