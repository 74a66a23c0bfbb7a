// GradScaler: loss scaling as a typed state machine, one scale for all losses.
//
// Per optimizer: ready -> (unscale) -> unscaled -> (step) -> stepped -> (update) -> ready. Skipping is per
// optimizer, back-off is global: `update` sees the overflows of all optimizers. Three verbs, in this order:
//   detect  unscale: gradients *= 1/S, found_inf                (back end)
//   decide  update:  policy(found_inf of any optimizer) -> next S   (back end, a pure state machine)
//   apply   step:    the optimizer's verbs read found_inf and update or leave every byte as it is (back end)
#pragma once

#include "engine/amp/scalers/scaler.hpp"

namespace fp16lab::engine::amp {

/// An optimizer whose parameters have no gradient at all is an error (no_gradients) in its own unscale and
/// step; the others go on, and update decides on them. Whoever may leave an optimizer without a backward pass
/// asks Optimizer::gradients first, or clears gradients to zero.
class GradScaler final : public Scaler {
 public:
  /// `step` is the StepState (back-end memory, shared with the optimizers) that holds S, found_inf and the
  /// policy. The policy's initial scale and state are written into it, and no optimizer's found_inf is set; a
  /// disabled scaler writes those of policy none. Optimizers must live from their first call in an iteration
  /// to update.
  GradScaler(Backend& backend, const ScalerOptions& options, Tensor step);
  /// `policy`: make_scale_policy(options), where that is there already.
  GradScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step);

  /// The seed of every backward pass until the next update; after an optimizer's step another loss may still
  /// be differentiated (a GAN's generator after its discriminator).
  Tensor seed(DType dtype = DType::f32);
  Tensor seed(int, DType dtype) override { return seed(dtype); }
  void collect(int, std::span<ScaledOptimizer* const>) override {}
  /// 1/S as a one-element f32 tensor, the factor that unscale multiplies by: for gradients that are part of a
  /// loss (a gradient penalty), which must be unscaled outside of autocast before they enter it.
  Tensor inverse_seed();
  /// Multiplies the optimizer's gradients by 1/S and sets its found_inf. A 16-bit gradient is widened first
  /// where Parameter::dtypes.unscaled is f32 (into a new tensor behind Parameter::gradient), else rounded
  /// again.
  void unscale(ScaledOptimizer& optimizer) override { unscale(optimizer, "GradScaler::unscale"); }
  /// With drop_overflow_update = false always an error, unless S = 1.
  void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const override;
  void step(ScaledOptimizer& optimizer) override { Scaler::step(optimizer, "GradScaler::step"); }
  /// An optimizer that was unscaled but has not stepped may be left out: its gradients are then the caller's
  /// to clear.
  void update(const GradientStatistics* statistics = nullptr) override;
  GradScaler* one_scale() override { return this; }
  /// The scale that update would choose, where `state` was just read of step_state().
  double next_scale(const StepState& state, const GradientStatistics* statistics) const;
  std::optional<std::string> stop(const StepState& state) const override;
  bool can_fall(const StepState& state) const override;
  /// step and update, for one optimizer.
  void minimize(ScaledOptimizer& optimizer);

  const Tensor& step_state() const { return step_; }

 private:
  void unscale(ScaledOptimizer& optimizer, std::string_view call) override;
  bool begun() const;  ///< has any optimizer been unscaled since the last update?
  void require_wide_gradients(const ScaledOptimizer& optimizer, std::string_view call) const;

  Tensor statistics_;  ///< in back-end memory, where the policy wants them
};

}  // namespace fp16lab::engine::amp
