// Parameters of loss-scale policies, as data: names, defaults, ranges, sources. Host only.
//
// Names are torch's where they mean the same thing (growth_factor, backoff_factor, growth_interval,
// initial_scale), and common to all peers where they do (hysteresis, bad_steps, min_scale, max_scale). Values
// are given by name; nothing takes them by position.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/amp/guards.hpp"

namespace fp16lab::engine::amp {

struct PolicyParameter {
  enum class Kind { real, integer, boolean };
  std::string_view name;
  double fallback = 0;  ///< the peer's default
  std::string_view help;
  Kind kind = Kind::real;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_excluded = false;
  bool maximum_excluded = false;
};

/// "a finite number above 1", "an integer from 1 up to 2^31", "true or false": for messages.
std::string expectation_of(const PolicyParameter& parameter);
/// std::invalid_argument "scaler.NAME = VALUE: must be EXPECTATION". NaN is never in range; the FP32 value of
/// a real must be in range too, because most policies compute in it.
void check_value(const PolicyParameter& parameter, double value);

/// A family of loss-scale policies: peers that differ in numbers and details of one rule.
struct PolicyFamily {
  std::string_view name;
  std::string_view rule;  ///< what they have in common
};
namespace policy_families {
inline constexpr PolicyFamily constant = {"constant", "S stays as it is"};
inline constexpr PolicyFamily good_steps = {"good-steps",
                                            "an overflow lowers S, growth_interval good steps raise it"};
inline constexpr PolicyFamily every_good_step = {"every-good-step",
                                                 "an overflow lowers S, every good step raises it"};
inline constexpr PolicyFamily bad_steps = {
    "bad-steps", "bad_steps overflows lower S, growth_interval good steps raise it"};
inline constexpr PolicyFamily hysteresis = {"hysteresis", "the first hysteresis - 1 overflows are forgiven"};
inline constexpr PolicyFamily overflow_rate = {"overflow-rate",
                                               "an overflow lowers S where overflows are frequent"};
inline constexpr PolicyFamily statistics = {"statistics", "the magnitudes of the gradients decide"};
inline constexpr PolicyFamily layers = {"layers", "S is constant, and scales of layers move"};
}  // namespace policy_families

/// The default of a parameter whose policies have different ones: rows of engine/amp/policy_list.hpp give
/// them.
inline constexpr double row_says = std::numeric_limits<double>::quiet_NaN();

enum ExcludedEnd { none_excluded, minimum_excluded, maximum_excluded, both_excluded };
constexpr PolicyParameter real_parameter(std::string_view name, double fallback, std::string_view help,
                                         double minimum, double maximum,
                                         ExcludedEnd excluded = none_excluded) {
  return {.name = name,
          .fallback = fallback,
          .help = help,
          .minimum = minimum,
          .maximum = maximum,
          .minimum_excluded = excluded == minimum_excluded || excluded == both_excluded,
          .maximum_excluded = excluded == maximum_excluded || excluded == both_excluded};
}
constexpr PolicyParameter count_parameter(std::string_view name, double fallback, std::string_view help,
                                          double minimum = 1, double maximum = 2147483647) {
  PolicyParameter parameter = real_parameter(name, fallback, help, minimum, maximum);
  parameter.kind = PolicyParameter::Kind::integer;
  return parameter;
}
constexpr PolicyParameter switch_parameter(std::string_view name, bool fallback, std::string_view help) {
  PolicyParameter parameter = real_parameter(name, fallback ? 1.0 : 0.0, help, 0, 1);
  parameter.kind = PolicyParameter::Kind::boolean;
  return parameter;
}

// The parameters that most policies share.
constexpr PolicyParameter initial_scale_parameter(std::string_view help = "scale of the first step") {
  return real_parameter("initial_scale", row_says, help, 0x1p-126, 0x1p127);
}
constexpr PolicyParameter growth_factor_parameter(
    std::string_view help = "the scale is multiplied by this when it grows") {
  return real_parameter("growth_factor", row_says, help, 1, std::numeric_limits<double>::infinity(),
                        both_excluded);
}
constexpr PolicyParameter one_factor_parameter() {
  return growth_factor_parameter(
      "the scale is multiplied by this when it grows and divided by it when it backs off");
}
constexpr PolicyParameter backoff_factor_parameter() {
  return real_parameter("backoff_factor", row_says, "the scale is multiplied by this when it backs off", 0, 1,
                        both_excluded);
}
constexpr PolicyParameter growth_interval_parameter() {
  return count_parameter("growth_interval", row_says, "good steps until the scale grows");
}

/// The guards as parameters of every policy (engine/amp/guards.hpp), with the defaults of peers that have
/// none.
inline constexpr std::array guard_parameters = {
    real_parameter("min_scale", 0, "floor of the scale; 0: none", 0, 0x1p127),
    real_parameter("max_scale", 0, "ceiling of the scale; 0: none", 0, 0x1p127),
    switch_parameter("finite_guard", true, "the scale stays where it would become 0 or infinite")};

/// The parameters of a rule that adds some to those of another.
template <std::size_t n, std::size_t m>
constexpr std::array<PolicyParameter, n + m> joined(const std::array<PolicyParameter, n>& first,
                                                    const std::array<PolicyParameter, m>& more) {
  std::array<PolicyParameter, n + m> all;
  std::copy(more.begin(), more.end(), std::copy(first.begin(), first.end(), all.begin()));
  return all;
}

/// Values by parameter name; what is missing has the policy's default. Names that a policy does not have mean
/// nothing to it.
using PolicySettings = std::map<std::string, double, std::less<>>;

/// All parameters of one policy, checked, with their values: what a policy makes its Params of.
class PolicyValues {
 public:
  PolicyValues() = default;
  explicit PolicyValues(PolicySettings values) : values_(std::move(values)) {}
  /// std::out_of_range for a name that the policy did not declare.
  double real(std::string_view name) const;
  float f32(std::string_view name) const { return static_cast<float>(real(name)); }
  int count(std::string_view name) const { return static_cast<int>(real(name)); }
  bool enabled(std::string_view name) const { return real(name) != 0.0; }
  /// Nothing: the policy has no such parameter.
  std::optional<double> find(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  const PolicySettings& all() const { return values_; }
  bool operator==(const PolicyValues&) const = default;

 private:
  PolicySettings values_;
};

/// The guards that the values need; powers of two are not among them.
Guards guards_of(const PolicyValues& values);

}  // namespace fp16lab::engine::amp
