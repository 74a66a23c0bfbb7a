// fp16lab list and fp16lab devices: what there is to choose from.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/inspection.hpp"
#include "engine/amp/levels/op_lists.hpp"
#include "engine/amp/levels/recipe.hpp"
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
#include "numerics/convert/quantizer.hpp"
#include "numerics/files/run/record.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/named_enum.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool near_one = number > 0x1p-4 && number < 0x1p11;  // factors
    return near_one ? fmt::format("{}", number) : scale_text(number);
  }
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " ") + text_of(item);
  return text;
}

/// A text of its own lines.
void print_text(const std::string& text, std::size_t columns, std::size_t indent = 2) {
  fmt::print("{}{}\n", std::string(indent, ' '), wrapped(text, columns, indent, indent));
}

/// A member of a row as a column of a list.
struct Column {
  std::string member;  ///< "a|b": b where a is empty
  std::string heading = {};
};

/// "name bits=as": members, and headings where they have one, with '_' for a blank.
std::vector<Column> columns_of(const std::string& text) {
  std::vector<Column> columns;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size());
    std::string heading = equals < word.size() ? word.substr(equals + 1) : "";
    std::ranges::replace(heading, '_', ' ');
    columns.push_back({word.substr(0, equals), std::move(heading)});
  }
  return columns;
}

/// The name; of a configuration, as -c takes it.
std::string name_in_list(const Json& row) {
  return row.contains("path") ? std::filesystem::path(row.at("path").get<std::string>()).stem().string()
                              : row.at("name").get<std::string>();
}

std::string cell(const Json& row, const std::string& member) {
  if (member == "name") return name_in_list(row);
  const std::size_t bar = std::min(member.find('|'), member.size());
  const std::string text = row.contains(member.substr(0, bar)) ? text_of(row.at(member.substr(0, bar))) : "";
  if (text.empty() && bar < member.size()) return cell(row, member.substr(bar + 1));
  // Exact numbers have more digits than fit in a line.
  double number = 0;
  const char* const end = text.data() + text.size();
  constexpr std::size_t room = 12;
  if (text.size() > room && std::from_chars(text.data(), end, number).ptr == end)
    return fmt::format("{:.6g}", number);
  return text.substr(0, text.find('\n'));
}

/// Prints one row per line: columns of equal width, and as much of the last one as fits.
void print_table(const Json& rows, const std::string& members, std::size_t columns) {
  const std::vector<Column> shown = columns_of(members);
  std::vector<std::vector<std::string>> table;
  if (!shown.back().heading.empty()) {
    table.emplace_back();
    for (const Column& column : shown) table.back().push_back(column.heading);
  }
  for (const Json& row : rows) {
    table.emplace_back();
    for (const Column& column : shown) table.back().push_back(cell(row, column.member));
  }
  std::vector<std::size_t> widths(shown.size());
  for (const auto& line : table)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (const auto& line : table) {
    std::string text = " ";
    for (std::size_t i = 0; i + 1 < line.size(); ++i) text += fmt::format(" {:<{}} ", line[i], widths[i]);
    const std::size_t begun = text.size() + 1;
    text += " " + cut(line.back(), columns - std::min(columns, begun));
    fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
}

/// Rows within a row, of which the JSON has more.
bool is_nested(const Json& value) {
  return value.is_object() || (value.is_array() && !value.empty() && value.front().is_object());
}

/// All that is known of a row: what it is called, then a member a line, and of rows within it each in one
/// paragraph.
void print_details(const Json& row, std::size_t columns) {
  constexpr std::size_t indent = 6;
  print_text(text_of(row.front()), columns);
  for (const auto& [member, value] : row.items()) {
    if (value == row.front()) continue;
    if (!is_nested(value)) {
      if (const std::string text = cell(row, member); !text.empty())
        print_text(fmt::format("{}: {}", member, text), columns, indent);
      continue;
    }
    print_text(member + ":", columns, indent);
    for (const Json& inner : value) {
      std::string text;
      for (const auto& [name, part] : inner.items()) {
        const bool is_trait = part.is_boolean() && name != "default";
        const bool left_out = is_nested(part) || (is_trait && part == false);
        const std::string said = left_out ? "" : part.is_boolean() ? part.dump() : text_of(part);
        if (!said.empty())
          text += text.empty() ? said : is_trait ? "; " + name : fmt::format("; {}: {}", name, said);
      }
      print_text(text, columns, indent + 2);
    }
  }
}

/// By family, in the order in which families first appear; rules with the defaults in them.
void print_policies(const Json& rows, std::size_t columns) {
  std::vector<std::string> families;
  for (const Json& row : rows)
    if (std::string family = text_of(row.at("family")); std::ranges::find(families, family) == families.end())
      families.push_back(std::move(family));
  std::size_t width = 0;
  for (const Json& row : rows) width = std::max(width, text_of(row.at("name")).size());
  const auto print_line = [columns](const std::string& begin, std::string_view text) {
    fmt::print("{}  {}\n", begin, cut(text, columns - std::min(columns, begin.size() + 2)));
  };
  for (const std::string& family : families) {
    bool first = true;
    for (const Json& row : rows) {
      if (row.at("family") != family) continue;
      const engine::amp::PolicyDescription& policy = engine::amp::scale_policy(text_of(row.at("name")));
      if (std::exchange(first, false)) print_line(fmt::format(" {}:", family), policy.family.rule);
      print_line(fmt::format("  {:<{}}", policy.name, width), short_rule(policy));
    }
  }
}

/// A line a level.
void print_dialects(const Json& dialects, std::size_t columns) {
  Json rows = Json::array();
  for (const Json& dialect : dialects)
    for (const Json& level : dialect.at("levels")) {
      rows.push_back({{"dialect", dialect.at("name")}});
      rows.back().update(level);
    }
  print_table(rows,
              "dialect=dialect level=level means=means scaler=scaler brings_scaler=brought low_model=16_bits "
              "master_weights=masters source=source",
              columns);
}

/// The names of a section of a file in one paragraph.
void print_keys(const Json& keys, std::size_t columns) {
  std::vector<std::pair<std::string, std::string>> sections;
  for (const Json& key : keys) {
    const std::string name = text_of(key.at("name")), section = name.substr(0, name.find('.') + 1);
    if (sections.empty() || sections.back().first != section) sections.emplace_back(section, "");
    sections.back().second += " " + name.substr(section.size());
  }
  for (const auto& [section, names] : sections)
    fmt::print("  {:<11}{}\n", section, wrapped(names, columns, 13, 13));
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
          {"infinity", format.has_infinity},
          {"encoding", name_of(format.encoding)}};
}

Json tensor_core_json(const TensorCoreModel& row) {
  Json operands = Json::array();
  for (const DType format : dtypes<is_floating>)
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
          {"scales", scales_text(row)},
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

template <class Range, class Row>
Json rows_of(const Range& range, Row row) {
  Json rows = Json::array();
  for (const auto& item : range) rows.push_back(row(item));
  return rows;
}

Json config_json(const ShippedConfig& config) {
  return {{"path", config.path.string()},
          {"command", config.is_sweep ? "sweep" : "train"},
          {"description", config.description}};
}

Json dataset_json(const engine::data::DatasetInfo& info) {
  return {{"name", info.name},
          {"data", name_of(info.kind)},
          {"package", info.package},
          {"description", info.description}};
}

Json plan_json(const LibraryPlan& plan) {
  return {{"name", plan.name},
          {"library", plan.library},
          {"rows", plan.rows},
          {"rule", plan.rule},
          {"parameters", plan.parameters},
          {"unknown", plan.unknown},
          {"evidence", name_of(plan.evidence)},
          {"source", plan.source}};
}

std::string block_text(BlockShape block) {
  const auto extent = [](std::int64_t n) { return n == 0 ? std::string("all") : fmt::format("{}", n); };
  return extent(block.rows) + "x" + extent(block.columns);
}

Json quantizer_json(const Quantizer& quantizer) {
  Json rules = Json::array();
  for (const ScaleRule rule : rules_of(quantizer.scale)) rules.push_back(name_of(rule));
  return {{"name", quantizer.name},
          {"element", name_of(quantizer.element)},
          {"scale", name_of(quantizer.scale)},
          {"block", block_text(quantizer.block)},
          {"rule", name_of(quantizer.rule)},
          {"rules", std::move(rules)},
          {"source", quantizer.source}};
}

Json recipe_json(const engine::amp::Recipe& recipe) {
  const auto text = [](const Quantizer& quantizer) {
    return fmt::format("{}:{}", quantizer.name, name_of(quantizer.rule));
  };
  Json parts = Json::array();
  if (recipe.stochastic) parts.push_back("stochastic");
  if (recipe.hadamard) parts.push_back("hadamard");
  if (recipe.delayed) parts.push_back("delayed");
  return {{"name", recipe.name},           {"x", text(recipe.x)},
          {"weight", text(recipe.weight)}, {"gradient", text(recipe.gradient)},
          {"parts", std::move(parts)},     {"source", recipe.source}};
}

Json config_key_json(const ConfigKey& key) {
  return {{"name", key.name},
          {"default", value_text(RunConfig{}, key)},
          {"expected", expectation_of(key)},
          {"doc", key.doc},
          {"role", name_of(key.role)},
          {"read_with", readers_text(key)}};
}

Json sweep_key_json(const SweepFileKey& key) {
  return {{"name", key.name},
          {"default", key.absent},
          {"expected", key.expected},
          {"doc", key.doc},
          {"read_with", ""}};
}

Json framework_name_json(const FrameworkName& row) {
  return {{"name", row.name}, {"frameworks", row.frameworks}, {"key", row.key}, {"note", row.note}};
}

/// What the program's lists, the manual's look-up pages and completion are made from.
struct Section {
  const char* name;
  const char* what;
  Json (*rows)();
  const char* shown;                                               ///< on a line of the list: columns_of
  void (*print)(const Json& rows, std::size_t columns) = nullptr;  ///< in the place of such lines
  const char* note = "";                                           ///< below details
};

constexpr Section sections[] = {
    {"layers", "types of [[model.layer]], and their arguments",
     [] { return rows_of(engine::nn::layer_types(), layer_json); }, "name description", nullptr,
     "Every row may also have name, input (an earlier row or block, or a list of them; \"input\" is that of "
     "the network or of the block), to_float (f32, f16, bf16) and frozen. A block has name, layer (its "
     "rows), repeat (consecutive copies; {} in its name is their number, from first = 0) and input."},
    {"configs", "configurations that -c finds by name",
     [] { return rows_of(shipped_configs(), config_json); }, "name command description"},
    {"datasets", "data.name", [] { return rows_of(engine::data::known_datasets(), dataset_json); },
     "name data description"},
    {"policies", "scaler.policy: loss-scale policies, at their defaults",
     [] { return rows_of(engine::amp::scale_policies(), policy_json); }, "", print_policies},
    {"dialects", "amp.dialect and amp.level: frameworks' mixed precision",
     [] { return rows_of(every<engine::amp::Dialect>, dialect_json); }, "", print_dialects,
     "What amp.level means in each amp.dialect. Scaler: the framework's own; scaler.policy = \"auto\" uses "
     "it where the level includes it. --json shows the ops of each list."},
    {"formats", "floating-point formats", [] { return rows_of(analysis::named_formats(), format_json); },
     "name=name bits=as width=bits exponent_bits=exp precision=prec encoding=encoding max_finite=largest "
     "min_subnormal=least"},
    {"tensor_cores", "backend.tensor_core and mma --model; or a chip: h100",
     [] { return rows_of(all_tensor_core_models(), tensor_core_json); },
     "name=name operands=operands accumulator=acc products_per_block=L fraction_bits=F exponent_floor=E0 "
     "evidence=evidence",
     nullptr,
     "L: products in a fused block; F: fraction bits kept in alignment; E0: exponent floor; in stages, k "
     "counts "
     "products; scales: block scales that operands must have. Evidence: hardware, equals published captures "
     "of chips; hardware_test, asserted on chips by "
     "a "
     "public test suite; model, as published. Open, with options in fp16lab mma: subnormal_accumulator and "
     "underflow_zero."},
    {"plans", "how a library's call uses instructions", [] { return rows_of(library_plans(), plan_json); },
     "name rule"},
    {"quantizers", "codes with a scale for each block: MX, NVFP4, FP8",
     [] { return rows_of(quantizers(), quantizer_json); },
     "name=name element=elements scale=scales block=block rule=rule", nullptr,
     "Block: rows x columns that share a scale. Rule: how a block's greatest magnitude becomes the scale, "
     "and in "
     "which order elements are divided by it; rules are the others that these scales have."},
    {"recipes", "quantizers of the operands of linear layers: amp.recipe, lab.recipe",
     [] { return rows_of(engine::amp::recipes(), recipe_json); },
     "name=name x=x weight=weight gradient=gradient", nullptr,
     "An operand: quantizer and rule, in both of its products. Parts: gradients round stochastically; both "
     "operands "
     "of dw are transformed first; scales follow from earlier steps."},
    {"config_keys", "keys of configurations and of --set",
     [] { return rows_of(config_keys(), config_key_json); }, "", print_keys},
    {"sweep_keys", "keys of a sweep file: [[workload]] and [[variant]]",
     [] { return rows_of(sweep_file_keys(), sweep_key_json); }, "", print_keys},
    {"framework_names", "what frameworks call these keys",
     [] { return rows_of(framework_names(), framework_name_json); }, "name key note|frameworks"},
    {"records", "files of run folders: columns, units, meaning",
     [] { return rows_of(described_records(), record_json); }, "name written|description", nullptr,
     "Since: the first version of the file's schema that has it."},
};

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Section& section : sections) names.emplace_back(section.name);
  return names;
}

/// Sections of `json` by their names, a row a line. `details`: all that is known of the rows.
void print_lists(const Json& json, bool details) {
  const std::size_t columns = screen_columns();
  bool first = true;
  for (const Section& section : sections) {
    const Json rows = json.value(section.name, Json::array());
    if (rows.empty()) continue;
    fmt::print("{}{}: {}\n", std::exchange(first, false) ? "" : "\n", section.name, section.what);
    if (details)
      for (const Json& row : rows) print_details(row, columns);
    else if (section.print != nullptr)
      section.print(rows, columns);
    else
      print_table(rows, section.shown, columns);
    if (details && *section.note != '\0') print_text(section.note, columns);
  }
  // On one line however long the program's path is: the command can be pasted.
  if (!details)
    fmt::print("More: {} SECTION '*' shows all of each row, or of those like a name; --json.\n",
               own_command({"list"}));
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
    throw CommandError(ExitCode::usage, fmt::format("list {}: no entry matches '{}'{}", fmt::join(words, " "),
                                                    pattern, did_you_mean(pattern, names)));
  }
  return json;
}

ExitCode run_list(const std::vector<std::string>& words, bool as_json) {
  Json all;
  for (const Section& section : sections) all[section.name] = section.rows();
  std::string pattern;
  const Json json = words.empty() ? all : chosen(all, words, pattern);
  if (as_json) {
    fmt::print("{}\n", json.dump(2));
  } else if (!words.empty()) {
    print_lists(json, !pattern.empty());
  } else {
    for (const Section& section : sections)
      fmt::print("  {:<15} {:>4}  {}\n", section.name, all.at(section.name).size(), section.what);
    print_text("list SECTION shows a section, list SECTION PATTERN all about entries like it.",
               screen_columns(), 0);
  }
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
    std::string shown;
    for (const auto& [member, value] : rows.front().items()) shown += fmt::format("{0}={0} ", member);
    print_table(rows, shown, 1000);
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
  return {.name = "list",
          .description =
              "List available options: layers, configurations, data sets, policies, dialects, formats, "
              "tensor cores, keys, their names in frameworks, and the files of run folders. A section is one "
              "screen; a pattern selects entries and shows them in full.",
          .examples =
              "fp16lab list\nfp16lab list policies\nfp16lab list config_keys scaler.policy\nfp16lab list "
              "layers '*' --json",
          .declare = [](Options& options) -> Command::Run {
            auto command = std::make_shared<ListCommand>();
            options
                .add("SECTION", command->words,
                     fmt::format("{}; then a PATTERN: '*' and '?' are wildcards, or a part of the name",
                                 fmt::join(section_names(), ", ")))
                .offers({.words = section_names});
            options.flag("--json", command->json, "Print JSON instead of tables");
            return [command](const CommonOptions&) { return run_list(command->words, command->json); };
          }};
}

Command devices_command() {
  return {.name = "devices",
          .description = "Show available back ends and processors",
          .examples = "  fp16lab devices\n  fp16lab devices --json",
          .declare = [](Options& options) -> Command::Run {
            auto as_json = std::make_shared<bool>(false);
            options.flag("--json", *as_json, "Print JSON instead of tables");
            return [as_json](const CommonOptions& common) { return run_devices(common, *as_json); };
          }};
}

}  // namespace fp16lab::experiments
