// Parameters of loss-scale policies, as data: names, defaults, ranges, sources. Host only.
//
// Names are torch's where they mean the same thing (growth_factor, backoff_factor, growth_interval,
// initial_scale), and common to all peers where they do (hysteresis, bad_steps, min_scale, max_scale). Values
// are given by name; nothing takes them by position.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

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
/// std::invalid_argument "scaler.NAME = VALUE: must be EXPECTATION". NaN is never in range; of reals, what
/// FP32 makes of the value must be in range too, because most policies compute in it.
void check_value(const PolicyParameter& parameter, double value);

// The parameters that most policies share.
constexpr PolicyParameter initial_scale_parameter(double fallback,
                                                  std::string_view help = "scale of the first step") {
  return {
      .name = "initial_scale", .fallback = fallback, .help = help, .minimum = 0x1p-126, .maximum = 0x1p127};
}
constexpr PolicyParameter growth_factor_parameter(double fallback) {
  return {.name = "growth_factor",
          .fallback = fallback,
          .help = "the scale is multiplied by this when it grows",
          .minimum = 1,
          .maximum = std::numeric_limits<double>::infinity(),
          .minimum_excluded = true,
          .maximum_excluded = true};
}
constexpr PolicyParameter backoff_factor_parameter(double fallback) {
  return {.name = "backoff_factor",
          .fallback = fallback,
          .help = "the scale is multiplied by this when it backs off",
          .minimum = 0,
          .maximum = 1,
          .minimum_excluded = true,
          .maximum_excluded = true};
}
constexpr PolicyParameter count_parameter(std::string_view name, double fallback, std::string_view help) {
  return {.name = name,
          .fallback = fallback,
          .help = help,
          .kind = PolicyParameter::Kind::integer,
          .minimum = 1,
          .maximum = 2147483647};
}
constexpr PolicyParameter growth_interval_parameter(double fallback) {
  return count_parameter("growth_interval", fallback, "good steps until the scale grows");
}
constexpr PolicyParameter switch_parameter(std::string_view name, bool fallback, std::string_view help) {
  return {.name = name,
          .fallback = fallback ? 1.0 : 0.0,
          .help = help,
          .kind = PolicyParameter::Kind::boolean,
          .minimum = 0,
          .maximum = 1};
}

/// The guards as parameters of every policy (engine/amp/guards.hpp). A policy whose peer has other defaults
/// declares those of them that differ among its own parameters.
constexpr PolicyParameter min_scale_parameter(double fallback) {
  return {.name = "min_scale",
          .fallback = fallback,
          .help = "floor of the scale; 0: none",
          .minimum = 0,
          .maximum = 0x1p127};
}
constexpr PolicyParameter max_scale_parameter(double fallback) {
  return {.name = "max_scale",
          .fallback = fallback,
          .help = "ceiling of the scale; 0: none",
          .minimum = 0,
          .maximum = 0x1p127};
}
constexpr PolicyParameter finite_guard_parameter(bool fallback) {
  return switch_parameter("finite_guard", fallback, "the scale stays where it would become 0 or infinite");
}
inline constexpr std::array guard_parameters = {min_scale_parameter(0), max_scale_parameter(0),
                                                finite_guard_parameter(true)};

/// Values by parameter name; what is missing has the policy's default. Names that a policy does not have mean
/// nothing to it.
using PolicySettings = std::map<std::string, double, std::less<>>;

/// All parameters of one policy, checked, with their values: what a policy makes its Params of.
class PolicyValues {
 public:
  explicit PolicyValues(PolicySettings values) : values_(std::move(values)) {}
  /// std::out_of_range for a name that the policy did not declare.
  double real(std::string_view name) const;
  float f32(std::string_view name) const { return static_cast<float>(real(name)); }
  int count(std::string_view name) const { return static_cast<int>(real(name)); }
  bool enabled(std::string_view name) const { return real(name) != 0.0; }
  const PolicySettings& all() const { return values_; }

 private:
  PolicySettings values_;
};

}  // namespace fp16lab::engine::amp
