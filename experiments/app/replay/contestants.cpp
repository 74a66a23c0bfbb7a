#include "experiments/app/replay/contestants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "numerics/formats/decimal.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

using engine::amp::PolicyDescription;

constexpr std::string_view interval_name = "growth_interval";
constexpr std::string_view all_policies = "scaler";

struct Setting {
  std::string text;    ///< as given, for messages
  std::string policy;  ///< "scaler": all
  std::string parameter;
  double value = 0;
};

double value_of(const std::string& text, const std::string& setting) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  try {
    return parse_number(text).value.to_double();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--set {}: {}", setting, error.what()));
  }
}

Setting parse(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals || dot == 0 ||
      dot + 1 == equals)
    throw std::invalid_argument(
        fmt::format("--set {}: expected POLICY.PARAMETER=VALUE, such as torch.growth_interval=20, or "
                    "scaler.PARAMETER=VALUE for every policy that has it",
                    text));
  const std::string policy = text.substr(0, dot);
  return {.text = text,
          .policy = policy == all_policies ? policy : std::string(engine::amp::scale_policy(policy).name),
          .parameter = text.substr(dot + 1, equals - dot - 1),
          .value = value_of(text.substr(equals + 1), text)};
}

/// Is the parameter one of `description`, or at least of some policy where the setting is for all?
void check(const Setting& setting, const PolicyDescription* description) {
  try {
    engine::amp::require_parameter(description, setting.parameter);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--set {}: {}", setting.text, error.what()));
  }
}

ReplayedPolicy row_of(const PolicyDescription& description, const engine::amp::ScalePolicy& policy) {
  ReplayedPolicy row;
  row.name = row.label = description.name;
  for (const engine::amp::PolicyParameter& parameter : description.parameters)
    row.parameters.emplace_back(parameter.name, policy.values.at(std::string(parameter.name)));
  row.source = description.source;
  row.per_layer = description.per_layer;
  return row;
}

}  // namespace

std::vector<Contestant> contestants(const ContestantOptions& options) {
  std::vector<const PolicyDescription*> chosen;
  const auto takes_part = [&chosen](const PolicyDescription& description) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&](const PolicyDescription* known) { return known->name == description.name; });
  };
  const auto choose = [&](const PolicyDescription& description) {
    if (!takes_part(description)) chosen.push_back(&description);
  };
  for (const std::string& name : options.policies) choose(engine::amp::scale_policy(name));
  if (options.policies.empty())
    for (const PolicyDescription& description : engine::amp::scale_policies()) choose(description);

  std::vector<Setting> settings;
  for (const std::string& text : options.settings) {
    const Setting& setting = settings.emplace_back(parse(text));
    const PolicyDescription* const description =
        setting.policy == all_policies ? nullptr : &engine::amp::scale_policy(setting.policy);
    check(setting, description);
    if (description != nullptr && !takes_part(*description))
      throw std::invalid_argument(
          fmt::format("--set {}: policy {} does not take part", setting.text, description->name));
    const bool meant =
        description != nullptr || std::any_of(chosen.begin(), chosen.end(), [&](const auto* candidate) {
          return candidate->find(setting.parameter) != nullptr;
        });
    if (!meant)
      throw std::invalid_argument(fmt::format("--set {}: no policy that takes part has the parameter '{}'",
                                              setting.text, setting.parameter));
  }

  std::vector<Contestant> result;
  for (const PolicyDescription* const description : chosen) {
    engine::amp::ScalerOptions scaler;
    scaler.policy = description->name;
    if (options.interval) {
      const engine::amp::PolicyParameter* const interval = description->find(interval_name);
      if (interval != nullptr && interval->fallback > static_cast<double>(*options.interval))
        scaler.parameters[std::string(interval_name)] = static_cast<double>(*options.interval);
    }
    for (const Setting& setting : settings)
      if ((setting.policy == all_policies && description->find(setting.parameter) != nullptr) ||
          setting.policy == description->name)
        scaler.parameters[setting.parameter] = setting.value;
    try {
      Contestant contestant{.policy = engine::amp::make_scale_policy(scaler), .row = {}};
      contestant.row = row_of(*description, contestant.policy);
      result.push_back(std::move(contestant));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("policy {}: {}", description->name, error.what()));
    }
  }
  return result;
}

Contestant fixed_contestant(double scale, std::string name, std::string label, std::string source) {
  Contestant contestant{.policy = engine::amp::make_scale_policy({.policy = "fixed", .initial_scale = scale}),
                        .row = {}};
  contestant.row.name = std::move(name);
  contestant.row.label = std::move(label);
  contestant.row.source = std::move(source);
  contestant.row.parameters = {{"initial_scale", scale}};
  return contestant;
}

}  // namespace fp16lab::experiments
