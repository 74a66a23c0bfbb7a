#include "experiments/app/commands/policy_list.hpp"
#include "numerics/text/scale_text.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace fp16lab::experiments {
namespace {

using engine::amp::PolicyDescription;
using engine::amp::PolicyParameter;
using Json = nlohmann::ordered_json;

std::string_view kind_name(PolicyParameter::Kind kind) {
  using enum PolicyParameter::Kind;
  return kind == real ? "real" : kind == integer ? "integer" : "boolean";
}

/// Infinity, which means no bound here, is null; measured infinities are strings (numerics/text/text.hpp).
Json number_json(const PolicyParameter& parameter, double value) {
  if (!std::isfinite(value)) return nullptr;
  if (parameter.kind == PolicyParameter::Kind::boolean) return value != 0;
  if (parameter.kind == PolicyParameter::Kind::integer) return static_cast<std::int64_t>(value);
  return value;
}

std::vector<std::string> aliases_of(std::string_view policy) {
  if (policy != engine::amp::canonical_policy_name(engine::amp::policy_alias)) return {};
  return {std::string(engine::amp::policy_alias)};
}

}  // namespace

Json policy_json(const PolicyDescription& policy) {
  Json parameters = Json::array();
  for (const PolicyParameter& parameter : policy.parameters) {
    Json row = {{"name", parameter.name},
                {"kind", kind_name(parameter.kind)},
                {"default", number_json(parameter, parameter.fallback)},
                {"expected", engine::amp::expectation_of(parameter)}};
    if (parameter.kind != PolicyParameter::Kind::boolean) {
      row["minimum"] = number_json(parameter, parameter.minimum);
      row["minimum_excluded"] = parameter.minimum_excluded;
      row["maximum"] = number_json(parameter, parameter.maximum);
      row["maximum_excluded"] = parameter.maximum_excluded;
    }
    row["help"] = parameter.help;
    parameters.push_back(std::move(row));
  }
  return {{"name", policy.name},
          {"aliases", aliases_of(policy.name)},
          {"family", policy.family.name},
          {"rule", policy.rule},
          {"source", policy.source},
          {"wants_statistics", policy.wants_statistics},
          {"per_layer", policy.per_layer},
          {"power_of_two_scales", policy.power_of_two_scales},
          {"parameters", std::move(parameters)}};
}

std::string value_text(const PolicyParameter& parameter, double value) {
  if (parameter.kind == PolicyParameter::Kind::boolean) return value != 0 ? "true" : "false";
  if (parameter.kind == PolicyParameter::Kind::integer) return fmt::format("{:.0f}", value);
  const bool near_one = value > 0x1p-4 && value < 0x1p11;  // factors
  const bool is_scale = parameter.name.find("scale") != std::string_view::npos;
  return is_scale || !near_one ? scale_text(value) : fmt::format("{}", value);
}

std::string short_rule(const PolicyDescription& policy) {
  std::string rule(policy.rule);
  if (rule.starts_with("as "))
    return rule;  // what it says of a parameter differs from what another policy does
  const auto is_letter = [&rule](std::size_t i) {
    return i < rule.size() && (std::isalnum(static_cast<unsigned char>(rule[i])) != 0 || rule[i] == '_');
  };
  const auto replace = [&](std::string_view words, std::string_view by, bool whole_name = false) {
    for (std::size_t at = 0; (at = rule.find(words, at)) != std::string::npos;) {
      const bool within = (at > 0 && is_letter(at - 1)) || is_letter(at + words.size());
      const std::string_view put = whole_name && within ? words : by;
      rule.replace(at, words.size(), put);
      at += put.size();
    }
  };
  for (const PolicyParameter& parameter : policy.parameters) {
    if (parameter.kind == PolicyParameter::Kind::boolean || !std::isfinite(parameter.fallback)) continue;
    if (parameter.name == "hysteresis")
      replace("hysteresis - 1", value_text(parameter, parameter.fallback - 1));
    replace(parameter.name, value_text(parameter, parameter.fallback), true);
  }
  for (const auto& [words, by] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"S *= 1 / ", "/ "},
           {"S *= ", "x "},
           {"S /= ", "/ "},
           {" on an overflow", " on overflow"},
           {" after 1 overflows in a row", " on overflow"},
           {" after 1 others", " after 1 other"},
           {" after 0 others (since the last growth, or in a row)", ""},
           {" good steps in a row", " good steps"},
           {"every 1 steps", "every step"},
           {" divides the number of steps since the last overflow", " divides the steps since"}})
    replace(words, by);
  return rule;
}

void print_policy(const PolicyDescription& policy) {
  std::string title(policy.name);
  for (const std::string& alias : aliases_of(policy.name)) title += ", " + alias;
  if (policy.wants_statistics) title += "  (by statistics of the gradients)";
  if (policy.per_layer) title += "  (a scale for each layer)";
  fmt::print("{}\n  {}\n  source: {}\n", title, policy.rule, policy.source);
  for (const PolicyParameter& parameter : policy.parameters)
    fmt::print("    {:<26} {:>8}  {}; {}\n", parameter.name, value_text(parameter, parameter.fallback),
               parameter.help, engine::amp::expectation_of(parameter));
}

}  // namespace fp16lab::experiments
