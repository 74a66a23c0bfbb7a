// How a key of the configuration is written down: one row FP16LAB_KEY(section.field, "what it means", values)
// in the file of its section. The values: a ConfigRange, names (Choices), or names and what they stand for
// (Named).
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "experiments/app/config/config.hpp"

namespace fp16lab::experiments::keys {

/// The keys of a section, in the order of the resolved config.toml.
std::vector<ConfigKey> of_model(), of_data();                       // model_data_keys.cpp
std::vector<ConfigKey> of_train(), of_optimizer(), of_schedule();   // train_optimizer_keys.cpp
std::vector<ConfigKey> of_amp(), of_scaler();                       // amp_scaler_keys.cpp
std::vector<ConfigKey> of_backend(), of_parallel();                 // backend_observe_keys.cpp
std::vector<ConfigKey> of_observe(), of_checkpoint(), of_report();  // the same

using Choices = std::vector<std::string>;

/// For keys that concern casts: O0 casts only what amp.to_float names.
inline std::vector<ReadWith> anything_cast() {
  return {{.key = "amp.level", .values = {"O0"}, .others = true},
          {.key = "amp.to_float", .values = {"[]"}, .others = true}};
}

/// Gives the role to the rows that do not say their own.
inline std::vector<ConfigKey> all_as(KeyRole role, std::vector<ConfigKey> rows) {
  for (ConfigKey& row : rows)
    if (row.role == KeyRole::workload) row.role = role;
  return rows;
}

inline constexpr double infinity = std::numeric_limits<double>::infinity();
/// The largest integer up to which every integer is a double: ranges are kept in doubles.
inline constexpr double largest_integer = 9007199254740991.0;
inline constexpr ConfigRange counts{0, largest_integer};
inline constexpr ConfigRange positive_counts{1, largest_integer};
/// For extents of shapes, and for the step from one extent to the next.
inline constexpr ConfigRange sizes{0, static_cast<double>(largest_size)};
inline constexpr ConfigRange positive_sizes{1, static_cast<double>(largest_size)};
inline constexpr ConfigRange not_negative{0, infinity, false, true, true};
inline constexpr ConfigRange positive{0, infinity, true, true, true};
inline constexpr ConfigRange below_one{0, 1, false, true, true};
/// For values that no step computes with.
constexpr ConfigRange in_fp64(ConfigRange range) {
  range.fp32 = false;
  return range;
}
/// A loss scale must survive as an FP32 number with a finite reciprocal.
inline constexpr ConfigRange scales{0x1p-126, 0x1p126};

inline Choices auto_or(Choices names) {
  names.insert(names.begin(), std::string(automatic_policy));
  return names;
}

/// Values of an option by their names in files: enumerators, and what may be left open.
template <class Value>
using Named = std::vector<std::pair<std::string, Value>>;

template <class Value, std::size_t count>
Named<Value> named(const std::array<Value, count>& values) {
  Named<Value> all;
  for (const Value value : values) all.emplace_back(name_of(value), value);
  return all;
}

template <class Field>
concept Integer = std::integral<Field> && !std::same_as<Field, bool>;

template <class Field>
constexpr ConfigType type_of() {
  if constexpr (std::same_as<Field, std::string>) return ConfigType::text;
  if constexpr (Integer<Field>) return ConfigType::integer;
  if constexpr (std::same_as<Field, double>) return ConfigType::real;
  if constexpr (std::same_as<Field, bool>) return ConfigType::boolean;
  if constexpr (std::same_as<Field, std::vector<std::int64_t>>) return ConfigType::integers;
  if constexpr (std::same_as<Field, std::vector<std::string>>) return ConfigType::texts;
}

/// `get`: a field of a configuration, const or not.
template <class Get>
ConfigKey key(std::string name, Get get, std::string doc, ConfigRange range = {}) {
  using Field = std::remove_reference_t<decltype(get(std::declval<RunConfig&>()))>;
  using Value = std::conditional_t<Integer<Field>, std::int64_t, Field>;
  return {
      .name = std::move(name),
      .type = type_of<Field>(),
      .read = [get](const RunConfig& config) -> ConfigValue { return static_cast<Value>(get(config)); },
      .write = [get](RunConfig& config,
                     const ConfigValue& value) { get(config) = static_cast<Field>(std::get<Value>(value)); },
      .doc = std::move(doc),
      .range = range};
}

template <class Get>
ConfigKey key(std::string name, Get get, std::string doc, Choices choices) {
  ConfigKey with_choices = key(std::move(name), get, std::move(doc));
  with_choices.choices = std::move(choices);
  return with_choices;
}

template <class Get, class Value>
ConfigKey key(std::string name, Get get, std::string doc, const Named<Value>& names) {
  Choices choices;
  for (const auto& [choice, value] : names) choices.push_back(choice);
  const auto read = [get, names](const RunConfig& config) -> ConfigValue {
    const auto found = std::ranges::find(names, get(config), &std::pair<std::string, Value>::second);
    if (found == names.end()) throw std::logic_error("a value that no name stands for");
    return found->first;
  };
  const auto write = [get, names](RunConfig& config, const ConfigValue& text) {
    get(config) =
        std::ranges::find(names, std::get<std::string>(text), &std::pair<std::string, Value>::first)->second;
  };
  return {.name = std::move(name),
          .type = ConfigType::text,
          .read = read,
          .write = write,
          .doc = std::move(doc),
          .range = {},
          .choices = std::move(choices)};
}

// A key of another name than its field's, and one of the same.
#define FP16LAB_KEY_AS(name, path, ...) \
  key(                                  \
      name, [](auto& config) -> auto& { return config.path; }, __VA_ARGS__)
#define FP16LAB_KEY(path, ...) FP16LAB_KEY_AS(#path, path, __VA_ARGS__)

}  // namespace fp16lab::experiments::keys
