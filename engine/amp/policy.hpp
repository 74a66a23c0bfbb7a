// Loss-scale policies: "decide" of detect, decide, apply.
//
// A policy is a type with POD `Params` and `State` (its first member is `scale`, in the type that the policy
// defines) and one pure function `update(State&, Params, found_inf)` that host and device share. It runs on
// back-end memory as a ScalarProgram; its State lies in StepState::policy.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "engine/backend/step_state.hpp"
#include "numerics/portability.hpp"

namespace fp16lab::engine::amp {

/// One policy for all configurations: fields that the named policy does not use are ignored. Names as in
/// torch. Options are named where they are given: {.policy = "dynamic", .initial_scale = 4}.
struct ScalerOptions {
  /// Has the first place and takes nothing, so that a list of values without names does not compile. A tutorial's
  /// DynamicLossScaleManager(4, 3000), meant as factor and window, set the initial scale and the factor.
  struct Named {
    explicit Named() = default;
  };
  Named named = Named();

  std::string policy = "none";          ///< none, fixed, dynamic
  double initial_scale = 65536.0;       ///< finite, > 0, an FP32 number; fixed: the scale
  double growth_factor = 2.0;           ///< finite, > 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< good steps before S grows, >= 1

  // Of the scaler around the policy (engine/amp/grad_scaler.hpp):
  bool enabled = true;  ///< false: the identity: seed 1, nothing unscaled, checked or skipped
  /// false (MindSpore; policies none and fixed only): gradients are neither checked nor unscaled, every step is taken,
  /// and the division by S is the optimizer's (OptimizerOptions::loss_scale) or the caller's.
  bool drop_overflow_update = true;
  /// A scale for each loss of a training method that has several (engine/train/method.hpp; PerLossScaler). Not with
  /// drop_overflow_update = false.
  bool per_loss = false;
  /// false (torch): unscaling 16-bit gradients is an error naming the parameter.
  bool allow_low_gradients = true;
};

/// The update of a policy over a StepState: any optimizer's found_inf counts as an overflow of the step.
template <class Policy>
FP16LAB_HD void run_policy(StepState& step, const std::byte* parameters) {
  static_assert(sizeof(typename Policy::State) <= sizeof(StepState::policy));
  typename Policy::Params params;
  typename Policy::State state;
  std::memcpy(&params, parameters, sizeof(params));
  std::memcpy(&state, step.policy.data(), sizeof(state));
  bool found_inf = false;
  for (const float flag : step.found_inf) found_inf = found_inf || flag != 0.0f;
  Policy::update(state, params, found_inf);
  std::memcpy(step.policy.data(), &state, sizeof(state));
  step.set_scale(static_cast<double>(state.scale));
}

/// A policy as the engine uses it: its state in a fresh StepState, and its update as a program.
struct ScalePolicy {
  std::string name;
  StepState initial;
  ScalarProgram update;
};

/// Checks the options (std::invalid_argument naming option, value and range) and builds the policy.
ScalePolicy make_scale_policy(const ScalerOptions& options);

/// For `fp16lab policy --list` and error messages.
struct PolicyDescription {
  std::string_view name;
  std::string_view parameters;  ///< names with defaults
  std::string_view rule;
};
std::span<const PolicyDescription> scale_policies();

}  // namespace fp16lab::engine::amp
