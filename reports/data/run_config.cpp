#include "reports/data/run_config.hpp"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include <toml++/toml.h>

#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"
#include "numerics/text/toml_text.hpp"

namespace fp16lab::reports {
namespace {

/// Printable, as keys are below: the configuration may be another's.
std::string text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return printable(*text);
  return printable(toml_text(node));
}

bool holds_tables(const toml::node& node) {
  const toml::array* const array = node.as_array();
  return array != nullptr && array->is_homogeneous<toml::table>();
}

/// [[model.layer]]: "model.layer.fc1" is "linear, out_features = 128". Rows without a name are counted by
/// type.
void flatten_rows(const toml::array& rows, const std::string& prefix, FlatConfig& out) {
  std::map<std::string, int> unnamed;
  for (const toml::node& node : rows) {
    const toml::table& row = *node.as_table();
    const std::string type = printable(row["type"].value_or<std::string>(""));
    std::string name = printable(row["name"].value_or<std::string>(""));
    if (name.empty()) name = fmt::format("{}{}", type, ++unnamed[type]);
    std::string said = type;
    for (const auto& [key, value] : row) {
      if (key == "name" || key == "type") continue;
      if (holds_tables(value))
        flatten_rows(*value.as_array(), prefix + name + ".", out);
      else
        said += fmt::format("{}{} = {}", said.empty() ? "" : ", ", printable(key.str()), text_of(value));
    }
    out[prefix + name] = said;
  }
}

void flatten(const toml::table& table, const std::string& prefix, FlatConfig& out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + printable(key.str());
    if (const toml::table* inner = node.as_table())
      flatten(*inner, name + ".", out);
    else if (holds_tables(node))
      flatten_rows(*node.as_array(), name + ".", out);
    else
      out[name] = text_of(node);
  }
}

}  // namespace

FlatConfig flatten_toml(std::string_view toml, std::string_view where) {
  if (const std::optional<std::size_t> line = too_deep_in_toml(toml))
    throw std::runtime_error(fmt::format("{}: line {} of the configuration: nested deeper than {}", where,
                                         *line, deepest_nesting));
  try {
    FlatConfig flat;
    flatten(toml::parse(toml), "", flat);
    return flat;
  } catch (const toml::parse_error& error) {
    throw std::runtime_error(fmt::format("{}: line {} of the configuration: {}", where,
                                         error.source().begin.line, printable(error.description())));
  }
}

RunIdentity identity_by_sections(const FlatConfig& config) {
  FlatConfig workload, configuration;
  for (const auto& [key, value] : config) {
    if (key == "train.seed" || key == "data.path") continue;
    const std::string_view section = std::string_view(key).substr(0, key.find('.'));
    if (section == "amp" || section == "scaler" || section == "backend" || key == "train.perturb_ulps")
      configuration.emplace(key, value);
    else if (section == "model" || section == "data" || section == "train" || section == "optimizer")
      workload.emplace(key, value);
  }
  return identity_of(config, std::move(workload), std::move(configuration));
}

std::string pretty(std::string_view text) {
  static constexpr std::string_view digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit_after = i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9';
    const bool minus_after =
        i + 2 < text.size() && text[i + 1] == '-' && text[i + 2] >= '0' && text[i + 2] <= '9';
    const bool power = i > 0 && text[i - 1] == '2' && text[i] == '^' && (digit_after || minus_after);
    if (!power) {
      out += text[i];
      continue;
    }
    if (minus_after) {
      out += "⁻";
      ++i;
    }
    for (; i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9'; ++i)
      out += digits[static_cast<std::size_t>(text[i + 1] - '0')];
  }
  return out;
}

}  // namespace fp16lab::reports
