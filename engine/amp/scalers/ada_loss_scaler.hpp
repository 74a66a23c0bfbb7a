// AdaLossScaler: policy ada-loss (engine/amp/policies/ada_loss.hpp) on the back end's own verbs.
//
// Moments of a tensor: the sum of squares by global_norm (TREE, FP64) into a StepState of our own, the
// largest magnitude exactly; the rest is FP64 arithmetic on the host. So the same bits everywhere, and two
// numbers to wait for at every product that is looked at.
//
// With update_per_n_iteration = n a layer looks in every n-th iteration in which it takes part, at each of
// its products; until then the smallest factor that it found holds, between the bounds. A product that is no
// layer's (attention) looks each time. An iteration with an overflow counts like any other.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/amp/policies/ada_loss.hpp"
#include "engine/amp/scalers/layer_scaler.hpp"

namespace fp16lab::engine::amp {

class AdaLossScaler final : public LayerScaler {
 public:
  AdaLossScaler(Backend& backend, const PolicyValues& values, std::span<Parameter* const> parameters);

  int exponent_at(const GradientSite& site) override;
  void begin_iteration() override;
  void update() override;

 private:
  struct Layer {
    const Parameter* weight = nullptr;
    bool took_part = false;          ///< in this iteration
    std::optional<double> smallest;  ///< factor that it found in it
  };
  AdaLossScaling::Moments moments_of(const Tensor& tensor);
  double factor_at(const GradientSite& site);

  AdaLossScaling::LayerParams params_;
  std::int32_t interval_;
  bool use_weights_;
  std::vector<Layer>
      layers_;   ///< as scales(): `scale` is the factor that holds, `count` the iterations of its part
  Tensor norm_;  ///< a StepState, for its grad_norm
};

}  // namespace fp16lab::engine::amp
