// fp16lab list and fp16lab devices: what there is to choose from.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/inspection.hpp"
#include "engine/amp/levels/op_lists.hpp"
#include "engine/amp/policy.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "engine/data/dataset.hpp"
#include "engine/nn/network/layer_types.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/policy_list.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/config/framework_names.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/help/help_text.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/run/record.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
}

/// A row: what has a fixed place, then a text that is cut to the line, or goes on below itself.
void print_row(const std::string& begin, const std::string& text, std::size_t columns, bool details) {
  const std::size_t indent = begin.size() + 2 > columns / 2 ? 6 : begin.size() + 2;
  const std::size_t room = columns - std::min(columns, begin.size() + 2);
  fmt::print("{}  {}\n", begin, details ? wrapped(text, columns, begin.size() + 2, indent) : cut(text, room));
}

/// A text of its own lines.
void print_text(const std::string& text, std::size_t columns, std::size_t indent = 2) {
  fmt::print("{}{}\n", std::string(indent, ' '), wrapped(text, columns, indent, indent));
}

std::size_t width_of(const Json& rows, const char* key) {
  std::size_t width = 0;
  for (const Json& row : rows) width = std::max(width, text_of(row.at(key)).size());
  return width;
}

/// Parameters, and where the rows come from, only with `details`.
void print_tensor_cores(const Json& rows, std::size_t columns, bool details) {
  if (details)
    print_text(
        "L: products in a fused block; F: fraction bits kept in alignment; E0: exponent floor. "
        "Where an instruction has several stages, they follow; k counts its products. Evidence: "
        "hardware, equals published captures of chips; hardware_test, asserted on chips by a public test "
        "suite; model, as published. Open, with options in fp16lab mma: the exponent of a subnormal FP16 c "
        "(here emin) and the sign of a sum that rounds to zero (here positive).",
        columns);
  fmt::print("  {:<17} {:<9} {:<3} {:>2} {:>2} {:>4} {}\n", "name", "operands", "acc", "L", "F", "E0",
             details ? "output, evidence" : "evidence");
  for (const Json& row : rows) {
    std::string operands;
    for (const Json& operand : row.at("operands"))
      operands += (operands.empty() ? "" : " ") + text_of(operand);
    const std::string stages = text_of(row.at("stages"));
    fmt::print("  {:<17} {:<9} {:<3} {:>2} {:>2} {:>4} {}{}\n", text_of(row.at("name")), operands,
               text_of(row.at("accumulator")), text_of(row.at("products_per_block")),
               text_of(row.at("fraction_bits")), text_of(row.at("exponent_floor")),
               details ? text_of(row.at("output")) + ", " : "", text_of(row.at("evidence")));
    if (details && stages.find(';') != std::string::npos) print_text(stages, columns, 6);
    if (details) print_text(text_of(row.at("hardware")) + ": " + text_of(row.at("source")), columns, 6);
  }
}

void print_plans(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  for (const Json& row : rows) {
    print_row(fmt::format("  {:<{}}", text_of(row.at("name")), width), text_of(row.at("rule")), columns,
              details);
    if (details)
      print_text(fmt::format("{}; rows: {}; {}: {}. Refused: {}.", text_of(row.at("library")),
                             text_of(row.at("rows")), text_of(row.at("evidence")), text_of(row.at("source")),
                             text_of(row.at("unknown"))),
                 columns, 6);
  }
}

/// By family, in the order in which families first appear.
void print_policies(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  std::vector<engine::amp::PolicyFamily> families;
  for (const Json& row : rows) {
    const engine::amp::PolicyFamily& family = engine::amp::scale_policy(text_of(row.at("name"))).family;
    if (std::none_of(families.begin(), families.end(),
                     [&](const engine::amp::PolicyFamily& known) { return known.name == family.name; }))
      families.push_back(family);
  }
  for (const engine::amp::PolicyFamily& family : families) {
    print_row(fmt::format(" {}:", family.name), std::string(family.rule), columns, details);
    for (const Json& row : rows) {
      if (row.at("family") != family.name) continue;
      const engine::amp::PolicyDescription& policy = engine::amp::scale_policy(text_of(row.at("name")));
      if (!details) {
        print_row(fmt::format("  {:<{}}", policy.name, width), short_rule(policy), columns, false);
        continue;
      }
      fmt::print("  {}\n", policy.name);
      print_text(text_of(row.at("rule")), columns, 6);
      if (const std::string defaults = defaults_text(policy); !defaults.empty())
        print_text(defaults, columns, 6);
    }
  }
  if (details) print_text("Parameters, sources and what guards do: fp16lab policy --list", columns);
}

/// One line a level; the op lists are for --json.
void print_dialects(const Json& dialects, std::size_t columns, bool details) {
  fmt::print("  {:<10} {:<8} {:<11} {:<16}  {}\n", "dialect", "level", "scaler", "parameters", "source");
  for (const Json& dialect : dialects)
    for (const Json& level : dialect.at("levels")) {
      std::string parameters = "f32";
      if (level.at("low_model").get<bool>())
        parameters = level.at("master_weights").get<bool>() ? "low, f32 masters" : "low";
      const std::string name =
          text_of(level.at("level")) + (level.contains("means") ? "=" + text_of(level.at("means")) : "");
      print_row(fmt::format("  {:<10} {:<8} {:<11} {:<16}", text_of(dialect.at("name")), name,
                            text_of(level.at("scaler")) + (level.at("brings_scaler").get<bool>() ? "*" : ""),
                            parameters),
                text_of(level.at("source")), columns, details);
    }
  print_text(
      "What amp.level means by amp.dialect. Scaler: the framework's own; *: the level brings it, and "
      "scaler.policy = \"auto\" is it. Ops of each list, and all other rules, with --json.",
      columns);
}

/// [[model.layer]] rows: a line a type; with `details` a line an argument.
void print_layers(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  for (const Json& row : rows) {
    print_row(fmt::format("  {:<{}}", text_of(row.at("name")), width), text_of(row.at("description")),
              columns, details);
    if (!details) continue;
    for (const Json& argument : row.at("arguments")) {
      const std::string standard = text_of(argument.at("default"));
      const std::string behind = argument.at("required").get<bool>() ? " (required)"
                                 : standard.empty()                  ? ""
                                                                     : " (default " + standard + ")";
      print_row(fmt::format("      {:<16}", text_of(argument.at("name"))),
                text_of(argument.at("description")) + behind, columns, true);
    }
  }
  if (details)
    print_text(
        "Every row may have name, input (an earlier row or block, or a list of them; \"input\": the "
        "network's, or the block's), to_float (f32, f16, bf16) and frozen as well. A block has name, layer "
        "(its rows), repeat (copies one after the other; {} in its name is their number, from first = 0), "
        "and input.",
        columns);
}

/// The names of a section in one paragraph; with `details` what each may be and means.
void print_keys(const Json& keys, std::size_t columns, bool details) {
  if (details) {
    for (const Json& key : keys) {
      print_text(fmt::format("{} = {}  ({})", text_of(key.at("name")), text_of(key.at("default")),
                             text_of(key.at("expected"))),
                 columns);
      print_text(text_of(key.at("doc")), columns, 6);
      if (const std::string with = text_of(key.at("read_with")); !with.empty())
        print_text("read with " + with, columns, 6);
    }
    return;
  }
  std::string section, names;
  const auto flush = [&] {
    if (!names.empty()) fmt::print("  {:<11}{}\n", section + ".", wrapped(names, columns, 13, 13));
    names.clear();
  };
  for (const Json& key : keys) {
    const std::string name = text_of(key.at("name"));
    const std::size_t dot = name.find('.');
    if (name.substr(0, dot) != section) flush();
    section = name.substr(0, dot);
    names += (names.empty() ? "" : " ") + name.substr(dot + 1);
  }
  flush();
}

void print_configs(const Json& rows, std::size_t columns, bool details) {
  std::size_t width = 0;
  const auto name_of_row = [details](const Json& row) {
    const std::filesystem::path path = text_of(row.at("path"));
    return details ? path.string() : path.stem().string();
  };
  for (const Json& row : rows) width = std::max(width, name_of_row(row).size());
  for (const Json& row : rows)
    print_row(fmt::format("  {:<{}}  {:<5}", name_of_row(row), width, text_of(row.at("command"))),
              text_of(row.at("description")), columns, details);
}

void print_datasets(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  for (const Json& row : rows) {
    const std::string package = text_of(row.at("package"));
    print_row(fmt::format("  {:<{}}  {:<9}", text_of(row.at("name")), width, text_of(row.at("data"))),
              text_of(row.at("description")) + (package.empty() ? "" : " (" + package + ")"), columns,
              details);
  }
}

/// An aligned table of rows that have the same keys; the last column is not padded.
void print_rows(const Json& rows) {
  if (rows.empty()) return;
  std::vector<std::vector<std::string>> table(1);
  for (const auto& [column, value] : rows.front().items()) table.front().push_back(column);
  for (const Json& row : rows) {
    table.emplace_back();
    for (const auto& [column, value] : row.items()) table.back().push_back(text_of(value));
  }
  std::vector<std::size_t> widths(table.front().size());
  for (const auto& row : table)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : table) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i + 1 < row.size() ? fmt::format(" {:<{}} ", row[i], widths[i]) : " " + row[i];
    fmt::print("{}\n", line);
  }
}

/// Numbers with six digits; with `details` all of them.
void print_formats(const Json& rows, std::size_t, bool details) {
  if (details) return print_rows(rows);
  fmt::print("  {:<4} {:<5} {:>5} {:>8} {:>9} {:>12} {:>12} {:>12} {}\n", "name", "bits", "width", "exponent",
             "precision", "largest", "least normal", "least", "Inf");
  const auto number = [](const Json& value) {
    return fmt::format("{:.6g}", std::strtod(text_of(value).c_str(), nullptr));
  };
  for (const Json& row : rows)
    fmt::print("  {:<4} {:<5} {:>5} {:>8} {:>9} {:>12} {:>12} {:>12} {}\n", text_of(row.at("name")),
               text_of(row.at("bits")), text_of(row.at("width")), text_of(row.at("exponent_bits")),
               text_of(row.at("precision")), number(row.at("max_finite")), number(row.at("min_normal")),
               number(row.at("min_subnormal")), row.at("infinity").get<bool>() ? "yes" : "no");
}

void print_framework_names(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  for (const Json& row : rows) {
    const std::string note = text_of(row.at("note"));
    print_row(fmt::format("  {:<{}} ", text_of(row.at("name")), width),
              fmt::format("{} ({}){}", text_of(row.at("key")), text_of(row.at("frameworks")),
                          note.empty() ? "" : ": " + note),
              columns, details);
  }
}

/// A line a file, or a record inside one; with `details` a line a column or key: name, unit, since which
/// schema.
void print_records(const Json& rows, std::size_t columns, bool details) {
  const std::size_t width = width_of(rows, "name");
  for (const Json& row : rows) {
    const std::string written = text_of(row.at("written"));
    const std::string what =
        text_of(row.at("description")).substr(0, text_of(row.at("description")).find('\n'));
    print_row(fmt::format("  {:<{}}", text_of(row.at("name")), width), written.empty() ? what : written,
              columns, details);
    if (!details) continue;
    if (!written.empty() && !what.empty()) print_text(what, columns, 6);
    for (const Json& field : row.at("fields"))
      print_row(fmt::format("      {:<16} {:<3} {:>2}", text_of(field.at("name")), text_of(field.at("unit")),
                            text_of(field.at("since"))),
                fmt::format("{} ({})", text_of(field.at("description")), text_of(field.at("type"))), columns,
                true);
  }
  if (details) print_text("After a name stand its unit and the first schema version that has it.", columns);
}

struct Section {
  const char* name;
  const char* what;
  void (*print)(const Json& rows, std::size_t columns, bool details);
};

constexpr Section sections[] = {
    {"layers", "types of [[model.layer]], and their arguments", print_layers},
    {"configs", "what -c takes by name", print_configs},
    {"datasets", "data.name", print_datasets},
    {"policies", "scaler.policy: loss-scale policies, at their defaults", print_policies},
    {"dialects", "amp.dialect and amp.level: frameworks' mixed precision", print_dialects},
    {"formats", "floating-point formats", print_formats},
    {"tensor_cores", "backend.tensor_core and mma --model; or a chip: h100", print_tensor_cores},
    {"plans", "what a library's call makes of instructions", print_plans},
    {"config_keys", "keys of configurations and of --set", print_keys},
    {"sweep_keys", "keys of a sweep file: [[workload]] and [[variant]]", print_keys},
    {"framework_names", "what frameworks call these keys", print_framework_names},
    {"records", "files of run folders: columns, units, meaning", print_records},
};

/// What sections there are, and how to ask for more.
void print_sections(const Json& all) {
  const std::size_t columns = screen_columns();
  for (const Section& section : sections)
    print_row(fmt::format("  {:<12} {:>4}", section.name, all.at(section.name).size()), section.what, columns,
              true);
  print_text("fp16lab list SECTION shows one; with a PATTERN after it, all about what is like that.", columns,
             0);
}

/// Sections of `list` by their names: a screen each, a row a line. `details`: all that is known of the rows.
void print_lists(const Json& json, bool details) {
  const std::size_t columns = screen_columns();
  bool first = true;
  for (const Section& section : sections) {
    if (!json.contains(section.name) || json.at(section.name).empty()) continue;
    fmt::print("{}{}: {}\n", first ? "" : "\n", section.name, section.what);
    section.print(json.at(section.name), columns, details);
    first = false;
  }
  if (!details) print_text("More: fp16lab list SECTION PATTERN, such as '*'; or --json.", columns, 0);
}

Json format_json(const analysis::NamedFormat& named) {
  const RuntimeFormat& format = named.format;
  const auto value = [&](std::uint64_t bits) { return Decimal(format.decode(bits)).to_string(17); };
  return {{"name", named.name},
          {"bits", named.prefix + ":"},
          {"width", format.width},
          {"exponent_bits", format.exponent_bits},
          {"precision", format.precision},
          {"max_finite", value(format.max_finite)},
          {"min_normal", value(format.min_normal)},
          {"min_subnormal", value(format.min_subnormal)},
          {"infinity", format.has_infinity}};
}

Json tensor_core_json(const TensorCoreModel& row) {
  Json operands = Json::array();
  for (const DType format : dtypes<is_low_precision>)
    if (row.operands.contains(format)) operands.push_back(name_of(format));
  Json chips = Json::array();
  for (const std::string_view chip : tensor_core_chips())
    if (std::ranges::find(generations_of(chip), row.name) != generations_of(chip).end())
      chips.push_back(chip);
  const bool aligned = row.block().sum == Sum::aligned;
  return {{"name", row.name},
          {"chips", std::move(chips)},
          {"operands", std::move(operands)},
          {"accumulator", name_of(row.accumulator())},
          {"products_per_block", row.block().products},
          {"fraction_bits", aligned ? Json(row.block().fraction_bits) : Json()},
          {"exponent_floor", aligned ? Json(row.block().exponent_floor) : Json()},
          {"output", name_of(row.block().output)},
          {"stages", stages_text(row)},
          {"subnormal_accumulator", name_of(row.subnormal_accumulator)},
          {"underflow_zero", name_of(row.underflow_zero)},
          {"evidence", name_of(row.evidence)},
          {"hardware", row.hardware},
          {"source", row.source}};
}

std::string_view unlisted_name(engine::amp::Unlisted unlisted) {
  using enum engine::amp::Unlisted;
  return unlisted == follow ? "follow" : unlisted == wide ? "f32" : "low";
}

Json op_lists_json(engine::amp::Dialect dialect, engine::amp::Level level) {
  using engine::amp::OpList;
  Json lists = {{"white", Json::array()},
                {"black", Json::array()},
                {"follows", Json::array()},
                {"banned", Json::array()}};
  for (const engine::amp::OpListRow& row : engine::amp::op_lists(dialect, level)) {
    Json entry = {{"op", name_of(row.op)}, {"name", row.name}};
    if (row.list == OpList::banned) {
      entry["reason"] = row.reason;
      entry["instead"] = name_of(row.remedy);
    }
    lists[std::string(name_of(row.list))].push_back(std::move(entry));
  }
  return lists;
}

Json level_json(engine::amp::Dialect dialect, engine::amp::Level level) {
  const engine::amp::LevelRules& rules = engine::amp::level_rules(dialect, level);
  Json json = {{"level", name_of(level)}};
  if (rules.level != level) json["means"] = name_of(rules.level);
  json.update({{"scaler", rules.scaler},
               {"brings_scaler", rules.brings_scaler},
               {"uses_lists", rules.uses_lists},
               {"unlisted", unlisted_name(rules.unlisted)},
               {"widens_white_results", rules.widens_white_results},
               {"narrows_black_results", rules.narrows_black_results},
               {"low_model", rules.low_model},
               {"batch_norm_f32", rules.batch_norm_f32},
               {"layer_norm_f32", rules.layer_norm_f32},
               {"low_statistics", rules.low_statistics},
               {"fuses_bias", engine::amp::fuses_bias(dialect, rules.level)},
               {"master_weights", rules.master_weights},
               {"low_gradients", rules.low_gradients},
               {"unscales_to_f32", rules.unscales_to_f32},
               {"low_inputs", rules.low_inputs},
               {"f32_outputs", rules.f32_outputs},
               {"source", rules.source}});
  if (rules.uses_lists) json["op_lists"] = op_lists_json(dialect, level);
  return json;
}

Json dialect_json(engine::amp::Dialect dialect) {
  Json levels = Json::array();
  for (const engine::amp::Level level : engine::amp::levels_of(dialect))
    levels.push_back(level_json(dialect, level));
  return {{"name", name_of(dialect)}, {"levels", std::move(levels)}};
}

Json layer_json(const engine::nn::LayerType& type) {
  Json arguments = Json::array();
  for (const engine::nn::LayerArgument& argument : type.arguments)
    arguments.push_back({{"name", argument.name},
                         {"default", argument.standard ? engine::nn::text_of(*argument.standard) : ""},
                         {"required", !argument.standard && !argument.optional},
                         {"type", expectation_of(argument)},
                         {"description", argument.help}});
  return {{"name", type.name}, {"arguments", std::move(arguments)}, {"description", type.help}};
}

Json record_json(const RecordDescription& record) {
  Json fields = Json::array();
  for (const FieldDescription& field : record.fields)
    fields.push_back({{"name", field.name},
                      {"type", field.type},
                      {"unit", field.unit},
                      {"since", field.since},
                      {"optional", field.optional},
                      {"description", field.help}});
  return {{"name", record.file},
          {"written", record.what},
          {"fields", std::move(fields)},
          {"description", record.help}};
}

Json everything() {
  Json json = {{"layers", Json::array()},
               {"configs", Json::array()}};  // where none are installed, there is no row
  for (const engine::nn::LayerType& type : engine::nn::layer_types())
    json["layers"].push_back(layer_json(type));
  for (const ShippedConfig& config : shipped_configs())
    json["configs"].push_back({{"path", config.path.string()},
                               {"command", config.is_sweep ? "sweep" : "train"},
                               {"description", config.description}});
  for (const engine::data::DatasetInfo& info : engine::data::known_datasets())
    json["datasets"].push_back({{"name", info.name},
                                {"data", name_of(info.kind)},
                                {"package", info.package},
                                {"description", info.description}});
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
    json["policies"].push_back(policy_json(policy));
  for (const engine::amp::Dialect dialect : every<engine::amp::Dialect>)
    json["dialects"].push_back(dialect_json(dialect));
  for (const analysis::NamedFormat& format : analysis::named_formats())
    json["formats"].push_back(format_json(format));
  for (const TensorCoreModel& model : tensor_core_models())
    json["tensor_cores"].push_back(tensor_core_json(model));
  for (const LibraryPlan& plan : library_plans())
    json["plans"].push_back({{"name", plan.name},
                             {"library", plan.library},
                             {"rows", plan.rows},
                             {"rule", plan.rule},
                             {"parameters", plan.parameters},
                             {"unknown", plan.unknown},
                             {"evidence", name_of(plan.evidence)},
                             {"source", plan.source}});
  const RunConfig defaults;
  for (const ConfigKey& key : config_keys())
    json["config_keys"].push_back({{"name", key.name},
                                   {"default", value_text(defaults, key)},
                                   {"expected", expectation_of(key)},
                                   {"doc", key.doc},
                                   {"role", name_of(key.role)},
                                   {"read_with", readers_text(key)}});
  for (const SweepFileKey& key : sweep_file_keys())
    json["sweep_keys"].push_back({{"name", key.name},
                                  {"default", key.absent},
                                  {"expected", key.expected},
                                  {"doc", key.doc},
                                  {"read_with", ""}});
  for (const FrameworkName& row : framework_names())
    json["framework_names"].push_back(
        {{"name", row.name}, {"frameworks", row.frameworks}, {"key", row.key}, {"note", row.note}});
  for (const RecordDescription& record : described_records()) json["records"].push_back(record_json(record));
  return json;
}

/// What a pattern is compared with: the name; of a configuration, as -c takes it.
std::string name_in_list(const Json& row) {
  return row.contains("path") ? std::filesystem::path(row.at("path").get<std::string>()).stem().string()
                              : row.at("name").get<std::string>();
}

/// Patterns as of the shell; without a star or question mark a part of the name.
bool matches(const std::string& name, const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return name.find(pattern) != std::string::npos;
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

/// Those with such a name; else those that have such members (a column of a record), with these alone; else
/// those that say it somewhere.
Json rows_like(const Json& rows, const std::string& pattern) {
  Json like = Json::array();
  for (const Json& row : rows)
    if (matches(name_in_list(row), pattern)) like.push_back(row);
  if (!like.empty()) return like;
  for (Json row : rows)
    for (auto& [name, members] : row.items()) {
      if (!members.is_array() || members.empty() || !members.front().is_object()) continue;
      std::erase_if(members.get_ref<Json::array_t&>(), [&pattern](const Json& member) {
        return !member.contains("name") || !matches(member.at("name").get<std::string>(), pattern);
      });
      if (members.empty()) continue;
      like.push_back(row);
      break;
    }
  if (!like.empty()) return like;
  for (const Json& row : rows)
    if (row.dump().find(pattern) != std::string::npos) like.push_back(row);
  return like;
}

/// The sections that `words` name; the last word may be a pattern, which goes into `pattern`.
Json chosen(const Json& all, std::vector<std::string> words, std::string& pattern) {
  std::vector<std::string_view> known;
  for (const auto& [section, rows] : all.items()) known.push_back(section);
  if (words.size() > 1 && !all.contains(words.back())) {
    pattern = words.back();
    words.pop_back();
  }
  Json json;
  for (const std::string& section : words) {
    if (!all.contains(section))
      throw CommandError(ExitCode::usage, fmt::format("list: '{}': {}", section, known_are(section, known)));
    json[section] = pattern.empty() ? all.at(section) : rows_like(all.at(section), pattern);
  }
  bool found = false;
  for (const auto& [section, rows] : json.items()) found = found || !rows.empty();
  if (!pattern.empty() && !found) {
    std::vector<std::string> names;
    for (const std::string& section : words)
      for (const Json& row : all.at(section)) names.push_back(name_in_list(row));
    names.insert(names.end(), known.begin(), known.end());
    throw CommandError(ExitCode::usage,
                       fmt::format("list {}: nothing there is like '{}'{}", fmt::join(words, " "), pattern,
                                   did_you_mean(pattern, names)));
  }
  return json;
}

ExitCode run_list(const std::vector<std::string>& words, bool as_json) {
  const Json all = everything();
  std::string pattern;
  const Json json = words.empty() ? all : chosen(all, words, pattern);
  if (as_json)
    fmt::print("{}\n", json.dump(2));
  else if (words.empty())
    print_sections(all);
  else
    print_lists(json, !pattern.empty());
  return ExitCode::ok;
}

/// `has_code`: was this program built for it?
Json gpu_json(const engine::CudaDevice& gpu) {
  const std::string_view row = tensor_core_of(gpu.capability_major, gpu.capability_minor);
  Json advice = Json::array();
  for (const DType low : {DType::f16, DType::bf16, DType::tf32})
    if (std::string lacking = engine::lacking_text(gpu, low);
        !lacking.empty() && (advice.empty() || advice.back() != lacking))
      advice.push_back(std::move(lacking));
  return {{"ordinal", gpu.ordinal},
          {"name", gpu.name},
          {"compute_capability", fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor)},
          {"tensor_core", row.empty() ? Json() : Json(row)},
          {"has_code", engine::has_code_for(gpu)},
          {"multiprocessors", gpu.multiprocessors},
          {"memory_bytes", gpu.memory_bytes},
          {"advice", std::move(advice)}};
}

ExitCode run_devices(const CommonOptions& common, bool as_json) {
  Json json = {{"devices", Json::array({{{"name", "emulated"},
                                         {"hardware", cpu_name()},
                                         {"threads", default_threads()},
                                         {"vector_target", gemm_target_name()}}})}};
  const engine::CudaStatus cuda = engine::cuda_status();
  Json gpus = Json::array();
  for (const engine::CudaDevice& gpu : cuda.devices) gpus.push_back(gpu_json(gpu));
  const auto version = [](int number) -> Json {
    return number == 0 ? Json() : Json(cuda_version_text(number));
  };
  const Json software = {{"built_with_cuda", cuda.built},
                         {"least_compute_capability", engine::least_compute_capability},
                         {"driver_runs_cuda", version(cuda.driver_version)},
                         {"runtime", version(cuda.runtime_version)}};
  if (as_json) {
    json["gpus"] = std::move(gpus);
    json["gpus_missing_because"] = cuda.reason;
    json["cuda"] = software;
    fmt::print("{}\n", json.dump(2));
    return ExitCode::ok;
  }
  std::vector<std::string> warnings;
  for (Json& gpu : gpus) {
    for (const Json& advice : gpu.at("advice")) warnings.push_back(advice.get<std::string>());
    gpu.erase("advice");
  }
  if (!gpus.empty()) json["gpus"] = std::move(gpus);
  json["cuda"] = Json::array({software});
  bool first = true;
  for (const auto& [section, rows] : json.items()) {
    fmt::print("{}{}\n", first ? "" : "\n", section);
    first = false;
    print_rows(rows);
  }
  if (!common.quiet)
    for (const std::string& warning : warnings) say("warning: {}", warning);
  if (cuda.devices.empty()) fmt::print("\ngpus\n  none: {}\n", cuda.reason);
  return ExitCode::ok;
}

}  // namespace

Command list_command() {
  struct ListCommand {
    std::vector<std::string> words;
    bool json = false;
  };
  return {
      .name = "list",
      .description =
          "What there is to choose from: layers, configurations, data sets, policies, dialects, formats, "
          "tensor cores, keys, what frameworks call them, and the files of run folders. A section is one "
          "screen; with a pattern it says all of what is like it.",
      .examples =
          "fp16lab list\nfp16lab list policies\nfp16lab list config_keys scaler\nfp16lab list "
          "layers '*' --json",
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<ListCommand>();
        options
            .add("SECTION", command->words,
                 "layers, configs, datasets, policies, dialects, formats, tensor_cores, plans, config_keys, "
                 "sweep_keys, "
                 "framework_names, records; after them a PATTERN: '*' and '?' match, else a part of the name")
            .offers(offer_words({"layers", "configs", "datasets", "policies", "dialects", "formats",
                                 "tensor_cores", "plans", "config_keys", "sweep_keys", "framework_names",
                                 "records"}));
        options.flag("--json", command->json, "JSON instead of tables");
        return [command](const CommonOptions&) { return run_list(command->words, command->json); };
      }};
}

Command devices_command() {
  return {.name = "devices",
          .description = "Back ends and processors that are here",
          .examples = "  fp16lab devices\n  fp16lab devices --json",
          .declare = [](Options& options) -> Command::Run {
            auto as_json = std::make_shared<bool>(false);
            options.flag("--json", *as_json, "JSON instead of tables");
            return [as_json](const CommonOptions& common) { return run_devices(common, *as_json); };
          }};
}

}  // namespace fp16lab::experiments
