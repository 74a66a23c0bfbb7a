// Loss-scale policies: "decide" of detect, decide, apply.
//
// A policy is a row of engine/amp/policy_list.hpp: a peer's name, its rule and its defaults. A rule is a
// type in engine/amp/policies/:
//   Params, State   plain old data. State's first member is `scale`, in the type that the peer keeps it in
//                   (FP32 or FP64); State has at most 64 bytes and no padding (it is hashed and stored as
//                   bytes)
//   update(State&, const Params&, const Observation&)   pure, for host and device, no virtual call, no libm
//   initial(const Params&)                              the State before the first step
//   params(const PolicyValues&)                         of checked values
//   static constexpr family, parameters; optional: wants_statistics = true, power_of_two_scales = false,
//   constant = true, per_layer = true; stop(const State&, const PolicyValues&) (ScalePolicy::stop)
// It runs on back-end memory as a ScalarProgram "policy.NAME" with its State in StepState::policy. Guards
// (engine/amp/guards.hpp) wrap it: no floor, no ceiling, and a scale that stays finite, unless its parameters
// set others.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/amp/guards.hpp"
#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "engine/backend/step_state.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

/// The scaler's reaction to scales that are no powers of two, with which unscaling rounds.
enum class PowerOfTwo {
  any,         ///< nothing
  warn,        ///< inexact_unscaling() says so; the code that runs the policy shows it
  round_down,  ///< the step uses the power of two below (Guards::round_to_power_of_two)
};

/// The fate of a step whose gradients hold an Inf or NaN.
enum class OnOverflow {
  skip,  ///< no byte of weights or optimizer state changes
  /// Paddle's static graph (update_loss_scaling): gradients become 0 and the optimizer steps. Momentum and
  /// weight decay go on, and the step counts as taken. Paddle's Adam and AdamW are given found_inf and skip
  /// all the same (python/paddle/static/amp/decorator.py, apply_gradients).
  zero,
};

/// One policy for all configurations. Options are named where they are given: {.policy = "torch",
/// .initial_scale = 4}.
struct ScalerOptions {
  /// Has the first place and takes nothing, so that a list of values without names does not compile. A
  /// tutorial's DynamicLossScaleManager(4, 3000), meant as factor and window, set the initial scale and the
  /// factor.
  struct Named {
    explicit Named() = default;
  };
  Named named = Named();

  std::string policy = "none";  ///< a name of scale_policies(), or an alias: "dynamic" is "torch"
  // The parameters that most policies have; what is not given has the policy's default.
  std::optional<double> initial_scale{};
  std::optional<double> growth_factor{};
  std::optional<double> backoff_factor{};
  std::optional<double> growth_interval{};
  PolicySettings parameters{};  ///< any others, by name; those of the four above win over this

  PowerOfTwo power_of_two = PowerOfTwo::warn;

  // What the scaler around the policy does (engine/amp/scalers/grad_scaler.hpp):
  bool enabled = true;  ///< false: the identity: seed 1, nothing unscaled, checked or skipped
  /// false (MindSpore; constant policies only): gradients are neither checked nor unscaled, every step is
  /// taken, and the division by S is the optimizer's (OptimizerOptions::loss_scale) or the caller's.
  bool drop_overflow_update = true;
  OnOverflow on_overflow = OnOverflow::skip;  ///< zero: not with drop_overflow_update = false
  /// A scale for each loss of a training method that has several (engine/train/method.hpp).
  /// Not with drop_overflow_update = false.
  bool per_loss = false;
  /// false (torch): unscaling 16-bit gradients is an error naming the parameter.
  bool allow_low_gradients = true;
  /// How often the backward pass of a step that overflowed is done again, at the lower scale that the policy
  /// decides, before the step is skipped (engine/train/rescue.hpp). 0: never.
  std::int64_t rescue = 0;
  /// For policies layerwise and groups: "PATTERN=SCALE" (scale_group in engine/amp/scalers/layer_scaler.hpp),
  /// layers by a pattern of their weights' names and the scale that they begin with. The first pattern that
  /// matches a weight counts.
  std::vector<std::string> groups{};

  /// What the policy uses: as given, or its default; nothing where it has no such parameter.
  std::optional<double> parameter(std::string_view name) const;
};

/// The bytes of a policy's ScalarProgram begin with this; the rule's Params follow.
struct PolicyProgram {
  const GradientStatistics* statistics = nullptr;  ///< in back-end memory
  Guards guards;
};

/// One decision: the policy's, between the guards.
template <class Rule>
FP16LAB_HD void decide(typename Rule::State& state, const typename Rule::Params& params, const Guards& guards,
                       const Observation& observation) {
  using Scale = decltype(state.scale);
  state.scale = static_cast<Scale>(recovered(static_cast<double>(state.scale), guards));
  const auto before = static_cast<double>(state.scale);
  Rule::update(state, params, observation);
  state.scale = static_cast<Scale>(guarded(before, static_cast<double>(state.scale), guards));
}

/// The update of a policy over a StepState: any optimizer's found_inf counts as an overflow of the step.
template <class Rule>
FP16LAB_HD void run_policy(StepState& step, const std::byte* parameters) {
  static_assert(sizeof(typename Rule::State) <= sizeof(StepState::policy));
  PolicyProgram program;
  typename Rule::Params params;
  typename Rule::State state;
  std::memcpy(&program, parameters, sizeof(program));
  std::memcpy(&params, parameters + sizeof(program), sizeof(params));
  std::memcpy(&state, step.policy.data(), sizeof(state));
  Observation observation{.found_inf = false, .statistics = program.statistics, .scale = step.scale};
  for (const float flag : step.found_inf) observation.found_inf = observation.found_inf || flag != 0.0f;
  decide<Rule>(state, params, program.guards, observation);
  std::memcpy(step.policy.data(), &state, sizeof(state));
  step.set_scale(applied_scale(static_cast<double>(state.scale), program.guards));
}

/// A policy as the engine uses it: its state in a fresh StepState, and its update as a program.
struct ScalePolicy {
  std::string name;  ///< the canonical one
  StepState initial;
  ScalarProgram update;
  PolicyValues values;  ///< every parameter, guards included
  bool wants_statistics = false;
  /// Why the policy's rule ends the run in this state (fairseq at its minimum, MindSpore after 1000
  /// overflows), or nothing. Null for policies that never do. Host only.
  std::optional<std::string> (*stop)(const StepState& state, const PolicyValues& values) = nullptr;
};

/// The update with statistics of the step, which are in back-end memory until it has run.
ScalarProgram with_statistics(const ScalePolicy& policy, const GradientStatistics* statistics);
/// One update on the host, for traces and replays: `step` has the scale of the next step then.
void advance(const ScalePolicy& policy, StepState& step, const Observation& observation);

/// Checks the options (std::invalid_argument naming option, value and range) and builds the policy. A
/// parameter that no policy has is an error with the nearest known name; one that only this policy lacks is
/// ignored, so that options may serve several policies: callers with a user's options use require_parameter.
ScalePolicy make_scale_policy(const ScalerOptions& options);

/// Why unscaling rounds with these options ("scaler.backoff_factor = 0.8 is not a power of two: ..."), or
/// nothing. `policy`: make_scale_policy(options).
std::optional<std::string> inexact_unscaling(const ScalerOptions& options, const ScalePolicy& policy);
inline std::optional<std::string> inexact_unscaling(const ScalerOptions& options) {
  return inexact_unscaling(options, make_scale_policy(options));
}

/// For `fp16lab policy --list`, `list --json`, config keys and messages.
struct PolicyDescription {
  std::string_view name;
  std::string_view rule;    ///< one or two sentences
  std::string_view source;  ///< repository and path, or publication
  PolicyFamily family;
  std::vector<PolicyParameter>
      parameters;  ///< with the policy's own defaults; the guards min_scale, max_scale,
                   ///< finite_guard come last
  bool wants_statistics = false;
  bool constant = false;  ///< the scale never moves: none, fixed
  bool per_layer =
      false;  ///< scales of layers move (engine/amp/scalers/layer_scaler.hpp), the loss scale does not
  /// false: the rule itself gives other scales, whatever its parameters (statistics, smooth growth).
  bool power_of_two_scales = true;
  /// The name of a parameter, or nullptr.
  const PolicyParameter* find(std::string_view parameter) const;
};
std::span<const PolicyDescription> scale_policies();
/// By name or policy_alias; std::invalid_argument with the nearest names otherwise.
const PolicyDescription& scale_policy(std::string_view name);
/// The only other name of a policy: an alias of "torch".
inline constexpr std::string_view policy_alias = "dynamic";
/// "torch" for the alias; any other text as it is.
std::string_view canonical_policy_name(std::string_view name);

/// std::invalid_argument "policy torch has no parameter 'hysteresis': known are ..." with the nearest name.
/// Null means "any policy"; `besides` are names that the caller takes as well.
void require_parameter(const PolicyDescription* policy, std::string_view name,
                       std::span<const std::string_view> besides = {});

/// Every parameter name of any policy, once, in order of appearance; ranges joined to the widest.
std::span<const PolicyParameter> policy_parameters();

}  // namespace fp16lab::engine::amp
