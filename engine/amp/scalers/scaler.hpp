// Scaler: loss scaling as a training iteration uses it, whether one scale is all losses' (GradScaler) or each
// loss has its own (PerLossScaler).
//
//   seed -> backward -> collect -> unscale (detect) -> clip -> step (apply or skip) -> update (decide)
// Nothing here waits for the device, but where it says so. Calls in a wrong order throw ScalerError and
// change nothing.
#pragma once

#include <memory>
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

class GradScaler;

/// A tensor of state under its name in checkpoints: "fc1.weight.velocity", "scaler.loss0".
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What a scaler needs to know of an optimizer (engine/optim implements it).
class ScaledOptimizer {
 public:
  virtual ~ScaledOptimizer() = default;
  virtual int index() const = 0;  ///< its slot in StepState::found_inf, unique per scaler
  virtual std::string_view name() const = 0;
  virtual std::span<Parameter* const> parameters() const = 0;
  /// Updates the parameters by their unscaled gradients, unless found_inf[index()] is set in `step`: then no
  /// byte of weights or optimizer state changes. Called by Scaler::step.
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

class Scaler {
 public:
  /// What an optimizer has done in this iteration.
  enum class Stage {
    ready,
    collected,  ///< PerLossScaler: it has gradients of some losses
    unscaled,
    stepped,
  };

  virtual ~Scaler() = default;

  /// S of the loss as a one-element tensor, rounded once to `dtype` (f32, or the 16-bit dtype of a loss that
  /// has one): the seed of its backward passes. Kind::seed_after_unscale while an optimizer is unscaled and
  /// has not stepped.
  virtual Tensor seed(int loss, DType dtype) = 0;
  /// Behind the backward passes of `loss`, before those of another: its gradients are these optimizers'. Does
  /// nothing where one scale is all losses'.
  virtual void collect(int loss, std::span<ScaledOptimizer* const> optimizers) = 0;
  /// Leaves unscaled gradients behind the optimizer's parameters, and its found_inf in the StepState.
  virtual void unscale(ScaledOptimizer& optimizer) = 0;
  /// Throws Kind::scaled_gradients naming `call` unless the optimizer's gradients are unscaled and not yet
  /// used.
  virtual void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const = 0;
  /// Unscales if that was not done, then lets the optimizer apply or skip.
  virtual void step(ScaledOptimizer& optimizer) = 0;
  /// The policy's decision, once per iteration, after the last step. Policies that want statistics need those
  /// of all gradients since the last update, in host memory; others ignore them. Kind::missing_statistics.
  virtual void update(const GradientStatistics* statistics = nullptr) = 0;

  /// Itself where one scale is all losses'; null where each loss has its own.
  virtual GradScaler* one_scale() = 0;
  /// For records: the StepState that the optimizers share; its scale is that of loss 0. Waits for the device.
  virtual StepState read_step_state() const { return backend_->read_step_state(step_); }
  /// Why the policy's rule ends the run behind `state`, or nothing (ScalePolicy::stop).
  virtual std::optional<std::string> stop(const StepState& state) const = 0;
  /// Would overflows, however many, lower the scale of `state`? Not where it is fixed or at its floor. Where
  /// the
  /// rule has statistics to decide by, or scales of losses or layers, nobody can tell: true.
  virtual bool can_fall(const StepState&) const { return true; }
  /// State beside the StepState that the optimizers share, for checkpoints and state_hash.
  virtual std::vector<NamedTensor> states() const { return {}; }

  bool enabled() const { return options_.enabled; }
  /// Does unscale multiply and check at all? Not when disabled, nor with drop_overflow_update = false.
  bool checks() const { return options_.enabled && options_.drop_overflow_update; }
  /// Does the policy decide by the counts of gradients?
  bool wants_statistics() const { return checks() && policy_.wants_statistics; }
  /// "disabled" for a disabled scaler: a checkpoint of one does not continue with the other.
  const std::string& policy_name() const { return policy_.name; }
  Stage stage(const ScaledOptimizer& optimizer) const;
  /// Names of the optimizer's parameters whose gradients hold an Inf or NaN, in its order: why a step is
  /// skipped. Waits for the device. Before unscale or after, until the gradients are cleared.
  std::vector<std::string> nonfinite_parameters(const ScaledOptimizer& optimizer) const;

 protected:
  /// `policy`: make_scale_policy(options), also of a disabled scaler.
  Scaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step);

  struct Slot {
    Stage stage = Stage::ready;
    const ScaledOptimizer* optimizer = nullptr;  ///< null: not in this iteration
  };
  /// The optimizer's slot; std::invalid_argument where its index is none, or another optimizer's of this
  /// iteration.
  Slot& slot_of(const ScaledOptimizer& optimizer, std::string_view call);
  /// Kind::unscale_twice or unscale_after_step: `twice` says what was done already.
  static void require_not_unscaled(const Slot& slot, const ScaledOptimizer& optimizer, std::string_view call,
                                   const char* twice);
  /// Kind::seed_after_unscale, saying which calls come `first`.
  void require_none_waiting(std::string_view call, const char* first) const;
  /// The scale of `state` as seed() gives it.
  Tensor seed_of(const Tensor& state, DType dtype) const;
  virtual void unscale(ScaledOptimizer& optimizer, std::string_view call) = 0;
  void step(ScaledOptimizer& optimizer, std::string_view call);
  /// Lets the optimizer step as ScalerOptions::on_overflow = zero says: with zeros where found_inf is set.
  /// found_inf is 0 only while it does, so that policies and records see the overflow.
  void apply_with_zeros(ScaledOptimizer& optimizer);
  /// No optimizer of `state` has seen an overflow.
  void clear_found_inf(Tensor& state) const;

  Backend* backend_;
  ScalerOptions options_;
  ScalePolicy policy_;  ///< none for a disabled scaler
  Tensor step_;
  PerOptimizer<Slot> slots_{};
  std::vector<Tensor> gradients_;  ///< scratch, kept for its capacity
  Tensor set_aside_;               ///< f32 scalars, of apply_with_zeros: found_inf,
  Tensor finite_;                  ///< and 1 without an overflow, else 0
};

/// One of the two, as the options say. `policy`: make_scale_policy(options); `losses`: of the training
/// method; `step`: the StepState that the optimizers share.
std::unique_ptr<Scaler> make_scaler(Backend& backend, const ScalerOptions& options, const ScalePolicy& policy,
                                    int losses, Tensor step);

// ---- messages of misuse ----

/// "CALL(sgd 1 of fc1.weight ...)": the optimizer by its name, slot and first parameter.
std::string describe(std::string_view call, const ScaledOptimizer& optimizer);
/// With the message "describe(call, optimizer): WHAT".
ScalerError misuse(ScalerError::Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what);
/// Kind::no_gradients for an optimizer that no backward pass has reached.
void require_gradients(const ScaledOptimizer& optimizer, std::string_view call);

}  // namespace fp16lab::engine::amp
