#include "experiments/app/config/network_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/nn/network/layer_types.hpp"
#include "experiments/app/config/config.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using engine::nn::LayerBlock;
using engine::nn::LayerRow;
using engine::nn::LayerValue;
using engine::nn::NetworkRows;

std::string place_of(const toml::node& node, std::string_view source) {
  return node.source().begin.line == 0 ? std::string(source)
                                       : fmt::format("{}:{}", source, node.source().begin.line);
}

std::string text_at(const toml::node& node, std::string_view key, const std::string& where) {
  if (!node.is_string() || node.as_string()->get().empty())
    refuse_config(where, fmt::format("{}: expected text", key));
  require_printable(node.as_string()->get(), key, where);
  return node.as_string()->get();
}

std::vector<std::string> inputs_at(const toml::node& node, const std::string& where) {
  if (node.is_string()) return {text_at(node, "input", where)};
  std::vector<std::string> names;
  if (const toml::array* list = node.as_array())
    for (const toml::node& item : *list) names.push_back(text_at(item, "input", where));
  if (names.empty())
    refuse_config(where, R"(input: expected the name of a row, or a list of names: ["a", "b"])");
  return names;
}

LayerValue value_at(const toml::node& node, std::string_view key, const std::string& where) {
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* real = node.as_floating_point()) return real->get();
  if (const auto* text = node.as_string()) {
    require_printable(text->get(), key, where);
    return text->get();
  }
  if (const toml::array* list = node.as_array();
      list != nullptr && (list->empty() || list->is_homogeneous<std::int64_t>())) {
    std::vector<std::int64_t> integers;
    for (const toml::node& item : *list) integers.push_back(item.as_integer()->get());
    return integers;
  }
  refuse_config(where, fmt::format("{}: expected a number, true or false, text or a list of integers", key));
}

/// The arguments are those of its type.
void check(const LayerRow& row) {
  try {
    const engine::nn::LayerType& type = engine::nn::layer_type(row.type);
    engine::nn::LayerArguments(type.name, type.arguments, row);
  } catch (const std::invalid_argument& error) {
    refuse_config(row.where, row.name.empty()
                                 ? fmt::format("layer of type {}: {}", row.type, error.what())
                                 : fmt::format("layer '{}' ({}): {}", row.name, row.type, error.what()));
  }
}

/// The keys that every row can have; true if `key` was one.
bool set_common(LayerRow& row, std::string_view key, const toml::node& node) {
  if (key == "type") {
    row.type = text_at(node, key, row.where);
  } else if (key == "name") {
    row.name = text_at(node, key, row.where);
  } else if (key == "input") {
    row.inputs = inputs_at(node, row.where);
  } else if (key == "frozen") {
    if (!node.is_boolean()) refuse_config(row.where, "frozen: expected true or false");
    row.frozen = node.as_boolean()->get();
  } else if (key == "to_float") {
    row.to_float = text_at(node, key, row.where);
    if (row.to_float != "f32" && row.to_float != "f16" && row.to_float != "bf16")
      refuse_config(row.where,
                    fmt::format("to_float = \"{}\": expected one of f32, f16, bf16", row.to_float));
  } else {
    return false;
  }
  return true;
}

void set_value(LayerRow& row, std::string_view key, const toml::node& node) {
  if (set_common(row, key, node)) return;
  const LayerValue value = value_at(node, key, row.where);
  for (auto& [name, old] : row.arguments)
    if (name == key) {
      old = value;
      return;
    }
  row.arguments.emplace_back(key, value);
}

LayerRow read_row(const toml::node& node, std::string_view source) {
  LayerRow row{.type = {}, .where = place_of(node, source)};
  const toml::table* const table = node.as_table();
  if (table == nullptr) refuse_config(row.where, "model.layer: expected tables, such as { type = \"relu\" }");
  if (table->contains("layer"))
    refuse_config(row.where,
                  "a block in a block: blocks do not nest; expected rows, or blocks one after the other");
  for (const auto& [key, value] : *table) set_value(row, key.str(), value);
  if (row.type.empty())
    refuse_config(row.where, "a row of model.layer without type: expected one, such as type = \"linear\"");
  check(row);
  return row;
}

std::int64_t integer_at(const toml::node& node, std::string_view key, std::int64_t least,
                        const std::string& where) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < least || *value > 100000)
    refuse_config(where, fmt::format("{}: expected an integer, {} to 100000", key, least));
  return *value;
}

LayerBlock read_block(const toml::node& node, std::string_view source) {
  LayerBlock block{.where = place_of(node, source)};
  const toml::table* const table = node.as_table();
  if (table == nullptr) refuse_config(block.where, "model.block: expected tables");
  for (const auto& [key, value] : *table) {
    if (key == "name") {
      block.name = text_at(value, "name", block.where);
    } else if (key == "input") {
      block.input = text_at(value, "input", block.where);
    } else if (key == "repeat") {
      block.repeat = integer_at(value, "repeat", 1, block.where);
    } else if (key == "first") {
      block.first = integer_at(value, "first", 0, block.where);
    } else if (key == "layer" && value.is_array()) {
      for (const toml::node& row : *value.as_array()) block.rows.push_back(read_row(row, source));
    } else {
      static constexpr std::array<std::string_view, 5> known{"name", "repeat", "first", "input", "layer"};
      refuse_config(block.where, fmt::format("'{}' in a block: {}; to_float and frozen are a row's",
                                             shown(key.str()), known_are(key.str(), known)));
    }
  }
  if (block.name.empty())
    refuse_config(block.where, "a block without name: expected one, such as name = \"h{}\"");
  if (block.rows.empty())
    refuse_config(block.where,
                  fmt::format("block '{}' has no rows: expected [[model.block.layer]]", block.name));
  return block;
}

/// What a row says, in the order of a file.
std::vector<std::pair<std::string, std::string>> values_of(const LayerRow& row) {
  std::vector<std::pair<std::string, std::string>> values;
  if (!row.name.empty()) values.emplace_back("name", toml_string(row.name));
  values.emplace_back("type", toml_string(row.type));
  if (row.inputs.size() == 1) values.emplace_back("input", toml_string(row.inputs.front()));
  if (row.inputs.size() > 1) {
    std::string names;
    for (const std::string& name : row.inputs) names += (names.empty() ? "" : ", ") + toml_string(name);
    values.emplace_back("input", "[" + names + "]");
  }
  for (const auto& [key, value] : row.arguments) {
    const auto* const plain = std::get_if<std::string>(&value);
    values.emplace_back(key, plain != nullptr ? toml_string(*plain) : engine::nn::text_of(value));
  }
  if (!row.to_float.empty()) values.emplace_back("to_float", toml_string(row.to_float));
  if (row.frozen) values.emplace_back("frozen", "true");
  return values;
}

}  // namespace

NetworkRows ModelConfig::default_rows() {
  const LayerValue widths = std::vector<std::int64_t>{512, 256, 128, 10};
  return {{.rows = {{.type = "flatten"}, {.type = "mlp", .arguments = {{"widths", widths}}}}}};
}

NetworkRows read_network_rows(const toml::table& model, std::string_view source) {
  // Rows and blocks are two lists in TOML; what comes first in the file comes first in the network.
  // A row that has rows of its own is a block, too.
  std::vector<std::pair<const toml::node*, bool>> items;
  for (const char* const key : {"layer", "block"}) {
    const toml::node* const node = model.get(key);
    if (node == nullptr) continue;
    if (!node->is_array())
      refuse_config(place_of(*node, source), fmt::format("model.{0}: expected tables, [[model.{0}]]", key));
    for (const toml::node& item : *node->as_array())
      items.emplace_back(
          &item, std::string_view(key) == "block" || (item.is_table() && item.as_table()->contains("layer")));
  }
  std::ranges::stable_sort(items, {}, [](const auto& item) {
    const toml::source_position begin = item.first->source().begin;
    return std::pair(begin.line, begin.column);
  });
  NetworkRows rows;
  for (const auto& [node, is_block] : items) {
    if (is_block) {
      rows.push_back(read_block(*node, source));
    } else {
      if (rows.empty() || !rows.back().name.empty()) rows.emplace_back();
      rows.back().rows.push_back(read_row(*node, source));
    }
  }
  return rows;
}

void set_network_value(NetworkRows& rows, std::string_view key, std::string_view value,
                       std::string_view where) {
  toml::table parsed;
  if (too_deep_in_toml(value))
    refuse_config(where, fmt::format("{}: nested deeper than {}", key, deepest_nesting));
  try {
    parsed = toml::parse(fmt::format("value = {}", value));
  } catch (const toml::parse_error&) {  // text needs no quotes
    parsed.insert("value", std::string(value));
  }
  const toml::node& node = *parsed.get("value");
  std::vector<std::string> known;
  const std::vector<std::string> names = engine::nn::names_of_rows(rows);
  std::size_t next = 0;
  for (LayerBlock& block : rows) {
    const std::string prefix = block.name.empty() ? "" : block.name + ".";
    if (!block.name.empty() && key == "model.block." + prefix + "repeat") {
      block.repeat = integer_at(node, "repeat", 1, std::string(where));
      return;
    }
    for (LayerRow& row : block.rows) {
      const std::string full = "model.layer." + prefix + names[next++] + ".";
      const std::string_view argument = key.starts_with(full) ? key.substr(full.size()) : std::string_view();
      if (argument.empty() || argument.find('.') != std::string_view::npos) {
        known.push_back(full.substr(0, full.size() - 1));
        continue;
      }
      LayerRow changed = row;
      changed.where = where;
      set_value(changed, argument, node);
      check(changed);
      row = std::move(changed);
      return;
    }
  }
  const std::string name(key.substr(0, key.rfind('.')));
  refuse_config(where,
                fmt::format("{}: expected model.layer.NAME.ARGUMENT or model.block.NAME.repeat of a row or "
                            "block with that name{}",
                            key, did_you_mean(name, known)));
}

std::string network_toml(const NetworkRows& rows) {
  std::string text;
  for (const LayerBlock& block : rows) {
    if (!block.name.empty()) {
      text +=
          fmt::format("\n[[model.block]]\nname = {}\nrepeat = {}\n", toml_string(block.name), block.repeat);
      if (block.first != 0) text += fmt::format("first = {}\n", block.first);
      if (!block.input.empty()) text += fmt::format("input = {}\n", toml_string(block.input));
    }
    for (const LayerRow& row : block.rows) {
      text += fmt::format("\n[[{}]]\n", block.name.empty() ? "model.layer" : "model.block.layer");
      for (const auto& [key, value] : values_of(row)) text += fmt::format("{} = {}\n", key, value);
    }
  }
  return text;
}

std::map<std::string, std::string> network_values(const NetworkRows& rows) {
  std::map<std::string, std::string> values;
  const std::vector<std::string> names = engine::nn::names_of_rows(rows);
  std::size_t place = 0;
  for (const LayerBlock& block : rows) {
    const std::string prefix = block.name.empty() ? "" : block.name + ".";
    if (!block.name.empty()) values["model.block." + prefix + "repeat"] = fmt::format("{}", block.repeat);
    if (block.first != 0) values["model.block." + prefix + "first"] = fmt::format("{}", block.first);
    if (!block.input.empty()) values["model.block." + prefix + "input"] = toml_string(block.input);
    for (const LayerRow& row : block.rows) {
      const std::string name = "model.layer." + prefix + names[place];
      for (const auto& [key, value] : values_of(row)) values[name + "." + key] = value;
      values[name] = fmt::format("row {}", ++place);
    }
  }
  return values;
}

std::vector<std::string> to_float_of(const NetworkRows& rows) {
  std::vector<std::string> patterns;
  if (rows.empty()) return patterns;
  for (const engine::nn::PlacedRow& row : engine::nn::placed(rows))
    if (!row.row->to_float.empty()) patterns.push_back(row.path + "=" + row.row->to_float);
  return patterns;
}

}  // namespace fp16lab::experiments
