#include "experiments/app/config/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "engine/amp/policy.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/config/run_options.hpp"
#include "experiments/app/config/workloads.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/printable_text.hpp"

namespace fp16lab::experiments {
namespace {

/// Of scaler.policy, until resolve_scaler_policy.
constexpr std::string_view automatic = "auto";

[[noreturn]] void fail(std::string_view where, const std::string& what) {
  std::string message = fmt::format("{}: {}", where, what);
  std::replace(message.begin(), message.end(), '\n', ' ');  // values that are shown may span lines
  throw CommandError(ExitCode::usage, printable(message));
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  return names;
}

/// What stands before a key's last point: "train", "report.margin".
std::string section_of(const ConfigKey& key) { return key.name.substr(0, key.name.rfind('.')); }

std::vector<std::string> known_sections() {
  std::vector<std::string> sections;
  for (const ConfigKey& key : config_keys()) {
    std::string section = section_of(key);
    if (sections.empty() || sections.back() != section) sections.push_back(std::move(section));
  }
  return sections;
}

/// "report" is one, too: its keys stand in [report.margin].
bool is_section(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  const auto holds = [&prefix](const ConfigKey& key) { return key.name.starts_with(prefix); };
  return std::any_of(config_keys().begin(), config_keys().end(), holds);
}

const ConfigKey& find_key(std::string_view name, std::string_view where) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return key;
  // A section in the place of a key ("[train]" written as "train = 3") deserves its own words.
  if (is_section(name)) fail(where, fmt::format("'{}' is a section, not a key", name));
  fail(where, fmt::format("unknown key '{}'{}", name, did_you_mean(name, known_names())));
}

bool in_range(double x, const ConfigRange& range) {
  return std::isfinite(x) && (range.minimum_excluded ? x > range.minimum : x >= range.minimum) &&
         (range.maximum_excluded ? x < range.maximum : x <= range.maximum);
}

[[noreturn]] void fail_value(const ConfigKey& key, const std::string& shown, std::string_view where) {
  fail(where, fmt::format("{} = {}: expected {}", key.name, shown, expectation_of(key)));
}

bool has_choice(const ConfigKey& key, std::string_view choice) {
  return std::find(key.choices.begin(), key.choices.end(), choice) != key.choices.end();
}

void assign_text(const ConfigKey& key, std::string& field, const std::string& text, std::string_view where) {
  if (!key.choices.empty() && !has_choice(key, text))
    fail(where, fmt::format("{} = \"{}\": expected {}{}", key.name, text, expectation_of(key),
                            did_you_mean(text, key.choices)));
  field = text;
}

/// TOML has the type that the parameter says; reals may be written as integers.
void assign_parameter(const ConfigKey& key, std::optional<double>& field, const toml::node& node,
                      const std::string& shown, std::string_view where) {
  using Kind = engine::amp::PolicyParameter::Kind;
  double value = 0;
  if (key.parameter->kind == Kind::boolean) {
    if (!node.is_boolean()) fail_value(key, shown, where);
    value = **node.as_boolean() ? 1.0 : 0.0;
  } else if (key.parameter->kind == Kind::integer ? node.is_integer() : node.is_number()) {
    value = *node.value<double>();
  } else {
    fail_value(key, shown, where);
  }
  try {
    engine::amp::check_value(*key.parameter, value);
  } catch (const std::invalid_argument&) {
    fail_value(key, shown, where);
  }
  field = value;
}

/// `node` as the key's type, checked; integers serve as real numbers.
void assign(RunConfig& config, const ConfigKey& key, const toml::node& node, std::string_view where) {
  const auto shown = [&node] {
    std::ostringstream text;
    node.visit([&text](const auto& value) { text << value; });
    return text.str();
  };
  const auto integer_of = [&](const toml::node& item) {
    const auto value = item.value_exact<std::int64_t>();
    if (value && *value > largest_count)
      fail(where, fmt::format("{} = {}: expected integers up to {}", key.name, shown(), largest_count));
    if (!value || !in_range(static_cast<double>(*value), key.range)) fail_value(key, shown(), where);
    return *value;
  };
  const ConfigField field = key.field(config);
  if (auto* const* text = std::get_if<std::string*>(&field)) {
    if (node.is_boolean() && has_choice(key, "true")) {
      assign_text(key, **text, **node.as_boolean() ? "true" : "false", where);
      return;
    }
    if (!node.is_string()) fail_value(key, shown(), where);
    assign_text(key, **text, **node.as_string(), where);
  } else if (auto* const* integer = std::get_if<std::int64_t*>(&field)) {
    **integer = integer_of(node);
  } else if (auto* const* real = std::get_if<double*>(&field)) {
    if (!node.is_number() || !in_range(*node.value<double>(), key.range)) fail_value(key, shown(), where);
    **real = *node.value<double>();
  } else if (auto* const* parameter = std::get_if<std::optional<double>*>(&field)) {
    assign_parameter(key, **parameter, node, shown(), where);
  } else if (auto* const* boolean = std::get_if<bool*>(&field)) {
    if (!node.is_boolean()) fail_value(key, shown(), where);
    **boolean = **node.as_boolean();
  } else if (auto* const* texts = std::get_if<std::vector<std::string>*>(&field)) {
    if (!node.is_array()) fail_value(key, shown(), where);
    std::vector<std::string> values;
    for (const toml::node& item : *node.as_array()) {
      if (!item.is_string() || item.as_string()->get().empty()) fail_value(key, shown(), where);
      values.push_back(item.as_string()->get());
    }
    **texts = std::move(values);
  } else {
    std::vector<std::int64_t>& list = *std::get<std::vector<std::int64_t>*>(field);
    if (!node.is_array()) fail_value(key, shown(), where);
    std::vector<std::int64_t> values;
    for (const toml::node& item : *node.as_array()) values.push_back(integer_of(item));
    list = std::move(values);
  }
}

toml::table parse_toml(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    fail(fmt::format("{}:{}", source, error.source().begin.line), std::string(error.description()));
  }
}

void read_table(RunConfig& config, const toml::table& table, const std::string& prefix,
                std::string_view source) {
  for (const auto& [name, node] : table) {
    const std::string full =
        prefix.empty() ? std::string(name.str()) : prefix + "." + std::string(name.str());
    const std::string where = fmt::format("{}:{}", source, name.source().begin.line);
    if (!node.is_table()) {
      assign(config, find_key(full, where), node, where);
    } else {
      if (!is_section(full))
        fail(where, fmt::format("unknown section '{}'{}", full, did_you_mean(full, known_sections())));
      read_table(config, *node.as_table(), full, source);
    }
  }
}

/// Images for the one, text for the other.
void check_data(const RunConfig& config, const Workload& workload, std::string_view where) {
  std::vector<std::string_view> fitting;
  for (const engine::data::DatasetInfo& info : engine::data::known_datasets()) {
    if (info.kind != workload.data) continue;
    if (info.name == config.data.name) return;
    fitting.push_back(info.name);
  }
  fail(where, fmt::format("data.name = \"{}\": {} learns from {}: expected {}", config.data.name,
                          workload.name, name_of(workload.data), fmt::join(fitting, " or ")));
}

/// Keys that only make sense with data that is made, or with data that is read.
void check_synthetic(const RunConfig& config, const Workload& workload, std::string_view where) {
  if (workload.data != engine::data::DataKind::synthetic) {
    if (config.model.scale_down != 1)
      fail(where,
           fmt::format(
               "model.scale_down = {}: the sizes of {} follow from its data; expected 1, or the workload "
               "regression",
               config.model.scale_down, workload.name));
    return;
  }
  if (!config.data.path.empty())
    fail(where, fmt::format("data.path = \"{}\": {} is drawn from train.seed, not read; expected \"\"",
                            config.data.path, config.data.name));
  if (config.data.subset != 0 || config.data.test_subset != 0)
    fail(where,
         fmt::format(
             "data.subset = {}, data.test_subset = {}: of {} there is what data.batches says; expected 0",
             config.data.subset, config.data.test_subset, config.data.name));
}

/// What the training method cannot do, in the engine's own words.
void check_method(const RunConfig& config, const Workload& workload) {
  std::unique_ptr<engine::TrainingMethod> method = std::make_unique<engine::Supervised>();
  if (workload.make_method != nullptr) method = workload.make_method(config);
  engine::check_per_loss(scaler_options(config), method->losses());
  engine::check_rescue(scaler_options(config), *method);
  engine::check_graph(train_options(config, 1), *method);
}

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
    items.emplace_back(item);
    begin = comma + 1;
  }
  return items;
}

}  // namespace

std::optional<double> ScalerConfig::parameter(std::string_view name) const {
  if (policy == automatic) return std::nullopt;
  const engine::amp::PolicyParameter* declared = engine::amp::scale_policy(policy).find(name);
  if (declared == nullptr) return std::nullopt;
  const auto given = parameters.find(name);
  return given == parameters.end() || !given->second ? declared->fallback : *given->second;
}

bool ScalerConfig::operator==(const ScalerConfig& other) const {
  if (policy != other.policy || power_of_two != other.power_of_two ||
      enabled != other.enabled || drop_overflow_update != other.drop_overflow_update || per_loss != other.per_loss ||
      rescue != other.rescue || groups != other.groups)
    return false;
  if (policy == automatic) return parameters == other.parameters;
  const auto& declared = engine::amp::scale_policy(policy).parameters;
  return std::all_of(declared.begin(), declared.end(), [&](const engine::amp::PolicyParameter& p) {
    return parameter(p.name) == other.parameter(p.name);
  });
}

RunConfig parse_config(std::string_view toml, std::string_view source) {
  RunConfig config;
  const toml::table root = parse_toml(toml, source);
  for (const char* const table : {"workload", "variant"})
    if (root.get(table) != nullptr && root.get(table)->is_array_of_tables())
      fail(source, fmt::format("this is a sweep: fp16lab sweep -c {}", source));
  read_table(config, root, "", source);
  return config;
}

RunConfig load_config(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("--config: {}", error.what()));
  }
  return parse_config(text, path.string());
}

void apply_setting(RunConfig& config, std::string_view setting, std::string_view where) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail(where, fmt::format("'{}': expected key=value, such as train.seed=2", setting));
  const std::string_view value = trimmed(setting.substr(equals + 1));
  const ConfigKey& key = find_key(trimmed(setting.substr(0, equals)), where);
  if (key.name == "data.test_subset") config.data.test_subset_is_set = true;

  const ConfigField field = key.field(config);
  auto* const* text = std::get_if<std::string*>(&field);
  if (text != nullptr && !value.starts_with('"') && !value.starts_with('\'')) {
    assign_text(key, **text, std::string(value), where);
    return;
  }
  auto* const* texts = std::get_if<std::vector<std::string>*>(&field);
  if (texts != nullptr && !value.starts_with('[')) {
    **texts = split_list(key, value, where);
    return;
  }
  auto* const* real = std::get_if<double*>(&field);
  auto* const* parameter = std::get_if<std::optional<double>*>(&field);
  const bool takes_powers = parameter != nullptr && key.parameter->kind == engine::amp::PolicyParameter::Kind::real;
  if ((real != nullptr || takes_powers) && value.starts_with("2^")) {
    double power = 0;
    try {
      power = parse_number(value).value.to_double();
    } catch (const std::invalid_argument&) {
      fail_value(key, std::string(value), where);
    }
    if (!in_range(power, key.range)) fail_value(key, std::string(value), where);
    if (real != nullptr) {
      **real = power;
    } else {
      **parameter = power;
    }
    return;
  }
  toml::table table;
  try {
    table = toml::parse(fmt::format("value = {}", value));
  } catch (const toml::parse_error&) {
    fail_value(key, std::string(value), where);
  }
  if (table.size() != 1) fail_value(key, std::string(value), where);
  assign(config, key, *table.get("value"), where);
}

void resolve_scaler_policy(RunConfig& config, std::string_view where) {
  try {
    config.scaler.policy = scaler_policy(config);
  } catch (const std::invalid_argument& error) {
    fail(where, error.what());
  }
}

std::string policy_parameter_of(std::string_view setting) {
  constexpr std::string_view section = "scaler.";
  std::string_view key = trimmed(setting.substr(0, setting.find('=')));
  if (!key.starts_with(section)) return {};
  key.remove_prefix(section.size());
  const auto parameters = engine::amp::policy_parameters();
  const bool known = std::any_of(parameters.begin(), parameters.end(),
                                 [key](const engine::amp::PolicyParameter& p) { return p.name == key; });
  return known ? std::string(key) : std::string();
}

void require_policy_parameters(const RunConfig& given, const RunConfig& config, std::string_view where) {
  RunConfig resolved = given;
  resolve_scaler_policy(resolved, where);
  const engine::amp::PolicyDescription& own = engine::amp::scale_policy(resolved.scaler.policy);
  for (const auto& [name, value] : given.scaler.parameters) {
    if (!value || own.find(name) != nullptr) continue;
    require_policy_parameters(std::vector{"scaler." + name}, config, where);
  }
}

void require_policy_parameters(const std::vector<std::string>& settings, const RunConfig& config,
                               std::string_view where) {
  for (const std::string& setting : settings) {
    const std::string name = policy_parameter_of(setting);
    if (name.empty()) continue;
    try {
      engine::amp::require_parameter(&engine::amp::scale_policy(config.scaler.policy), name);
    } catch (const std::invalid_argument& error) {
      fail(where, fmt::format("{}: {}", setting, error.what()));
    }
  }
}

void validate_config(const RunConfig& config, std::string_view where) {
  const Workload& workload = workload_of(config);
  if (workload.check != nullptr) workload.check(config, where);
  check_data(config, workload, where);
  check_synthetic(config, workload, where);
  if (config.train.steps == 0 && config.train.epochs == 0)
    fail(where, "train.steps and train.epochs are both 0: expected one of them to be 1 or more");
  if (config.train.graph && config.backend.device == "emulated")
    fail(where,
         "train.graph = true: only a device replays steps; expected backend.device = \"cuda\" with it, or "
         "train.graph "
         "= false");
  if (config.optimizer.nesterov && config.optimizer.momentum == 0)
    fail(where, "optimizer.nesterov = true: expected an optimizer.momentum above 0");
  try {
    check_precision(config);
    check_method(config, workload);
  } catch (const std::invalid_argument& error) {
    fail(where, error.what());
  }
}

std::string value_text(const RunConfig& config, const ConfigKey& key) {
  RunConfig copy = config;
  const ConfigField field = key.field(copy);
  if (auto* const* text = std::get_if<std::string*>(&field)) return toml_string(**text);
  if (auto* const* integer = std::get_if<std::int64_t*>(&field)) return fmt::format("{}", **integer);
  if (auto* const* boolean = std::get_if<bool*>(&field)) return **boolean ? "true" : "false";
  if (auto* const* list = std::get_if<std::vector<std::int64_t>*>(&field)) return fmt::format("{}", **list);
  if (auto* const* texts = std::get_if<std::vector<std::string>*>(&field)) {
    std::string list;
    for (const std::string& item : **texts) list += (list.empty() ? "" : ", ") + toml_string(item);
    return "[" + list + "]";
  }
  std::optional<double> value;
  if (auto* const* real = std::get_if<double*>(&field)) value = **real;
  if (key.parameter != nullptr) {
    using Kind = engine::amp::PolicyParameter::Kind;
    value = config.scaler.parameter(key.parameter->name);
    if (!value) return {};
    if (key.parameter->kind == Kind::boolean) return *value != 0 ? "true" : "false";
    if (key.parameter->kind == Kind::integer) return fmt::format("{:.0f}", *value);
  }
  std::string text = fmt::format("{}", *value);  // the shortest decimal that reads back to the same double
  // TOML tells reals from integers by a point or an exponent.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_toml(const RunConfig& config) {
  std::string text;
  std::string section;
  for (const ConfigKey& key : config_keys()) {
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string value = value_text(config, key);
    if (!value.empty()) text += fmt::format("{} = {}\n", key.name.substr(section.size() + 1), value);
  }
  return text;
}

}  // namespace fp16lab::experiments
