#include "reports/data/run_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <stdexcept>

#include <toml++/toml.h>

#include "numerics/text/nesting.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "numerics/text/toml_text.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::string_view perturbation = "train.perturb_ulps";
constexpr std::string_view on_overflow = "scaler.on_overflow";

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

bool starts_with_any(std::string_view key, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    if (key.starts_with(prefix)) return true;
  return false;
}

bool sums_in_f16(const FlatConfig& config) { return value_or(config, "backend.accumulator", "f32") == "f16"; }

bool saturates(const FlatConfig& config) { return value_or(config, "backend.overflow", "") == "saturate"; }

/// How 16-bit weights take their updates, and gradients are rounded, where that is not by rounding to
/// nearest.
bool stores_otherwise(std::string_view key, const std::string& value) {
  return (key == "optimizer.kahan" && value == "true") || (key == "amp.rounding" && value != "nearest");
}

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

}  // namespace

std::string format_name(std::string_view dtype) {
  return dtype == "f16" ? "FP16" : dtype == "f32" ? "FP32" : upper(std::string(dtype));
}

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

std::string value_or(const FlatConfig& config, std::string_view key, std::string_view fallback) {
  const auto found = config.find(key);
  return found == config.end() ? std::string(fallback) : found->second;
}

double number_or(const FlatConfig& config, std::string_view key, double fallback) {
  const std::string text = value_or(config, key, "");
  double value = fallback;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : fallback;
}

std::string policy_of(const FlatConfig& config) {
  if (value_or(config, "scaler.enabled", "true") == "false") return "none";
  std::string policy = value_or(config, "scaler.policy", "none");
  return policy == "dynamic" ? "torch" : policy;
}

ConfigurationId configuration_of(const FlatConfig& config) {
  ConfigurationId id;
  const std::string level = value_or(config, "amp.level", "O0");
  const std::string policy = policy_of(config);
  id.precision =
      level == "O0" && value_or(config, "amp.to_float", "[]") == "[]" ? Precision::fp32 : Precision::low;
  const bool fixed = policy == "fixed" || policy == "mindspore-fixed";
  id.scaling = policy == "none" ? Scaling::none : fixed ? Scaling::fixed : Scaling::adaptive;
  if (id.scaling != Scaling::none) id.scale = number_or(config, "scaler.initial_scale", 1.0);

  id.label = id.precision == Precision::fp32 ? "FP32" : format_name(value_or(config, "amp.dtype", "f16"));
  // Levels mean what their dialect says; torch's O1 is what is meant where nothing is said.
  const std::string dialect = value_or(config, "amp.dialect", "torch");
  if (id.precision == Precision::low && dialect != "torch") id.label += " " + dialect;
  if (id.precision == Precision::low && (level != "O1" || dialect != "torch")) id.label += " " + level;
  switch (id.scaling) {
    case Scaling::none:
      if (id.precision == Precision::low && value_or(config, "amp.dtype", "f16") != "tf32")
        id.label += " no scaling";  // TF32 has FP32's range: nobody would scale
      break;
    case Scaling::fixed:
      id.label += " S=" + scale_text(id.scale);
      break;
    case Scaling::adaptive:
      id.label += " " + policy;
      break;
  }
  if (id.precision == Precision::low && sums_in_f16(config)) id.label += ", FP16 acc";
  if (id.precision == Precision::low && saturates(config)) id.label += ", saturating";
  if (value_or(config, on_overflow, "skip") == "zero") id.label += ", zeros at overflow";
  if (value_or(config, "optimizer.kahan", "false") == "true") id.label += ", Kahan";
  if (std::string rounding = value_or(config, "amp.rounding", "nearest"); rounding != "nearest") {
    std::replace(rounding.begin(), rounding.end(), '_', ' ');
    id.label += ", " + rounding;
  }
  id.perturb_ulps = static_cast<std::int64_t>(number_or(config, perturbation, 0));
  if (id.is_twin())
    id.label += " twin";
  else if (id.perturb_ulps != 0)
    id.label += fmt::format(" +{} ulp{}", id.perturb_ulps, id.perturb_ulps == 1 ? "" : "s");
  return id;
}

FlatConfig configuration_settings(const FlatConfig& config) {
  const ConfigurationId id = configuration_of(config);
  FlatConfig settings;
  for (const auto& [key, value] : config) {
    const bool precision = key == "amp.level" || (id.precision == Precision::low && key.starts_with("amp.") &&
                                                  key != "amp.rounding");
    const bool scaling =
        key == "scaler.policy" || (id.scaling == Scaling::fixed && key == "scaler.initial_scale") ||
        (id.scaling == Scaling::adaptive && key.starts_with("scaler.") && key != on_overflow) ||
        (key == on_overflow && value == "zero");  // older folders do not have it
    // Who divides by the scale; where nobody says otherwise, the scaler does.
    const bool division =
        (key == "scaler.drop_overflow_update" && value == "false" && id.scaling != Scaling::none) ||
        (key == "optimizer.loss_scale" && number_or(config, key, 1.0) != 1.0);
    // Older folders do not have the accumulator, nor what overflows give.
    const bool machine =
        key == "backend.device" || (id.precision == Precision::low && key.starts_with("backend.") &&
                                    (key != "backend.accumulator" || sums_in_f16(config)) &&
                                    (key != "backend.overflow" || saturates(config)));
    const bool perturbed = key == perturbation && id.perturb_ulps != 0;
    if (precision || scaling || division || machine || perturbed || stores_otherwise(key, value))
      settings.emplace(key, key == "scaler.policy" ? policy_of(config) : value);
  }
  return settings;
}

FlatConfig workload_settings(const FlatConfig& config) {
  FlatConfig settings;
  for (const auto& [key, value] : config) {
    if (starts_with_any(key, {"amp.", "scaler.", "backend.", "observe.", "checkpoint.", "report."})) continue;
    if (key == "train.seed" || key == "train.evaluate_every" || key == "train.skip_limit" ||
        key == "data.path" || key == "optimizer.loss_scale" || key == "optimizer.kahan" ||
        key == "train.graph" || key == "parallel.time_limit" || key == perturbation)
      continue;
    settings.emplace(key, value);
  }
  return settings;
}

std::string workload_name(const FlatConfig& config) {
  const std::string model = value_or(config, "model.name", "unnamed model");
  const std::string data = value_or(config, "data.name", "");
  return data.empty() ? model : model + " on " + data;
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
