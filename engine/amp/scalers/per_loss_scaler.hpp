// PerLossScaler: a loss scale for each of several losses (apex's num_losses), one decision about the step.
//
// Per loss: backward with that loss's seed, then collect. The losses' gradients have different scales, so
// each is unscaled before it is added to the others':
//   seed(i) -> backward -> collect(i, optimizers)        for every loss i, in any order
//   combine(optimizer) -> clip                           where there is clipping
//   step(optimizer)                                      for every optimizer
//   update()
// An overflow in loss i lowers only scale i; it skips the optimizers that loss i reached.
#pragma once

#include "engine/amp/scalers/grad_scaler.hpp"

namespace fp16lab::engine::amp {

class PerLossScaler final : public Scaler {
 public:
  /// `step` is the StepState that the optimizers share; its own scale stays 1. Each loss has a StepState of
  /// its own for its scale and its policy's state: loss_state(i), which belongs into checkpoints and
  /// state_hash. Every loss has the same policy and starts with the same scale. std::invalid_argument for
  /// fewer than one loss, bad options, or drop_overflow_update = false (an optimizer divides by one scale,
  /// not by several), or a policy that decides by the counts of gradients (nobody counts those of each loss
  /// apart).
  PerLossScaler(Backend& backend, const ScalerOptions& options, int losses, Tensor step);
  /// `policy`: make_scale_policy(options), where that is there already.
  PerLossScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, int losses, Tensor step);

  int losses() const { return static_cast<int>(states_.size()); }
  /// S_i as a one-element tensor, rounded once to `dtype` (the loss's: f32 or 16 bits), for one backward pass
  /// or several (micro-batches) of that loss. Kind::uncollected_loss while the gradients of another loss wait
  /// to be collected; Kind::seed_after_unscale while an optimizer is combined and has not stepped. After its
  /// step further losses may be differentiated.
  Tensor seed(int loss, DType dtype = DType::f32) override;
  /// Widens the gradients that this loss's backward gave the optimizers' parameters to FP32, unscales them by
  /// 1/S_i, checks them, adds them to what earlier losses gave (the first is stored), and clears the
  /// parameters' gradients for the next loss. Name every optimizer that the loss is to move; what it left in
  /// other parameters is the caller's to clear. Kind::unseeded_loss without seed(loss), Kind::no_gradients as
  /// GradScaler::unscale, Kind::unscale_after_step for an optimizer that is combined or has stepped.
  void collect(int loss, std::span<ScaledOptimizer* const> optimizers) override;
  /// unscale: puts the collected sums behind the parameters as their gradients, for clipping: FP32, whatever
  /// the losses gave.
  void combine(ScaledOptimizer& optimizer) { unscale(optimizer, "PerLossScaler::combine"); }
  void unscale(ScaledOptimizer& optimizer) override { combine(optimizer); }
  void require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const override;
  void step(ScaledOptimizer& optimizer) override { Scaler::step(optimizer, "PerLossScaler::step"); }
  /// The policy of every loss that was collected decides on that loss's own overflow. A loss without a part
  /// in this iteration keeps its scale and its count.
  void update(const GradientStatistics* = nullptr) override;
  GradScaler* one_scale() override { return nullptr; }
  StepState read_step_state() const override;
  double scale(int loss) const;  ///< waits for the device
  /// Why any loss's rule ends the run, by its own state. Waits for the device.
  std::optional<std::string> stop(const StepState&) const override;
  /// "scaler.lossN", a StepState each.
  std::vector<NamedTensor> states() const override;
  /// Loading a checkpoint writes into its memory.
  const Tensor& loss_state(int loss) const;

 private:
  struct Collected {
    const Parameter* parameter;
    Tensor sum;  ///< f32, unscaled; undefined: nothing was collected in this iteration
  };

  std::size_t position_of(int loss, std::string_view call) const;
  void require_no_open_loss(std::string_view call) const;
  Tensor& sum_of(const Parameter& parameter);
  void add(Parameter& parameter);
  void unscale(ScaledOptimizer& optimizer, std::string_view call) override;

  std::vector<Tensor> states_;
  std::vector<bool> collected_losses_;  ///< in this iteration
  int open_ = -1;                       ///< the loss that was seeded and not yet collected
  std::vector<Collected> collected_;    ///< by parameter, in order of first collection; kept over iterations
};

}  // namespace fp16lab::engine::amp
