// GroupedLayerScaler: scales of named layers (policy layerwise) or of groups of them (policy groups).
//
// A unit is a layer that a pattern of scaler.groups matches, or all layers whose first matching pattern it
// is. Layers of no unit have the constant scale 1; products that are no layer's pass the scale on that they
// got.
//
// Whose overflow is it? In a step with one, an infinity runs down the whole backward pass, and an input
// gradient may overflow without any weight gradient showing it. So:
//   layerwise  backs off every unit with a non-finite gradient of a weight or its bias, as fairscale does,
//   groups     backs off the first one on the way down, where MindSpore's status register would have been
//              raised,
//   both       also the unit of the layer right before the first non-finite one on the way down, whose input
//              gradient may be what overflowed. Without that, a step whose input gradient overflows at one
//              layer's scale would lower the scales of all others, and never that one. An overflow that no
//              layer shows (a norm's parameter has it, an embedding) is everybody's, as it would be with one
//              scale.
// Parameters are looked at one by one, in steps with an overflow only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/amp/scalers/layer_scaler.hpp"

namespace fp16lab::engine::amp {

class GroupedLayerScaler final : public LayerScaler {
 public:
  GroupedLayerScaler(Backend& backend, const ScalePolicy& policy, std::span<const ScaleGroup> groups,
                     std::span<Parameter* const> parameters);

  int exponent_at(const GradientSite& site) override;
  void begin_iteration() override;
  void note_gradients(const ScaledOptimizer& optimizer, const Tensor& step) override;
  void update() override;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  /// A weight, and the unit that it belongs to.
  struct Layer {
    const Parameter* weight = nullptr;
    std::size_t unit = none;
  };
  struct Units {
    std::vector<std::string> names;
    std::vector<LayerScale> scales;
    std::vector<Layer> layers;
  };
  static Units units_of(const ScalePolicy& policy, std::span<const ScaleGroup> groups,
                        std::span<Parameter* const> parameters);
  GroupedLayerScaler(Backend& backend, const ScalePolicy& policy, Units units);
  std::size_t layer_of(const Parameter* weight) const;
  /// The group of a weight, or of the bias that is named like one: "fc1.bias", "lstm.bias_hh_l0".
  std::size_t layer_named(const Parameter& parameter) const;

  LayerRule rule_;
  bool first_only_ = false;  ///< groups
  std::vector<Layer> layers_;
  std::vector<std::size_t>
      visited_;                  ///< layers, in the order in which the iteration's backward passes met them
  std::vector<bool> nonfinite_;  ///< by layer, of this iteration
  bool overflow_ = false;        ///< somewhere, in this iteration
};

}  // namespace fp16lab::engine::amp
