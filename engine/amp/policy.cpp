#include "engine/amp/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/amp/policy_list.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {
namespace {

PolicyDescription describe(const PolicyRow& row) {
  PolicyDescription description{.name = row.name,
                                .rule = row.rule_text,
                                .source = row.source,
                                .family = *row.rule.family,
                                .parameters = {row.rule.parameters.begin(), row.rule.parameters.end()},
                                .wants_statistics = row.rule.wants_statistics,
                                .constant = row.rule.constant,
                                .per_layer = row.rule.per_layer,
                                .power_of_two_scales = row.rule.power_of_two_scales};
  // The guards that the peer has come first, then those that it lacks.
  for (const bool given : {true, false})
    for (const PolicyParameter& guard : guard_parameters)
      if ((row.find(guard.name) != nullptr) == given) description.parameters.push_back(guard);
  for (PolicyParameter& parameter : description.parameters)
    if (const PolicyDefault* const own = row.find(parameter.name)) parameter.fallback = own->value;
  return description;
}

/// For policies that move with found_inf.
void require_checks(const ScalerOptions& options, const PolicyDescription& policy) {
  if (options.drop_overflow_update || policy.constant) return;
  throw std::invalid_argument(
      fmt::format("scaler.drop_overflow_update = false: no gradient is checked then, but policy \"{}\" "
                  "answers to overflows; "
                  "use \"fixed\" or \"none\" with it",
                  options.policy));
}

void require_checks_to_zero(const ScalerOptions& options) {
  if (options.on_overflow == OnOverflow::skip || options.drop_overflow_update) return;
  throw std::invalid_argument(
      "scaler.on_overflow = \"zero\" with scaler.drop_overflow_update = false: no gradient is checked then; "
      "expected \"skip\"");
}

void require_order(const Guards& guards, const PolicyValues& values) {
  if (guards.max_scale < guards.min_scale)
    throw std::invalid_argument(fmt::format("scaler.max_scale = {}: must not be below scaler.min_scale = {}",
                                            guards.max_scale, guards.min_scale));
  const PolicySettings& all = values.all();
  const auto initial = all.find("initial_scale");
  if (initial == all.end()) return;
  if (initial->second < guards.min_scale || initial->second > guards.max_scale)
    throw std::invalid_argument(
        fmt::format("scaler.initial_scale = {}: must be from scaler.min_scale = {} to scaler.max_scale = {}",
                    initial->second, guards.min_scale, guards.max_scale));
}

PolicyValues values_of(const PolicyDescription& description, const PolicySettings& settings) {
  PolicySettings values;
  for (const PolicyParameter& parameter : description.parameters) {
    const auto given = settings.find(parameter.name);
    const double value = given == settings.end() ? parameter.fallback : given->second;
    check_value(parameter, value);
    values.emplace(parameter.name, value);
  }
  return PolicyValues(std::move(values));
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

/// `parameters` and the four in one.
PolicySettings given_in(const ScalerOptions& options) {
  PolicySettings all = options.parameters;
  const auto set = [&all](const char* name, const std::optional<double>& value) {
    if (value) all.insert_or_assign(name, *value);
  };
  set("initial_scale", options.initial_scale);
  set("growth_factor", options.growth_factor);
  set("backoff_factor", options.backoff_factor);
  set("growth_interval", options.growth_interval);
  return all;
}

}  // namespace

std::optional<double> ScalerOptions::parameter(std::string_view name) const {
  const PolicyParameter* const declared = scale_policy(policy).find(name);
  if (declared == nullptr) return std::nullopt;
  const PolicySettings given = given_in(*this);
  const auto found = given.find(name);
  return found == given.end() ? declared->fallback : found->second;
}

ScalePolicy make_scale_policy(const ScalerOptions& options) {
  const PolicyDescription& description = scale_policy(options.policy);
  require_checks(options, description);
  require_checks_to_zero(options);
  const PolicySettings settings = given_in(options);
  for (const auto& [name, value] : settings) require_parameter(nullptr, name);
  const PolicyValues values = values_of(description, settings);
  Guards guards = guards_of(values);
  guards.round_to_power_of_two = options.power_of_two == PowerOfTwo::round_down ? 1u : 0u;
  require_order(guards, values);
  const auto row = static_cast<std::size_t>(&description - scale_policies().data());
  const PolicyRule& rule = policy_table::rows[row].rule;
  ScalePolicy policy{.name = std::string(description.name),
                     .initial = {},
                     .update = {.name = policy_table::program_names[row].data(), .function = rule.run},
                     .values = values,
                     .wants_statistics = rule.wants_statistics,
                     .stop = rule.stop};
  rule.begin(values, guards, policy.update, policy.initial);
  return policy;
}

ScalarProgram with_statistics(const ScalePolicy& policy, const GradientStatistics* statistics) {
  ScalarProgram program = policy.update;
  PolicyProgram head;
  std::memcpy(&head, program.parameters.data(), sizeof(head));
  head.statistics = statistics;
  std::memcpy(program.parameters.data(), &head, sizeof(head));
  return program;
}

void advance(const ScalePolicy& policy, StepState& step, const Observation& observation) {
  step.found_inf = {};
  step.found_inf.front() = observation.found_inf ? 1.0f : 0.0f;
  const ScalarProgram program = with_statistics(policy, observation.statistics);
  program.function(step, program.parameters.data());
}

std::optional<std::string> inexact_unscaling(const ScalerOptions& options, const ScalePolicy& policy) {
  if (options.power_of_two == PowerOfTwo::round_down) return std::nullopt;
  const PolicyDescription& description = scale_policy(policy.name);
  for (const char* const name :
       {"initial_scale", "growth_factor", "backoff_factor", "min_scale", "max_scale"}) {
    const std::optional<double> value = policy.values.find(name);
    if (!value || *value == 0 || is_power_of_two(*value)) continue;
    // Scales of layers are rounded down to powers of two themselves, and S stays where it begins.
    if (description.per_layer && std::string_view(name) != "initial_scale") continue;
    return fmt::format(
        "scaler.{} = {} is not a power of two: multiplying by S and by 1/S then rounds every gradient twice; "
        "scaler.power_of_two = \"round_down\" keeps the rule and uses the power of two below its scale",
        name, *value);
  }
  if (!description.power_of_two_scales)
    return fmt::format(
        "scaler.policy = \"{}\" uses scales that are not powers of two: multiplying by S and by 1/S then "
        "rounds every gradient twice; scaler.power_of_two = \"round_down\" keeps the rule and uses the power "
        "of two below",
        description.name);
  return std::nullopt;
}

void require_parameter(const PolicyDescription* policy, std::string_view name,
                       std::span<const std::string_view> besides) {
  std::vector<std::string_view> known;
  if (policy != nullptr) {
    for (const PolicyParameter& parameter : policy->parameters) known.push_back(parameter.name);
  } else {
    for (const PolicyParameter& parameter : policy_parameters()) known.push_back(parameter.name);
  }
  known.insert(known.end(), besides.begin(), besides.end());
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw std::invalid_argument(fmt::format(
      "{} parameter '{}': {}{}",
      policy != nullptr ? fmt::format("policy {} has no", policy->name) : "no policy has a", name,
      known_are(name, known),
      policy != nullptr && policy->name == "none" ? "; S stays 1 unless scaler.policy names another policy"
                                                  : ""));
}

const PolicyParameter* PolicyDescription::find(std::string_view parameter) const {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [parameter](const PolicyParameter& p) { return p.name == parameter; });
  return found == parameters.end() ? nullptr : &*found;
}

std::span<const PolicyDescription> scale_policies() {
  static const std::vector<PolicyDescription> descriptions = [] {
    std::vector<PolicyDescription> all;
    for (const PolicyRow& row : policy_table::rows) all.push_back(describe(row));
    return all;
  }();
  return descriptions;
}

const PolicyDescription& scale_policy(std::string_view name) {
  name = canonical_policy_name(name);
  const std::span<const PolicyDescription> all = scale_policies();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const PolicyDescription& policy) { return policy.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string_view> known;
  for (const PolicyDescription& policy : all) known.push_back(policy.name);
  known.push_back(policy_alias);
  throw std::invalid_argument(fmt::format("scaler.policy = \"{}\": {}", name, known_are(name, known)));
}

std::string_view canonical_policy_name(std::string_view name) {
  return name == policy_alias ? "torch" : name;
}

std::span<const PolicyParameter> policy_parameters() {
  static const std::vector<PolicyParameter> joined = [] {
    std::vector<PolicyParameter> all;
    for (const PolicyDescription& policy : scale_policies()) {
      for (const PolicyParameter& parameter : policy.parameters) {
        const auto known = std::find_if(all.begin(), all.end(),
                                        [&](const PolicyParameter& p) { return p.name == parameter.name; });
        if (known == all.end()) {
          all.push_back(parameter);
          continue;
        }
        if (parameter.minimum < known->minimum) {
          known->minimum = parameter.minimum;
          known->minimum_excluded = parameter.minimum_excluded;
        }
        if (parameter.maximum > known->maximum) {
          known->maximum = parameter.maximum;
          known->maximum_excluded = parameter.maximum_excluded;
        }
      }
    }
    return all;
  }();
  return joined;
}

}  // namespace fp16lab::engine::amp
