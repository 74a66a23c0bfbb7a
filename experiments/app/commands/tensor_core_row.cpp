#include "experiments/app/commands/tensor_core_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"
#include "numerics/text/toml_text.hpp"

namespace fp16lab::experiments {
namespace {

struct Key {
  std::string_view name;
  std::string help;
};

const std::vector<Key>& keys() {
  static const std::vector<Key> list{
      {"name", "name of the row in messages; default: the name of the file"},
      {"base", fmt::format("a --model whose row supplies the keys that the file leaves out: {}",
                           fmt::join(fp16lab::tensor_core_names(), ", "))},
      {"operands",
       fmt::format("which formats --in may name, as a list: {}", fmt::join(dtype_names<is_operand>, ", "))},
      {"block_size", fmt::format("L, products in a fused block: 1 to {}", max_block_size)},
      {"fraction_bits", "F, bits kept below the largest exponent: 1 to 48"},
      {"exponent_floor", "E0, the least exponent of the alignment: -1000 to 1000"},
      {"output", "final rounding, and with it --acc: " + known_names<BlockOutput>()},
      {"stage", "instead of the four above: [[stage]] for each step of an instruction, in these keys:"},
      {"  sum", "how it adds: " + known_names<Sum>()},
      {"  products",
       fmt::format("how many of the instruction's products it takes: 1 to {}; an addition none. An "
                   "instruction has as many as its stages take together",
                   max_block_size)},
      {"  run, groups, group",
       "which: the products k = 0, 1, .. of an instruction are dealt out in runs to groups in turn, and the "
       "stage "
       "takes those of its group, from 0: those with floor(k / run) mod groups = group. With run = 2, groups "
       "= 2 and "
       "group = 1 it takes k = 2, 3, 6, 7 and so on; default: 1, 1, 0, all of them"},
      {"  entry", "what enters beside them: " + known_names<Entry>() +
                      "; default: accumulator, of later stages previous"},
      {"  fraction_bits", "and exponent_floor: of an aligned sum, both required"},
      {"  output", "its rounding"},
      {"  exact_group", "with scales: products that are added exactly, as one term; default: 1"},
      {"scales",
       "block scales, as a list: [\"e8m0/32\"] has one of e8m0 for 32 elements of K; up to 3 kinds"},
      {"as_fp16", "true: FP8 operands become FP16 numbers first"},
      {"subnormal_accumulator", "as --subnormal-accumulator: " + known_names<SubnormalAccumulator>()},
      {"underflow_zero", "as --underflow-zero: " + known_names<UnderflowZero>()}};
  return list;
}

std::vector<std::string_view> names_of_keys(bool of_stages) {
  if (of_stages)
    return {"sum",           "products",       "run",    "groups",     "group", "entry",
            "fraction_bits", "exponent_floor", "output", "exact_group"};
  std::vector<std::string_view> names;
  for (const Key& key : keys())
    if (!key.name.starts_with(' ')) names.push_back(key.name);
  return names;
}

/// The keys of a table of a file, each read by its type and range.
class RowTable {
 public:
  /// `table` must live as long.
  RowTable(const toml::table& table, std::string_view source, bool is_stage)
      : source_(source), table_(table) {
    const std::vector<std::string_view> known = names_of_keys(is_stage);
    for (const auto& [name, node] : table_)
      if (std::find(known.begin(), known.end(), name.str()) == known.end())
        refuse_config(fmt::format("{}:{}", source_, name.source().begin.line),
                      fmt::format("unknown key '{}': {}", shown(name.str()), known_are(name.str(), known)));
  }

  bool has(std::string_view name) const { return table_.contains(name); }

  /// "FILE:3: block_size = 65: expected ..."; the key is there.
  [[noreturn]] void refuse(std::string_view name, const std::string& what) const {
    const toml::node& node = table_.at(name);
    refuse_config(fmt::format("{}:{}", source_, node.source().begin.line),
                  fmt::format("{} = {}: {}", name, shown(toml_text(node)), what));
  }
  [[noreturn]] void refuse_file(const std::string& what) const { refuse_config(source_, what); }

  std::optional<std::string> text(std::string_view name, const std::string& expected) const {
    const toml::node* const node = table_.get(name);
    if (node == nullptr) return std::nullopt;
    if (!node->is_string() || node->as_string()->get().empty()) refuse(name, "expected " + expected);
    return node->as_string()->get();
  }

  std::optional<int> integer(std::string_view name, int least, int most) const {
    const toml::node* const node = table_.get(name);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<std::int64_t>();
    if (!value || *value < least || *value > most)
      refuse(name, fmt::format("expected an integer from {} to {}", least, most));
    return static_cast<int>(*value);
  }

  template <NamedEnum Choice>
  std::optional<Choice> choice(std::string_view name) const {
    const std::optional<std::string> given = text(name, "one of the texts " + known_names<Choice>());
    if (!given) return std::nullopt;
    const std::optional<Choice> found = enumerator_called<Choice>(*given);
    if (!found) refuse(name, known_are(*given, names_of(Choice{})));
    return found;
  }

  std::optional<bool> boolean(std::string_view name) const {
    const toml::node* const node = table_.get(name);
    if (node == nullptr) return std::nullopt;
    if (!node->is_boolean()) refuse(name, "expected true or false");
    return node->as_boolean()->get();
  }

  /// Empty where there are none.
  std::vector<RowTable> stages() const {
    std::vector<RowTable> all;
    if (!has("stage")) return all;
    const toml::array* const list = table_.get("stage")->as_array();
    if (list == nullptr || !list->is_array_of_tables() || list->size() > Stages::most)
      refuse("stage", fmt::format("expected one to {} tables [[stage]]", Stages::most));
    for (const toml::node& node : *list) all.emplace_back(*node.as_table(), source_, true);
    return all;
  }

  /// Empty where the key is not there.
  std::vector<DType> operands() const {
    constexpr std::string_view name = "operands";
    std::vector<DType> formats;
    if (!has(name)) return formats;
    const auto& known = dtype_names<is_operand>;
    const toml::array* const list = table_.get(name)->as_array();
    if (list == nullptr || list->empty())
      refuse(name, fmt::format("expected a list such as [\"f16\"] of {}", fmt::join(known, ", ")));
    for (const toml::node& node : *list) {
      const std::string item = node.is_string() ? node.as_string()->get() : toml_text(node);
      const auto format = dtype_called<is_operand>(item);
      if (!node.is_string() || !format)
        refuse(name, fmt::format("'{}': {}", shown(item), known_are(item, known)));
      if (std::find(formats.begin(), formats.end(), *format) != formats.end())
        refuse(name, fmt::format("'{}' is named twice: expected each format once", item));
      formats.push_back(*format);
    }
    return formats;
  }

  std::optional<std::array<ScaleKind, 3>> scales() const {
    constexpr std::string_view name = "scales";
    if (!has(name)) return std::nullopt;
    std::array<ScaleKind, 3> kinds{};
    const toml::array* const list = table_.get(name)->as_array();
    if (list == nullptr || list->empty() || list->size() > kinds.size())
      refuse(name, "expected a list of one to three texts such as [\"e8m0/32\"]");
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string item = (*list)[i].value_or(std::string());
      for (const DType format : {DType::e8m0, DType::ue4m3})
        for (const int block : {16, 32})
          if (item == fmt::format("{}/{}", name_of(format), block)) kinds[i] = {format, block};
      if (kinds[i].block == 0)
        refuse(name, fmt::format("'{}': expected e8m0/16, e8m0/32, ue4m3/16 or ue4m3/32", shown(item)));
    }
    return kinds;
  }

 private:
  std::string source_;
  const toml::table& table_;  // a copy would forget its lines
};

toml::table parse(std::string_view toml, std::string_view source) {
  if (const std::optional<std::size_t> line = too_deep_in_toml(toml))
    refuse_config(fmt::format("{}:{}", source, *line), fmt::format("nested deeper than {}", deepest_nesting));
  try {
    return toml::parse(toml, source);
  } catch (const toml::parse_error& error) {
    refuse_config(fmt::format("{}:{}", source, error.source().begin.line), std::string(error.description()));
  }
}

OperandFormats set_of(const std::vector<DType>& formats) {
  constexpr std::size_t most = dtypes<is_operand>.size();
  return [&formats]<std::size_t... i>(std::index_sequence<i...>) {
    return OperandFormats(formats[std::min(i, formats.size() - 1)]...);  // the last one again and again
  }
  (std::make_index_sequence<most>{});
}

template <class Value>
void replace(Value& value, const std::optional<Value>& given) {
  if (given) value = *given;
}

/// A stage from its table; what it leaves out has Stage's defaults.
Stage stage_of(const RowTable& table) {
  Stage stage;
  replace(stage.sum, table.choice<Sum>("sum"));
  const bool adds = stage.sum == Sum::addition;
  for (const char* const key : {"products", "fraction_bits", "exponent_floor", "output"}) {
    const bool needed = std::string_view(key) == "output" ||
                        (stage.sum == Sum::aligned || (std::string_view(key) == "products" && !adds));
    if (needed && !table.has(key))
      table.refuse_file(fmt::format("a [[stage]] with sum \"{}\" has no key '{}'", name_of(stage.sum), key));
  }
  replace(stage.products, table.integer("products", adds ? 0 : 1, adds ? 0 : max_block_size));
  replace(stage.share.run, table.integer("run", 1, max_block_size));
  replace(stage.share.groups, table.integer("groups", 1, max_block_size));
  replace(stage.share.group, table.integer("group", 0, stage.share.groups - 1));
  replace(stage.entry, table.choice<Entry>("entry"));
  replace(stage.fraction_bits, table.integer("fraction_bits", 1, 48));
  replace(stage.exponent_floor, table.integer("exponent_floor", -1000, 1000));
  replace(stage.output, table.choice<BlockOutput>("output"));
  replace(stage.exact_group, table.integer("exact_group", 1, max_block_size));
  return stage;
}

/// The stages that the file gives as tables; nothing where it gives none.
std::optional<Stages> stages_of(const RowTable& file) {
  const std::vector<RowTable> tables = file.stages();
  if (tables.empty()) return std::nullopt;
  for (const char* const key : {"block_size", "fraction_bits", "exponent_floor", "output"})
    if (file.has(key))
      file.refuse(key, "expected it in the [[stage]] tables, which say what an instruction does");
  Stages stages{stage_of(tables.front())};
  for (std::size_t i = 1; i < tables.size(); ++i) {
    Stage stage = stage_of(tables[i]);
    if (stage.sum != Sum::addition && !tables[i].has("entry")) stage.entry = Entry::previous;
    stages.push_back(stage);
  }
  return stages;
}

std::string row_name(const RowTable& file, std::string_view source) {
  const std::filesystem::path path(source);
  const auto name = file.text("name", "a text that is not empty");
  if (!name) return printable(path.stem().string());
  if (printable(*name) != *name) file.refuse("name", "expected a text without control characters");
  return *name;
}

/// The row before single keys change it: base's, or one of the keys that must be there.
TensorCoreModel starting_row(const RowTable& file, const std::vector<DType>& operands, DType operand,
                             DType accumulator, const std::optional<Stages>& stages) {
  const auto base = file.text(
      "base", fmt::format("the name of a --model: {}", fmt::join(fp16lab::tensor_core_names(), ", ")));
  try {
    if (base) return tensor_core_model(*base, operand, accumulator);
  } catch (const std::invalid_argument& error) {
    file.refuse("base", error.what());
  }
  for (const char* const key : {"operands", "block_size", "fraction_bits", "exponent_floor", "output"}) {
    if (file.has(key) || (stages && std::string_view(key) != "operands")) continue;
    file.refuse_file(
        fmt::format("no key '{}': expected it, or base = \"hopper\" or another model to take it from", key));
  }
  return {.name = {},
          .hardware = "a row of your own",
          .operands = set_of(operands),
          .stages = {Stage{}},  // the numbers are in the file
          .evidence = Evidence::model,
          .source = "a file of your own"};
}

}  // namespace

std::string tensor_core_row_keys() {
  std::string text;
  for (const Key& key : keys()) text += fmt::format("  {:<21}  {}\n", key.name, key.help);
  return text;
}

OwnRow parse_tensor_core_row(std::string_view toml, std::string_view source,
                             const std::string& asked_operands, const std::string& asked_accumulator) {
  const toml::table table = parse(toml, source);
  const RowTable file(table, source, false);
  const auto name = std::make_shared<const std::string>(row_name(file, source));

  const std::vector<DType> operands = file.operands();
  const DType operand = !asked_operands.empty() ? operand_format(asked_operands)
                        : operands.empty()      ? DType::f16
                                                : operands.front();
  if (!operands.empty() && std::find(operands.begin(), operands.end(), operand) == operands.end())
    file.refuse("operands", fmt::format("expected {} among them, which --in asks for", name_of(operand)));

  const std::optional<Stages> stages = stages_of(file);
  const auto output = stages ? stages->back().output : file.choice<BlockOutput>("output");
  DType accumulator = output ? format_of(*output) : DType::f32;
  if (!asked_accumulator.empty()) accumulator = accumulator_format(asked_accumulator);
  if (output && format_of(*output) != accumulator) {
    const std::string expected =
        fmt::format("expected one that gives {}, which --acc asks for", name_of(accumulator));
    const std::string_view given = name_of(format_of(*output));
    if (stages) file.refuse_file(fmt::format("the last [[stage]] gives {}: {}", given, expected));
    file.refuse("output", fmt::format("it gives {}, {}", given, expected));
  }

  OwnRow own{name, starting_row(file, operands, operand, accumulator, stages), operand};
  TensorCoreModel& row = own.row;
  row.name = *name;
  if (!operands.empty()) row.operands = set_of(operands);
  replace(row.stages, stages);
  replace(row.as_fp16, file.boolean("as_fp16"));
  replace(row.scales, file.scales());
  const auto number = [&](const char* key, int Stage::*field, int least, int most) {
    if (const auto given = file.integer(key, least, most)) row.set(field, *given);
  };
  if (file.has("block_size") && row.stages.size() > 1)
    file.refuse("block_size",
                fmt::format("expected no such key, or [[stage]] tables: an instruction of {} has {}",
                            row.name, stages_text(row)));
  number("block_size", &Stage::products, 1, max_block_size);
  number("fraction_bits", &Stage::fraction_bits, 1, 48);
  number("exponent_floor", &Stage::exponent_floor, -1000, 1000);
  if (output && !stages) row.set(&Stage::output, *output);
  replace(row.subnormal_accumulator, file.choice<SubnormalAccumulator>("subnormal_accumulator"));
  replace(row.underflow_zero, file.choice<UnderflowZero>("underflow_zero"));

  try {
    fused_dot_add(row, operand, {}, operand, {}, 0);  // judges the stages
  } catch (const std::invalid_argument& error) {
    file.refuse_file(error.what());
  }
  if (row.subnormal_accumulator == SubnormalAccumulator::own_exponent && row.accumulator() != DType::f16)
    file.refuse("subnormal_accumulator",
                fmt::format("the row has no FP16 accumulator: expected output = \"{}\", or no such key",
                            name_of(BlockOutput::fp16_nearest_even)));
  if (row.subnormal_accumulator == SubnormalAccumulator::fp16_emin && row.accumulator() != DType::f32)
    file.refuse("subnormal_accumulator", "the row has no FP32 accumulator: expected emin or own_exponent");
  return own;
}

OwnRow load_tensor_core_row(const std::filesystem::path& path, const std::string& operands,
                            const std::string& accumulator) {
  std::string text;
  try {
    text = read_file(path, longest::document, NamedHow::by_user);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("--row: {}", error.what()));
  }
  return parse_tensor_core_row(text, path.string(), operands, accumulator);
}

}  // namespace fp16lab::experiments
