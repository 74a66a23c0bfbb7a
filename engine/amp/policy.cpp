#include "engine/amp/policy.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "engine/amp/policies/dynamic.hpp"
#include "engine/amp/policies/fixed.hpp"
#include "engine/amp/policies/none.hpp"
#include "numerics/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

constexpr std::array<PolicyDescription, 3> descriptions = {{
    {"none", "", "S = 1; a step with a non-finite gradient is skipped"},
    {"fixed", "initial_scale=65536", "S is constant; a step with a non-finite gradient is skipped"},
    {"dynamic", "initial_scale=65536 growth_factor=2 backoff_factor=0.5 growth_interval=2000",
     "torch.amp.GradScaler: S *= backoff_factor on overflow, S *= growth_factor after growth_interval good "
     "steps"},
}};

[[noreturn]] void reject(std::string_view option, double value, std::string_view range) {
  throw std::invalid_argument("scaler." + std::string(option) + " = " + std::to_string(value) + ": must be " +
                              std::string(range));
}

/// The FP32 number that `value` is. Rejects NaN, infinities, values <= 0 and values that FP32 would round.
float positive_scale(double value) {
  const auto narrow = static_cast<float>(value);
  if (!std::isfinite(value) || value <= 0.0 || static_cast<double>(narrow) != value) {
    reject("initial_scale", value, "a finite FP32 number above 0");
  }
  return narrow;
}

/// Both bounds excluded, after rounding to FP32 (a factor of 1 + 1e-9 would be 1).
float factor_between(std::string_view option, double value, float low, float high, std::string_view range) {
  const auto narrow = static_cast<float>(value);
  if (!(narrow > low && narrow < high)) reject(option, value, range);
  return narrow;
}

template <class Policy>
ScalePolicy build(std::string_view name, std::string_view program, const typename Policy::Params& params) {
  using State = typename Policy::State;
  static_assert(std::is_trivially_copyable_v<typename Policy::Params> && std::is_trivially_copyable_v<State>);
  static_assert(sizeof(params) <= sizeof(ScalarProgram::parameters));
  ScalePolicy policy;
  policy.name = name;
  policy.update.name = program;
  policy.update.function = &run_policy<Policy>;
  std::memcpy(policy.update.parameters.data(), &params, sizeof(params));
  const State state = Policy::initial(params);
  std::memcpy(policy.initial.policy.data(), &state, sizeof(state));
  policy.initial.set_scale(static_cast<double>(state.scale));
  return policy;
}

/// For policies that move with found_inf.
void require_checks(const ScalerOptions& options) {
  if (options.drop_overflow_update) return;
  throw std::invalid_argument(
      "scaler.drop_overflow_update = false: no gradient is checked then, but policy \"" + options.policy +
      "\" answers to overflows; use \"fixed\" or \"none\" with it");
}

}  // namespace

std::span<const PolicyDescription> scale_policies() { return descriptions; }

ScalePolicy make_scale_policy(const ScalerOptions& options) {
  if (options.policy == "none") return build<NoScaling>("none", "policy.none", {});
  if (options.policy == "fixed")
    return build<FixedScaling>("fixed", "policy.fixed", {.scale = positive_scale(options.initial_scale)});
  if (options.policy == "dynamic") {
    require_checks(options);
    if (options.growth_interval < 1 || options.growth_interval > std::numeric_limits<std::int32_t>::max()) {
      throw std::invalid_argument("scaler.growth_interval = " + std::to_string(options.growth_interval) +
                                  ": must be in [1, 2^31 - 1]");
    }
    constexpr float infinity = std::numeric_limits<float>::infinity();
    return build<DynamicScaling>("dynamic", "policy.dynamic",
                                 {.initial_scale = positive_scale(options.initial_scale),
                                  .growth_factor = factor_between("growth_factor", options.growth_factor,
                                                                  1.0f, infinity, "finite and above 1"),
                                  .backoff_factor = factor_between("backoff_factor", options.backoff_factor,
                                                                   0.0f, 1.0f, "above 0 and below 1"),
                                  .growth_interval = static_cast<std::int32_t>(options.growth_interval)});
  }
  std::vector<std::string_view> known;
  known.reserve(descriptions.size());
  for (const PolicyDescription& description : descriptions) known.emplace_back(description.name);
  throw std::invalid_argument("scaler.policy = \"" + options.policy +
                              "\": " + known_are(options.policy, known));
}

}  // namespace fp16lab::engine::amp
