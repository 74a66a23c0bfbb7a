// GradScaler: loss scaling as a typed state machine.
//
// Per optimizer: ready -> (unscale) -> unscaled -> (step) -> stepped -> (update) -> ready. Skipping is per
// optimizer, back-off is global: `update` sees the overflows of all optimizers. Three verbs, in this order:
//   detect  unscale: gradients *= 1/S, found_inf                (back end)
//   decide  update:  policy(found_inf of any optimizer) -> next S   (back end, a pure state machine)
//   apply   step:    the optimizer's verbs read found_inf and update or leave every byte as it is (back end)
// Nothing here waits for the device, but where it says so. Calls in a wrong order throw ScalerError and change nothing.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/policy.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/backend/backend.hpp"

namespace fp16lab::engine::amp {

/// What a GradScaler needs to know of an optimizer (engine/optim implements it).
class ScaledOptimizer {
 public:
  virtual ~ScaledOptimizer() = default;
  virtual int index() const = 0;  ///< its slot in StepState::found_inf, unique per scaler
  virtual std::string_view name() const = 0;
  virtual std::span<Parameter* const> parameters() const = 0;
  /// Updates the parameters by their unscaled gradients, unless found_inf[index()] is set in `step`: then no
  /// byte of weights or optimizer state changes. Called by GradScaler::step.
  virtual void apply(Tensor& step) = 0;
};

class ScalerError : public std::logic_error {
 public:
  enum class Kind {
    unscale_twice,
    unscale_after_step,
    step_twice,
    update_without_check,  ///< update before any unscale or step
    no_gradients,          ///< no parameter of the optimizer has a gradient
    gradient_dtype,        ///< a gradient has 16 bits, and ScalerOptions::allow_low_gradients is false
    seed_after_unscale,    ///< a backward would add scaled gradients to unscaled ones that were not used yet
    scaled_gradients,      ///< clipping, or reading a norm, before unscale
    missing_statistics,    ///< update without the counts that the policy decides by
    uncollected_loss,      ///< PerLossScaler: the gradients of a loss that was seeded were not collected yet
    unseeded_loss,         ///< PerLossScaler: collecting for a loss whose seed was not taken
  };
  ScalerError(Kind kind, std::string_view call, std::string_view optimizer, std::string_view parameter,
              const std::string& message)
      : std::logic_error(message), kind_(kind), call_(call), optimizer_(optimizer), parameter_(parameter) {}
  Kind kind() const { return kind_; }
  const std::string& call() const { return call_; }            ///< "GradScaler::unscale"
  const std::string& optimizer() const { return optimizer_; }  ///< empty where there is none
  const std::string& parameter() const { return parameter_; }  ///< empty where there is none

 private:
  Kind kind_;
  std::string call_, optimizer_, parameter_;
};

/// Whom clipping asks (engine/optim): GradScaler or PerLossScaler.
class Scaler {
 public:
  virtual ~Scaler() = default;
  /// Throws Kind::scaled_gradients naming `call` unless the optimizer's gradients are unscaled and not yet
  /// used.
  virtual void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const = 0;
};

/// An optimizer whose parameters have no gradient at all is an error (no_gradients) in its own unscale and step; the
/// others go on, and update decides on them. Whoever may leave an optimizer without a backward pass asks
/// Optimizer::gradients first, or clears gradients to zero.
class GradScaler final : public Scaler {
 public:
  enum class Stage { ready, unscaled, stepped };

  /// `step` is the StepState (back-end memory, shared with the optimizers) that holds S, found_inf and the
  /// policy. The policy's initial scale and state are written into it, and no optimizer's found_inf is set; a disabled
  /// scaler writes those of policy none. Optimizers must live from their first call in an iteration to update.
  GradScaler(Backend& backend, const ScalerOptions& options, Tensor step);
  /// `policy`: make_scale_policy(options), where that is there already.
  GradScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step);

  /// S as a one-element tensor, rounded once to `dtype` (f32, or the 16-bit dtype of a loss that has one): the seed of
  /// every backward pass until the next update. Kind::seed_after_unscale while an optimizer is unscaled and has not
  /// stepped; after its step another loss may still be differentiated (a GAN's generator after its discriminator).
  Tensor seed(DType dtype = DType::f32);
  /// 1/S as a one-element f32 tensor, the factor that unscale multiplies by: for gradients that are part of a loss
  /// (a gradient penalty), which must be unscaled outside of autocast before they enter it.
  Tensor inverse_seed();
  /// Multiplies the optimizer's gradients by 1/S and sets its found_inf. A 16-bit gradient is widened first where
  /// Parameter::dtypes.unscaled is f32 (into a new tensor behind Parameter::gradient), else rounded again.
  void unscale(ScaledOptimizer& optimizer);
  /// Names of the optimizer's parameters whose gradients hold an Inf or NaN, in its order: why a step is skipped. Waits
  /// for the device. Before unscale or after, until the gradients are cleared.
  std::vector<std::string> nonfinite_parameters(const ScaledOptimizer& optimizer) const;
  /// With drop_overflow_update = false always an error, unless S = 1.
  void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const override;
  /// Unscales if that was not done, then lets the optimizer apply or skip.
  void step(ScaledOptimizer& optimizer);
  /// The policy's decision, once per iteration, after the last step. An optimizer that was unscaled but has not stepped
  /// may be left out: its gradients are then the caller's to clear. Policies that want statistics need those of all
  /// gradients since the last update, in host memory; others ignore them. Kind::missing_statistics.
  void update(const GradientStatistics* statistics = nullptr);
  /// Does the policy decide by the counts of gradients?
  bool wants_statistics() const { return checks() && policy_.wants_statistics; }
  /// The scale that update would choose, where `state` was just read of step_state().
  double next_scale(const StepState& state, const GradientStatistics* statistics) const;
  /// Why the policy's rule ends the run behind `state`, or nothing (ScalePolicy::stop).
  std::optional<std::string> stop(const StepState& state) const;
  /// step and update, for one optimizer.
  void minimize(ScaledOptimizer& optimizer);

  bool enabled() const { return options_.enabled; }
  /// Does unscale multiply and check at all? Not when disabled, nor with drop_overflow_update = false.
  bool checks() const { return options_.enabled && options_.drop_overflow_update; }

  Stage stage(const ScaledOptimizer& optimizer) const;
  /// "disabled" for a disabled scaler: a checkpoint of one does not continue with the other.
  const std::string& policy_name() const { return policy_.name; }
  const Tensor& step_state() const { return step_; }

 private:
  /// What an optimizer has done in this iteration.
  struct Slot {
    Stage stage = Stage::ready;
    const ScaledOptimizer* optimizer = nullptr;  ///< null: nothing
  };

  void unscale(ScaledOptimizer& optimizer, std::string_view call);
  bool begun() const;  ///< has any optimizer been unscaled since the last update?
  void require_wide_gradients(const ScaledOptimizer& optimizer, std::string_view call) const;

  Backend* backend_;
  ScalerOptions options_;
  ScalePolicy policy_;
  Tensor step_;
  Tensor statistics_;  ///< in back-end memory, where the policy wants them
  PerOptimizer<Slot> slots_{};
  std::vector<Tensor> gradients_;  ///< scratch, kept for its capacity
};

}  // namespace fp16lab::engine::amp
