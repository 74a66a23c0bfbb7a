// What the policies of layer scales have in common: S, and the rule of one scale among several.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

/// The loss scale under layer scales: constant, as their peers have it (their own seed is 1).
struct ConstantLossScale {
  static constexpr bool wants_statistics = false;
  static constexpr bool per_layer = true;

  struct Params {
    float scale = 1.0f;
  };
  struct State {
    float scale = 1.0f;
  };
  static Params params(const PolicyValues& values) { return {.scale = values.f32("initial_scale")}; }
  static State initial(const Params& params) { return {params.scale}; }
  FP16LAB_HD static void update(State& state, const Params& params, const Observation&) {
    state.scale = params.scale;
  }
};
static_assert(std::is_trivially_copyable_v<ConstantLossScale::State>);

constexpr PolicyParameter layers_loss_scale_parameter() {
  return initial_scale_parameter(1,
                                 "scale of the first step; of layer scales: S, which all of them multiply");
}

/// torch's rule for one of several scales, in FP32.
struct LayerRule {
  float growth_factor = 2.0f;
  float backoff_factor = 0.5f;
  std::int32_t growth_interval = 10000;
  float min_scale = 0x1p-126f;
  float max_scale = 0x1p127f;
};
struct LayerScale {
  float scale = 1.0f;
  std::int32_t count = 0;  ///< good steps since the last growth or overflow
};
/// After a step in which the layer took part.
constexpr void update_layer(LayerScale& layer, const LayerRule& rule, bool overflow) {
  const auto clamped = [&rule](float scale) {
    const float below = scale < rule.max_scale ? scale : rule.max_scale;  // infinity too
    return below > rule.min_scale ? below : rule.min_scale;
  };
  if (overflow) {
    layer.scale = clamped(layer.scale * rule.backoff_factor);
    layer.count = 0;
  } else if (++layer.count == rule.growth_interval) {
    layer.scale = clamped(layer.scale * rule.growth_factor);
    layer.count = 0;
  }
}

}  // namespace fp16lab::engine::amp
