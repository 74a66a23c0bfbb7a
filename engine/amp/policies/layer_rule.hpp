// The rule of one layer's scale among several.
#pragma once

#include <cstdint>
#include <string_view>

namespace fp16lab::engine::amp {

/// Policies of layer scales; the layers of the first two are those that scaler.groups names.
inline constexpr std::string_view layerwise_policy = "layerwise", groups_policy = "groups",
                                  ada_loss_policy = "ada-loss";

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
