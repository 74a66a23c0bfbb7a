// GradScaler: loss scaling as a training iteration uses it, a typed state machine over one scale for all
// losses or, with ScalerOptions::per_loss, over one for each (apex's num_losses).
//
//   seed -> backward -> collect -> unscale (detect) -> clip -> step (apply or skip) -> update (decide)
//   detect  gradients *= 1/S, found_inf                              (back end)
//   decide  policy(found_inf of any optimizer) -> next S             (back end, a pure state machine)
//   apply   the optimizer's verbs read found_inf and update or leave every byte as it is (back end)
// Per optimizer: ready -> (unscale) -> unscaled -> (step) -> stepped -> (update) -> ready. Skipping is per
// optimizer, back-off is per scale. Nothing here waits for the device, except where a comment says so. Calls
// in a wrong order throw ScalerError and change nothing.
//
// With a scale for each loss gradients of several losses carry different scales, so each is unscaled before
// it is added to the others': for every loss i, in any order, seed(i) -> backward -> collect(i,
// optimizers). An overflow in loss i lowers only scale i; it skips the optimizers that loss i reached.
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
    uncollected_loss,  ///< a scale for each loss: the gradients of one that was seeded were not collected yet
    unseeded_loss,     ///< a scale for each loss: collecting for one whose seed was not taken
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

/// An optimizer whose parameters have no gradient at all is an error (no_gradients) in its own unscale and
/// step; the others go on, and update decides on them. A caller that may leave an optimizer without a
/// backward pass checks Optimizer::gradients first, or clears gradients to zero.
class GradScaler {
 public:
  /// What an optimizer has done in this iteration.
  enum class Stage {
    ready,
    collected,  ///< a scale for each loss: it has gradients of some of them
    unscaled,
    stepped,
  };

  /// `step` is the StepState (back-end memory, shared with the optimizers) that holds found_inf, and S and
  /// the policy where one scale is all losses': the policy's initial scale and state are written into it, and
  /// no optimizer's found_inf is set. A disabled scaler writes those of policy none. With options.per_loss
  /// its own scale is 1, and each of the `losses` has a StepState of its own for its scale and its policy's
  /// state, which belongs into checkpoints and state_hash: states(). Every loss has the same policy and
  /// starts with the same scale. std::invalid_argument then for fewer than one loss, drop_overflow_update =
  /// false (an optimizer divides by one scale, not by several), or a policy that decides by the counts of
  /// gradients (no verb counts those of each loss apart). Optimizers must live from their first call in an
  /// iteration to update.
  GradScaler(Backend& backend, const ScalerOptions& options, Tensor step, int losses = 1);
  /// `policy`: make_scale_policy(options), where that is there already.
  GradScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step, int losses = 1);

  /// S of the loss as a one-element tensor, rounded once to `dtype` (f32, or the 16-bit dtype of a loss
  /// that has one): the seed of its backward passes. Kind::seed_after_unscale while an optimizer is
  /// unscaled and has not stepped; after its step another loss may still be differentiated (a GAN's
  /// generator after its discriminator). Kind::uncollected_loss while the gradients of another loss wait to
  /// be collected.
  Tensor seed(int loss, DType dtype = DType::f32);
  Tensor seed(DType dtype = DType::f32) { return seed(0, dtype); }
  /// After the backward passes of `loss`, before those of another: its gradients are these optimizers'.
  /// Does nothing where one scale is all losses'. Else widens the gradients that this loss gave the
  /// optimizers' parameters to FP32, unscales them by 1/S_i, checks them, adds them to what earlier losses
  /// gave (the first is stored), and clears the parameters' gradients for the next loss. Name every
  /// optimizer that the loss is to move; what it left in other parameters is the caller's to clear.
  /// Kind::unseeded_loss without seed(loss), Kind::no_gradients, Kind::unscale_after_step for an optimizer
  /// that is unscaled or has stepped.
  void collect(int loss, std::span<ScaledOptimizer* const> optimizers);
  /// Leaves unscaled gradients in the optimizer's parameters, and its found_inf in the StepState. With one
  /// scale a 16-bit gradient is widened first where Parameter::dtypes.unscaled is f32 (into a new tensor
  /// for Parameter::gradient), else rounded again. With several the sums that were collected become the
  /// gradients: FP32, whatever the losses gave.
  void unscale(ScaledOptimizer& optimizer) { unscale(optimizer, "GradScaler::unscale"); }
  /// Throws Kind::scaled_gradients naming `call` unless the optimizer's gradients are unscaled and not yet
  /// used. With drop_overflow_update = false always an error, unless S = 1.
  void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const;
  /// Unscales if that was not done, then lets the optimizer apply or skip.
  void step(ScaledOptimizer& optimizer);
  /// The policy's decision, once per iteration, after the last step. An optimizer that was unscaled but has
  /// not stepped may be left out: its gradients are then the caller's to clear. With a scale for each loss
  /// the policy of every loss that was collected decides on that loss's own overflow; one without a part in
  /// this iteration keeps its scale and its count. Policies that need statistics take those of all gradients
  /// since the last update, in host memory; others ignore them. Kind::missing_statistics.
  void update(const GradientStatistics* statistics = nullptr);
  /// step and update, for one optimizer.
  void minimize(ScaledOptimizer& optimizer);

  /// 1/S as a one-element f32 tensor, the factor that unscale multiplies by: for gradients that are part of
  /// a loss (a gradient penalty), which must be unscaled outside of autocast before they enter it. One
  /// scale only: std::logic_error with several, from next_scale too.
  Tensor inverse_seed();
  /// The scale that update would choose, where `state` was just read of step_state(). One scale only.
  double next_scale(const StepState& state, const GradientStatistics* statistics) const;

  bool per_loss() const { return options_.per_loss; }
  const Tensor& step_state() const { return step_; }
  /// For records: step_state() with the scale of loss 0. Waits for the device.
  StepState read_step_state() const;
  double scale(int loss) const;  ///< waits for the device
  /// The StepState with the loss's scale. Loading a checkpoint writes into its memory.
  const Tensor& loss_state(int loss) const;
  /// State beside step_state(), for checkpoints and state_hash: "scaler.lossN", a StepState each.
  std::vector<NamedTensor> states() const;
  /// Why the policy's rule ends the run after `state`, or nothing (ScalePolicy::stop); with a scale for
  /// each loss by the loss's own state, for which it waits for the device.
  std::optional<std::string> stop(const StepState& state) const;
  /// Would overflows, however many, lower the scale of `state`? Not where it is fixed or at its floor. Where
  /// the rule has statistics to decide by, or each loss has a scale, the answer is unknown: true.
  bool can_fall(const StepState& state) const;

  bool enabled() const { return options_.enabled; }
  /// Does unscale multiply and check at all? Not when disabled, nor with drop_overflow_update = false.
  bool checks() const { return options_.enabled && options_.drop_overflow_update; }
  /// Does an optimizer take a step with zeros where gradients overflowed?
  bool steps_with_zeros() const { return checks() && options_.on_overflow == OnOverflow::zero; }
  /// Does the policy decide by the counts of gradients?
  bool wants_statistics() const { return checks() && policy_.wants_statistics; }
  /// "disabled" for a disabled scaler: a checkpoint of one does not continue with the other.
  const std::string& policy_name() const { return policy_.name; }
  Stage stage(const ScaledOptimizer& optimizer) const;
  /// Names of the optimizer's parameters whose gradients hold an Inf or NaN, in its order: why a step is
  /// skipped. Waits for the device. Before unscale or after, until the gradients are cleared.
  std::vector<std::string> nonfinite_parameters(const ScaledOptimizer& optimizer) const;

 private:
  struct Slot {
    Stage stage = Stage::ready;
    const ScaledOptimizer* optimizer = nullptr;  ///< null: not in this iteration
  };
  struct Collected {
    const Parameter* parameter;
    Tensor sum;  ///< f32, unscaled; undefined: nothing was collected in this iteration
  };

  /// The optimizer's slot; std::invalid_argument where its index is none, or another optimizer's of this
  /// iteration.
  Slot& slot_of(const ScaledOptimizer& optimizer, std::string_view call);
  /// The loss's place in states_; std::invalid_argument where there is none.
  std::size_t position_of(int loss, std::string_view call) const;
  void require_no_open_loss(std::string_view call) const;
  void require_wide_gradients(const ScaledOptimizer& optimizer, std::string_view call) const;
  bool begun() const;  ///< has any gradient been unscaled since the last update?
  void unscale(ScaledOptimizer& optimizer, std::string_view call);
  void divide(ScaledOptimizer& optimizer, Tensor& state);
  Tensor& sum_of(const Parameter& parameter);
  void add(Parameter& parameter);
  /// Lets the optimizer step as ScalerOptions::on_overflow = zero says: with zeros where found_inf is set.
  /// found_inf is 0 only while it does, so that policies and records see the overflow.
  void apply_with_zeros(ScaledOptimizer& optimizer);
  void clear_found_inf(Tensor& state) const;  ///< no optimizer of `state` has seen an overflow

  Backend* backend_;
  ScalerOptions options_;
  ScalePolicy policy_;  ///< none for a disabled scaler
  Tensor step_;
  std::vector<Tensor> states_;  ///< with the scales: step_ alone, or one for each loss
  std::vector<bool> decides_;   ///< by state: were gradients of its scale unscaled in this iteration?
  PerOptimizer<Slot> slots_{};
  int open_ = -1;  ///< a scale for each loss: the one that was seeded and not yet collected
  std::vector<Collected> collected_;  ///< by parameter, in order of first collection; kept over iterations
  std::vector<Tensor> gradients_;     ///< scratch, kept for its capacity
  Tensor statistics_;                 ///< in back-end memory, where the policy needs them
  Tensor set_aside_;                  ///< f32 scalars, for apply_with_zeros: found_inf,
  Tensor finite_;                     ///< and 1 without an overflow, else 0
};

// ---- messages of misuse ----

/// "CALL(sgd 1 of fc1.weight ...)": the optimizer by its name, slot and first parameter.
std::string describe(std::string_view call, const ScaledOptimizer& optimizer);
/// With the message "describe(call, optimizer): WHAT".
ScalerError misuse(ScalerError::Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what);
/// Kind::no_gradients for an optimizer that no backward pass has reached.
void require_gradients(const ScaledOptimizer& optimizer, std::string_view call);

}  // namespace fp16lab::engine::amp
