// JSON of described records (record.hpp): a line each, and its reader. Internal to numerics/files.
//
// A reader that does not find what it expects throws std::runtime_error with the key, the expected value and
// the actual one, and refuses keys and names that it does not know with those that it does; the caller adds
// file and line. A type that is written otherwise has functions of its own beside it: append_json(text,
// value), read_json(json, key, value).
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "numerics/files/run/record.hpp"
#include "numerics/files/run/run_json_values.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::run_json {

template <DescribedRecord Record>
void append_record(std::string& text, const Record& record);

/// `value` as JSON after `text`, without a tree: a run writes thousands of lines.
template <class Value>
void append_value(std::string& text, const Value& value, const FieldTraits& traits = {}) {
  using namespace record_detail;
  if constexpr (requires { append_json(text, value); }) {
    append_json(text, value);
  } else if constexpr (is_optional<Value>) {
    value ? append_value(text, *value, traits) : void(text += "null");
  } else if constexpr (std::is_same_v<Value, bool>) {
    text += value ? "true" : "false";
  } else if constexpr (std::is_integral_v<Value>) {
    append_count(text, value);
  } else if constexpr (std::is_floating_point_v<Value>) {
    text += dump(json_number(value), -1);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    text += traits.json ? (value.empty() ? "null" : dump(parse_json(value), -1)) : dump(value, -1);
  } else if constexpr (std::is_same_v<Value, DType> || NamedEnum<Value>) {
    text.append("\"").append(name_of(value)).append("\"");
  } else if constexpr (std::is_same_v<Value, ExponentHistogram>) {
    append_histogram(text, value);
  } else if constexpr (DescribedRecord<Value>) {
    append_record(text, value);
  } else if constexpr (Named<Value>) {
    text += '{';
    for (const auto& [name, item] : value) {
      text.append(text.back() == '{' ? "" : ",").append(dump(name, -1)).append(":");
      append_value(text, item);
    }
    text += '}';
  } else {
    text += '[';
    for (const auto& item : value) {
      if (text.back() != '[') text += ',';
      append_value(text, item, traits);
    }
    text += ']';
  }
}

/// The members, without braces; a comma first where `text` does not end with the brace.
template <DescribedRecord Record>
void append_members(std::string& text, const Record& record) {
  for_each_field<Record>([&](const auto& field) {
    const auto& value = std::invoke(field.member, record);
    if constexpr (!std::remove_cvref_t<decltype(field)>::computed)
      if (field.traits.left_out && value == Record{}.*field.member) return;
    text.append(text.back() == '{' ? "\"" : ",\"").append(field.name).append("\":");
    append_value(text, value, field.traits);
  });
}

template <DescribedRecord Record>
void append_record(std::string& text, const Record& record) {
  text += '{';
  append_members(text, record);
  text += '}';
}

template <DescribedRecord Record>
std::string to_json_line(const Record& record) {
  std::string text;
  text.reserve(1024);
  append_record(text, record);
  return text;
}

template <DescribedRecord Record>
void read_record(const Json& json, Record& record);

template <class Value>
void read_value(const Json& json, std::string_view key, const FieldTraits& traits, Value& value) {
  using namespace record_detail;
  if constexpr (requires { read_json(json, key, value); }) {
    read_json(json, key, value);
  } else if constexpr (is_optional<Value>) {
    if (json.is_null()) return value.reset();
    read_value(json, key, traits, value.emplace());
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!json.is_boolean()) wrong_type(key, "true or false", json);
    value = json.get<bool>();
  } else if constexpr (std::is_same_v<Value, int>) {
    if (!json.is_number_integer()) wrong_type(key, "a whole number", json);
    value = static_cast<int>(json.get<std::int64_t>());
  } else if constexpr (std::is_integral_v<Value>) {
    value = static_cast<Value>(as_count(json, key));
  } else if constexpr (std::is_floating_point_v<Value>) {
    value = as_number(json, key);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = traits.json       ? as_document(json, key)
            : traits.as_it_is ? as_text(json, key)
                              : as_string(json, key);
  } else if constexpr (std::is_same_v<Value, DType>) {
    value = as_dtype(json, key);
  } else if constexpr (NamedEnum<Value>) {
    const std::string name = as_string(json, key);
    const auto known = enumerator_called<Value>(name);
    if (!known)
      throw std::runtime_error(
          fmt::format("'{}' is '{}'; known are {}", key, shown(name), known_names<Value>()));
    value = *known;
  } else if constexpr (std::is_same_v<Value, ExponentHistogram>) {
    value = as_histogram(json, key);
  } else if constexpr (DescribedRecord<Value>) {
    if (!json.is_object()) wrong_type(key, "an object", json);
    read_record(json, value);
  } else if constexpr (Named<Value>) {
    if (!json.is_object()) wrong_type(key, "an object", json);
    for (const auto& [name, item] : json.items()) {
      typename Value::value_type::second_type read{};
      read_value(item, name, {}, read);
      value.insert(value.end(), {printable(name), read});
    }
  } else {
    if (!json.is_array()) wrong_type(key, "an array", json);
    for (const Json& item : json) read_value(item, key, traits, value.emplace_back());
  }
}

/// The described members of an object; others are not looked at.
template <DescribedRecord Record>
void read_members(const Json& json, Record& record) {
  for_each_field<Record>([&](const auto& field) {
    if constexpr (!std::remove_cvref_t<decltype(field)>::computed)
      if (!may_lack<Record>(field.traits) || json.contains(field.name))
        read_value(member(json, field.name), field.name, field.traits, record.*field.member);
  });
}

template <DescribedRecord Record>
void read_record(const Json& json, Record& record) {
  read_members(json, record);
  for (const auto& [key, value] : json.items()) {
    bool known = false;
    for_each_field<Record>([&, &key = key](const auto& field) { known = known || field.name == key; });
    if (!known)
      throw std::runtime_error(
          fmt::format("the key '{}' is not known; known are {}", shown(key), field_names<Record>()));
  }
}

template <DescribedRecord Record>
Record parse_json_line(std::string_view line) {
  Record record;
  read_record(parse_json(line), record);
  return record;
}

}  // namespace fp16lab::run_json
