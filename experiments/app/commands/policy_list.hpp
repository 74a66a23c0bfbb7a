// Loss-scale policies as fp16lab list and fp16lab policy --list show them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/amp/policy.hpp"

namespace fp16lab::experiments {

/// Name, aliases, family, rule, source, and every parameter with its default, range and meaning.
nlohmann::ordered_json policy_json(const engine::amp::PolicyDescription& policy);

/// The rule in few words, with the defaults in the place of the parameters: "x 0.5 on overflow; x 2 after
/// 2000 good steps".
std::string short_rule(const engine::amp::PolicyDescription& policy);

/// A default or a bound as users write it: "2^24", "0.8", "true".
std::string value_text(const engine::amp::PolicyParameter& parameter, double value);

/// Rule, source and a line for every parameter, on stdout.
void print_policy(const engine::amp::PolicyDescription& policy);

}  // namespace fp16lab::experiments
