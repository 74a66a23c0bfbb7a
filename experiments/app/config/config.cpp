#include "experiments/app/config/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/amp/policy.hpp"
#include "engine/amp/unmet_expectation.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/config/framework_names.hpp"
#include "experiments/app/config/network_rows.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/fp32_range.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"
#include "numerics/text/toml_text.hpp"

namespace fp16lab::experiments {
namespace {

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  return names;
}

/// What comes before a key's last point: "train", "report.margin".
std::string section_of(const ConfigKey& key) { return key.name.substr(0, key.name.rfind('.')); }

std::vector<std::string> known_sections() {
  std::vector<std::string> sections;
  for (const ConfigKey& key : all_config_keys()) {
    std::string section = section_of(key);
    if (sections.empty() || sections.back() != section) sections.push_back(std::move(section));
  }
  return sections;
}

/// "report" is one, too: its keys are in [report.margin].
bool is_section(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  const auto holds = [&prefix](const ConfigKey& key) { return key.name.starts_with(prefix); };
  return std::ranges::any_of(all_config_keys(), holds);
}

std::string_view field_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// "optimizer.lr" for "train.lr": the only key that has this field, which is in another section. Nothing
/// where a field of the section that was named is nearly that one.
std::string_view key_of_another_section(std::string_view name) {
  const std::string_view field = field_of(name), section = name.substr(0, name.size() - field.size());
  std::vector<std::string_view> same_field, neighbours;
  for (const ConfigKey& key : config_keys()) {
    if (field_of(key.name) == field) same_field.push_back(key.name);
    if (std::string_view(key.name).starts_with(section)) neighbours.push_back(field_of(key.name));
  }
  return same_field.size() == 1 && nearest_name(field, neighbours).empty() ? same_field.front()
                                                                           : std::string_view();
}

const ConfigKey& find_key(std::string_view name, std::string_view where) {
  for (const ConfigKey& key : all_config_keys())
    if (key.name == name) return key;
  // A section in the place of a key ("[train]" written as "train = 3") deserves its own words.
  if (is_section(name)) refuse_config(where, fmt::format("'{}' is a section, not a key", name));
  // "steps" for "train.steps".
  for (const ConfigKey& key : config_keys())
    if (key.name.ends_with("." + std::string(name)))
      refuse_config(where, fmt::format("unknown key '{}'; did you mean '{}'?", name, key.name));
  if (const FrameworkName* known = framework_name(name))
    refuse_config(where,
                  fmt::format("unknown key '{}'; {} of {} is {} here{}", name, known->name, known->frameworks,
                              known->key, known->note.empty() ? "" : fmt::format(" ({})", known->note)));
  if (const std::string_view key = key_of_another_section(name); !key.empty())
    refuse_config(where, fmt::format("unknown key '{}'; did you mean '{}'?", name, key));
  refuse_config(where, fmt::format("unknown key '{}'{}", name, did_you_mean(name, known_names())));
}

bool in_range(double x, const ConfigRange& range) {
  return std::isfinite(x) && (range.minimum_excluded ? x > range.minimum : x >= range.minimum) &&
         (range.maximum_excluded ? x < range.maximum : x <= range.maximum);
}

[[noreturn]] void fail_value(const ConfigKey& key, const std::string& shown, std::string_view where) {
  refuse_config(where, fmt::format("{} = {}: expected {}", key.name, shown, expectation_of(key)));
}

/// `value`, which was given as `shown`, if it is one that the key takes.
double checked_real(const ConfigKey& key, double value, const std::string& shown, std::string_view where) {
  if (key.parameter != nullptr) {
    if (const std::string expected = engine::amp::unmet_expectation(*key.parameter, value); !expected.empty())
      refuse_config(where, fmt::format("{} = {}: expected {}", key.name, shown, expected));
    return value;
  }
  if (!in_range(value, key.range)) fail_value(key, shown, where);
  if (key.range.fp32 &&
      !(fp32_holds(value) && in_range(static_cast<double>(static_cast<float>(value)), key.range)))
    refuse_config(where, fmt::format("{} = {}: expected {}, also in FP32, which holds 2^-149 to "
                                     "3.4028235e+38 and would turn it into {}",
                                     key.name, shown, expectation_of(key), static_cast<float>(value)));
  return value;
}

bool has_choice(const ConfigKey& key, std::string_view choice) {
  return std::find(key.choices.begin(), key.choices.end(), choice) != key.choices.end();
}

std::string checked_text(const ConfigKey& key, const std::string& text, std::string_view where) {
  require_printable(text, key.name, where);
  if (key.choices.empty()) return text;
  for (const std::string& choice : key.choices)
    if (equal_but_for_case(choice, text)) return choice;
  refuse_config(where, fmt::format("{} = \"{}\": expected {}{}", key.name, text, expectation_of(key),
                                   did_you_mean(text, key.choices)));
}

/// TOML has the type that the parameter says; reals may be written as integers.
double parameter_of(const ConfigKey& key, const toml::node& node, std::string_view where) {
  using Kind = engine::amp::PolicyParameter::Kind;
  double value = 0;
  if (key.parameter->kind == Kind::boolean) {
    if (!node.is_boolean()) fail_value(key, toml_text(node), where);
    value = **node.as_boolean() ? 1.0 : 0.0;
  } else if (key.parameter->kind == Kind::integer ? node.is_integer() : node.is_number()) {
    value = *node.value<double>();
  } else {
    fail_value(key, toml_text(node), where);
  }
  return checked_real(key, value, toml_text(node), where);
}

/// `node` as a value of the key's type, checked; integers serve as real numbers.
ConfigValue value_of(const ConfigKey& key, const toml::node& node, std::string_view where) {
  const auto require = [&](bool right) {
    if (!right) fail_value(key, toml_text(node), where);
  };
  const auto integer_of = [&](const toml::node& item) {
    const auto value = item.value_exact<std::int64_t>();
    if (value && *value > largest_count)
      refuse_config(where, fmt::format("{} = {}: expected integers up to {}", key.name, toml_text(node),
                                       largest_count));
    require(value && in_range(static_cast<double>(*value), key.range));
    return *value;
  };
  switch (key.type) {
    case ConfigType::text:
      if (node.is_boolean() && has_choice(key, "true"))
        return std::string(**node.as_boolean() ? "true" : "false");
      require(node.is_string());
      return checked_text(key, **node.as_string(), where);
    case ConfigType::integer:
      return integer_of(node);
    case ConfigType::real:
      require(node.is_number());
      return checked_real(key, *node.value<double>(), toml_text(node), where);
    case ConfigType::boolean:
      require(node.is_boolean());
      return **node.as_boolean();
    case ConfigType::integers: {
      if (node.is_integer()) return std::vector<std::int64_t>{integer_of(node)};
      require(node.is_array());
      std::vector<std::int64_t> values;
      for (const toml::node& item : *node.as_array()) values.push_back(integer_of(item));
      return values;
    }
    case ConfigType::texts: {
      require(node.is_array());
      std::vector<std::string> values;
      for (const toml::node& item : *node.as_array()) {
        require(item.is_string() && !item.as_string()->get().empty());
        values.push_back(checked_text(key, item.as_string()->get(), where));
      }
      return values;
    }
    case ConfigType::parameter:
      return parameter_of(key, node, where);
  }
  throw std::logic_error("unknown type of key");
}

toml::table parse_toml(std::string_view text, std::string_view source) {
  if (const std::optional<std::size_t> line = too_deep_in_toml(text))
    refuse_config(fmt::format("{}:{}", source, *line), fmt::format("nested deeper than {}", deepest_nesting));
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    if (what.find("inline table") != std::string::npos)
      what += "; an inline table must be on one line, a [[table]] has room for more";
    refuse_config(fmt::format("{}:{}", source, error.source().begin.line), what);
  }
}

void read_table(RunConfig& config, const toml::table& table, const std::string& prefix,
                std::string_view source) {
  for (const auto& [name, node] : table) {
    const std::string full =
        prefix.empty() ? std::string(name.str()) : prefix + "." + std::string(name.str());
    const std::string where = fmt::format("{}:{}", source, name.source().begin.line);
    if (full == "model.layer" || full == "model.block") {
      continue;  // read_network_rows
    } else if (full == "backend.pins" && node.value<std::string_view>() == "") {
      continue;  // older builds wrote this key, which named no file so
    } else if (!node.is_table()) {
      const ConfigKey& key = find_key(full, where);
      key.write(config, value_of(key, node, where));
    } else {
      if (!is_section(full))
        refuse_config(where,
                      fmt::format("unknown section '{}'{}", full, did_you_mean(full, known_sections())));
      read_table(config, *node.as_table(), full, source);
    }
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// "add, relu": the short form of ["add", "relu"]; nothing at all is an empty list.
std::vector<std::string> split_list(const ConfigKey& key, std::string_view text, std::string_view where) {
  std::vector<std::string> items;
  if (text.empty()) return items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = trimmed(text.substr(begin, comma - begin));
    if (item.empty() || item.find_first_of("\"'[]") != std::string_view::npos)
      fail_value(key, std::string(text), where);
    items.push_back(checked_text(key, std::string(item), where));
    begin = comma + 1;
  }
  return items;
}

}  // namespace

std::string toml_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (result += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + "\"";
}

void refuse_config(std::string_view where, const std::string& what) {
  std::string message = fmt::format("{}: {}", where, what);
  std::replace(message.begin(), message.end(), '\n', ' ');  // values that are shown may span lines
  throw CommandError(ExitCode::usage, printable(message));
}

void require_printable(std::string_view text, std::string_view key, std::string_view where) {
  if (!is_printable(text))
    refuse_config(where,
                  fmt::format("{} = \"{}\": expected text without control characters", key, printable(text)));
}

bool RunConfig::operator==(const RunConfig& other) const {
  const auto same = [&](const ConfigKey& key) {
    const bool read = is_read(*this, key);
    return read == is_read(other, key) && (!read || key.read(*this) == key.read(other));
  };
  return model.rows == other.model.rows && data.test_subset_is_set == other.data.test_subset_is_set &&
         std::ranges::all_of(all_config_keys(), same) &&
         (scaler.policy != automatic_policy || scaler.parameters == other.scaler.parameters);
}

RunConfig parse_config(std::string_view toml, std::string_view source) {
  RunConfig config;
  const toml::table root = parse_toml(toml, source);
  for (const char* const table : {"workload", "variant"})
    if (root.get(table) != nullptr && root.get(table)->is_array_of_tables())
      refuse_config(source, "this is a sweep: " + own_command({"sweep", "-c", std::string(source)}));
  read_table(config, root, "", source);
  const toml::table* const model = root.get_as<toml::table>("model");
  if (model != nullptr && (model->contains("layer") || model->contains("block")))
    config.model.rows = read_network_rows(*model, source);
  return config;
}

RunConfig load_config(const std::filesystem::path& path, NamedHow named) {
  std::string text;
  try {
    text = read_file(path, longest::document, named);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("--config: {}", printable(error.what())));
  }
  return parse_config(text, path.string());
}

void resolve_data_path(RunConfig& config, const std::filesystem::path& folder) {
  if (!config.data.path.empty())
    config.data.path = std::filesystem::absolute(folder / config.data.path).lexically_normal().string();
}

void apply_setting(RunConfig& config, std::string_view setting, std::string_view where) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0)
    refuse_config(where, fmt::format("'{}': expected key=value, such as train.seed=2", setting));
  const std::string_view value = trimmed(setting.substr(equals + 1)),
                         name = trimmed(setting.substr(0, equals));
  if (name.starts_with("model.layer.") || name.starts_with("model.block."))
    return set_network_value(config.model.rows, name, value, where);
  const ConfigKey& key = find_key(name, where);
  if (key.name == "data.test_subset") config.data.test_subset_is_set = true;

  if (key.type == ConfigType::text && !value.starts_with('"') && !value.starts_with('\'')) {
    key.write(config, checked_text(key, std::string(value), where));
    return;
  }
  if (key.type == ConfigType::texts && !value.starts_with('[')) {
    key.write(config, split_list(key, value, where));
    return;
  }
  using Kind = engine::amp::PolicyParameter::Kind;
  const bool is_real = key.type == ConfigType::real ||
                       (key.type == ConfigType::parameter && key.parameter->kind == Kind::real);
  if (is_real && value.starts_with("2^")) {
    double power = 0;
    try {
      power = parse_number(value).value.to_double();
    } catch (const std::invalid_argument&) {
      fail_value(key, std::string(value), where);
    }
    key.write(config, checked_real(key, power, std::string(value), where));
    return;
  }
  toml::table table;
  if (too_deep_in_toml(value)) fail_value(key, std::string(value), where);
  try {
    table = toml::parse(fmt::format("value = {}", value));
  } catch (const toml::parse_error&) {
    fail_value(key, std::string(value), where);
  }
  if (table.size() != 1) fail_value(key, std::string(value), where);
  key.write(config, value_of(key, *table.get("value"), where));
}

void resolve_names(RunConfig& config) {
  std::string& tensor_core = config.backend.tensor_core;
  if (tensor_core != "auto") {
    const std::span<const std::string_view> generations = generations_of(tensor_core);
    if (generations.empty()) tensor_core_model(tensor_core);  // refuses
    if (generations.size() > 1)
      for (const std::optional<DType> fp8 : {config.amp.fp8_operands, config.amp.fp8_gradients})
        if (fp8) tensor_core_model(tensor_core, *fp8);  // refuses what has two answers
    tensor_core = generations.front();
  }
  if (config.scaler.policy != automatic_policy) return;
  const engine::amp::LevelRules& rules = engine::amp::level_rules(config.amp.dialect, config.amp.level);
  const bool tf32 = config.amp.dtype == DType::tf32;  // FP32's range: nothing to scale for
  config.scaler.policy = rules.brings_scaler && !tf32 ? rules.scaler : "none";
}

void resolve_names(RunConfig& config, std::string_view where) {
  try {
    resolve_names(config);
  } catch (const std::invalid_argument& error) {
    refuse_config(where, error.what());
  }
}

std::string value_text(const RunConfig& config, const ConfigKey& key) {
  const ConfigValue value = key.read(config);
  if (std::holds_alternative<std::monostate>(value)) return {};
  if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
    return list->size() == 1 ? fmt::format("{}", list->front()) : fmt::format("{}", *list);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    std::string list;
    for (const std::string& item : *texts) list += (list.empty() ? "" : ", ") + toml_string(item);
    return "[" + list + "]";
  }
  const double real = std::get<double>(value);
  if (key.parameter != nullptr) {
    using Kind = engine::amp::PolicyParameter::Kind;
    if (key.parameter->kind == Kind::boolean) return real != 0 ? "true" : "false";
    if (key.parameter->kind == Kind::integer) return fmt::format("{:.0f}", real);
  }
  return real_text(real);
}

std::string to_toml(const RunConfig& config) {
  std::string text;
  std::string section;
  for (const ConfigKey& key : all_config_keys()) {
    const std::string value = value_text(config, key);
    if (value.empty() || !is_read(config, key)) continue;
    if (section_of(key) != section) {
      if (section == "model") text += network_toml(config.model.rows);
      section = section_of(key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", key.name.substr(section.size() + 1), value);
  }
  return text;
}

}  // namespace fp16lab::experiments
