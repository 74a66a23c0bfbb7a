// GradScaler: loss scaling as a typed state machine.
//
// Per optimizer: ready -> (unscale) -> unscaled -> (step) -> stepped -> (update) -> ready. Skipping is per
// optimizer, back-off is global: `update` sees the overflows of all optimizers. Three verbs, in this order:
//   detect  unscale: gradients *= 1/S, found_inf                (back end)
//   decide  update:  policy(found_inf) -> next S                (back end, a pure state machine)
//   apply   step:    the optimizer's verbs read found_inf and update or leave every byte as it is (back end)
// Nothing here waits for the device. Calls in a wrong order throw ScalerError and change nothing.
#pragma once

#include <array>
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
    gradient_dtype,        ///< a gradient is not FP32
    seed_after_unscale,    ///< a backward would add scaled gradients to unscaled ones
    scaled_gradients,      ///< clipping, or reading a norm, before unscale
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

class GradScaler {
 public:
  enum class Stage { ready, unscaled, stepped };

  /// `step` is the StepState (back-end memory, shared with the optimizers) that holds S, found_inf and the
  /// policy. The policy's initial scale and state are written into it.
  GradScaler(Backend& backend, const ScalerOptions& options, Tensor step);

  /// S as a one-element f32 tensor: the seed of every backward pass until the next update.
  Tensor seed();
  /// Multiplies the optimizer's gradients by 1/S in place and sets its found_inf.
  void unscale(ScaledOptimizer& optimizer);
  /// Throws Kind::scaled_gradients naming `call` unless the optimizer's gradients are unscaled and not yet
  /// used.
  void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const;
  /// Unscales if that was not done, then lets the optimizer apply or skip.
  void step(ScaledOptimizer& optimizer);
  /// The policy's decision, once per iteration, after the last step.
  void update();

  Stage stage(const ScaledOptimizer& optimizer) const;
  const std::string& policy_name() const { return policy_.name; }
  const Tensor& step_state() const { return step_; }

 private:
  Backend* backend_;
  ScalePolicy policy_;
  Tensor step_;
  std::array<Stage, max_optimizers> stages_{};
  std::vector<Tensor> gradients_;  ///< scratch, kept for its capacity
};

}  // namespace fp16lab::engine::amp
