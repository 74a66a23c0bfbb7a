#include "engine/amp/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/amp/policy_list.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {
namespace {

template <class Policy>
inline constexpr bool stops = requires(const typename Policy::State& state, const PolicySettings& values) {
  Policy::stop(state, values);
};

template <class Policy>
std::optional<std::string> stop_of(const StepState& step, const PolicySettings& values) {
  typename Policy::State state;
  std::memcpy(&state, step.policy.data(), sizeof(state));
  return Policy::stop(state, values);
}

/// `values` are checked, and all that the policy declares and the guards are among them.
template <class Policy>
ScalePolicy build(const PolicyValues& values, const Guards& guards) {
  using State = typename Policy::State;
  using Program = PolicyProgram<Policy>;
  static_assert(std::is_trivially_copyable_v<typename Policy::Params> && std::is_trivially_copyable_v<State>);
  static_assert(sizeof(Program) <= sizeof(ScalarProgram::parameters));
  ScalePolicy policy;
  policy.name = Policy::name;
  policy.values = values.all();
  policy.wants_statistics = Policy::wants_statistics;
  if constexpr (stops<Policy>) policy.stop = &stop_of<Policy>;
  Program program{};
  program.guards = guards;
  program.params = Policy::params(values);
  policy.update.name = policy_program_name<Policy>.data();
  policy.update.function = &run_policy<Policy>;
  std::memcpy(policy.update.parameters.data(), &program, sizeof(program));
  const State state = Policy::initial(program.params);
  std::memcpy(policy.initial.policy.data(), &state, sizeof(state));
  policy.initial.set_scale(applied_scale(static_cast<double>(state.scale), guards));
  return policy;
}

template <class Policy>
PolicyDescription describe() {
  PolicyDescription description{.name = Policy::name,
                                .rule = Policy::rule,
                                .source = Policy::source,
                                .parameters = {Policy::parameters.begin(), Policy::parameters.end()},
                                .wants_statistics = Policy::wants_statistics};
  if constexpr (requires { Policy::power_of_two_scales; })
    description.power_of_two_scales = Policy::power_of_two_scales;
  if constexpr (requires { Policy::per_layer; }) description.per_layer = Policy::per_layer;
  if constexpr (requires { Policy::constant; }) description.constant = Policy::constant;
  for (const PolicyParameter& guard : guard_parameters)
    if (description.find(guard.name) == nullptr) description.parameters.push_back(guard);
  return description;
}

/// What to build each of scale_policies() by, at the same place.
using Builder = ScalePolicy (*)(const PolicyValues& values, const Guards& guards);

template <class... Policies>
std::vector<PolicyDescription> descriptions_of(PolicyList<Policies...>) {
  return {describe<Policies>()...};
}

template <class... Policies>
constexpr auto builders_of(PolicyList<Policies...>) {
  return std::array<Builder, sizeof...(Policies)>{&build<Policies>...};
}

constexpr auto builders = builders_of(ScalePolicies{});

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

Guards guards_of(const PolicyValues& values, PowerOfTwo power_of_two) {
  const double ceiling = values.real("max_scale");
  return {.min_scale = values.real("min_scale"),
          .max_scale = ceiling == 0 ? std::numeric_limits<double>::infinity() : ceiling,
          .finite_guard = values.enabled("finite_guard") ? 1u : 0u,
          .round_to_power_of_two = power_of_two == PowerOfTwo::round_down ? 1u : 0u};
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

}  // namespace

PolicySettings ScalerOptions::settings() const {
  PolicySettings all = parameters;
  const auto set = [&all](const char* name, const std::optional<double>& value) {
    if (value) all.insert_or_assign(name, *value);
  };
  set("initial_scale", initial_scale);
  set("growth_factor", growth_factor);
  set("backoff_factor", backoff_factor);
  set("growth_interval", growth_interval);
  return all;
}

std::optional<double> ScalerOptions::parameter(std::string_view name) const {
  const PolicyParameter* const declared = scale_policy(policy).find(name);
  if (declared == nullptr) return std::nullopt;
  const PolicySettings given = settings();
  const auto found = given.find(name);
  return found == given.end() ? declared->fallback : found->second;
}

ScalePolicy make_scale_policy(const ScalerOptions& options) {
  const PolicyDescription& description = scale_policy(options.policy);
  require_checks(options, description);
  require_checks_to_zero(options);
  const PolicySettings settings = options.settings();
  for (const auto& [name, value] : settings) require_parameter(nullptr, name);
  const PolicyValues values = values_of(description, settings);
  const Guards guards = guards_of(values, options.power_of_two);
  require_order(guards, values);
  return builders[static_cast<std::size_t>(&description - scale_policies().data())](values, guards);
}

ScalarProgram with_statistics(const ScalePolicy& policy, const GradientStatistics* statistics) {
  ScalarProgram program = policy.update;
  std::memcpy(program.parameters.data(), &statistics, sizeof(statistics));
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
    const auto value = policy.values.find(name);
    if (value == policy.values.end() || value->second == 0 || is_power_of_two(value->second)) continue;
    // Scales of layers are rounded down to powers of two themselves, and S stays where it begins.
    if (description.per_layer && value->first != "initial_scale") continue;
    return fmt::format(
        "scaler.{} = {} is no power of two: multiplying by S and by 1/S then rounds every gradient twice; "
        "scaler.power_of_two = \"round_down\" keeps the rule and uses the power of two below its scale",
        name, value->second);
  }
  if (!description.power_of_two_scales)
    return fmt::format(
        "scaler.policy = \"{}\" uses scales that are no powers of two: multiplying by S and by 1/S then "
        "rounds "
        "every gradient twice; scaler.power_of_two = \"round_down\" keeps the rule and uses the power of two "
        "below",
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
  static const std::vector<PolicyDescription> descriptions = descriptions_of(ScalePolicies{});
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
