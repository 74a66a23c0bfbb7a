#include "experiments/app/commands/list_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/policy.hpp"
#include "experiments/app/commands/policy_list.hpp"
#include "experiments/app/help/terminal.hpp"

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
    print_row(fmt::format("  {}:", family.name), std::string(family.rule), columns, details);
    for (const Json& row : rows) {
      if (row.at("family") != family.name) continue;
      const engine::amp::PolicyDescription& policy = engine::amp::scale_policy(text_of(row.at("name")));
      if (!details) {
        print_row(fmt::format("    {:<{}}", policy.name, width), short_rule(policy), columns, false);
        continue;
      }
      fmt::print("    {}\n", policy.name);
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

/// Numbers with six digits; with `details` all of them.
void print_formats(const Json& rows, std::size_t, bool details) {
  if (details) return print_table(rows);
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

}  // namespace

void print_table(const Json& rows) {
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

void print_sections(const Json& all) {
  const std::size_t columns = screen_columns();
  for (const Section& section : sections)
    print_row(fmt::format("  {:<12} {:>4}", section.name, all.at(section.name).size()), section.what, columns,
              true);
  print_text("fp16lab list SECTION shows one; with a PATTERN after it, all about what is like that.", columns,
             0);
}

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

}  // namespace fp16lab::experiments
