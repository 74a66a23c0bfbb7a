#include "engine/amp/scalers/grouped_layer_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "engine/amp/levels/level.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

/// The exponent of the power of two at or below a scale; of the nearest usable one, where a checkpoint holds
/// another.
int floor_exponent(float scale) {
  int power = 0;
  if (!(scale >= static_cast<float>(smallest_usable_scale)))
    scale = static_cast<float>(smallest_usable_scale);
  if (scale > static_cast<float>(largest_usable_scale)) scale = static_cast<float>(largest_usable_scale);
  std::frexp(scale, &power);  // scale = f 2^power, f in [1/2, 1)
  return power - 1;
}

bool is_weight(const Parameter& parameter) { return parameter.value.shape().rank() >= 2; }

}  // namespace

GroupedLayerScaler::GroupedLayerScaler(Backend& backend, const ScalePolicy& policy,
                                       std::span<const ScaleGroup> groups,
                                       std::span<Parameter* const> parameters)
    : GroupedLayerScaler(backend, policy, units_of(policy, groups, parameters)) {}

GroupedLayerScaler::GroupedLayerScaler(Backend& backend, const ScalePolicy& policy, Units units)
    : LayerScaler(backend, std::move(units.names), std::move(units.scales)),
      first_only_(policy.name == groups_policy),
      layers_(std::move(units.layers)),
      nonfinite_(layers_.size(), false) {
  const PolicyValues values(policy.values);
  const float floor = values.f32("min_scale"), ceiling = values.f32("max_scale");
  rule_ = {.growth_factor = values.f32("growth_factor"),
           .backoff_factor = values.f32("backoff_factor"),
           .growth_interval = values.count("growth_interval"),
           .min_scale = floor == 0 ? static_cast<float>(smallest_usable_scale) : floor,
           .max_scale = ceiling == 0 ? static_cast<float>(largest_usable_scale) : ceiling};
}

GroupedLayerScaler::Units GroupedLayerScaler::units_of(const ScalePolicy& policy,
                                                       std::span<const ScaleGroup> groups,
                                                       std::span<Parameter* const> parameters) {
  const bool together = policy.name == groups_policy;
  Units units;
  std::vector<std::size_t> unit_of_group(groups.size(), none);
  for (const Parameter* const parameter : parameters) {
    if (!is_weight(*parameter)) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [parameter](const ScaleGroup& group) {
      return matches(group.pattern, parameter->name);
    });
    Layer& layer = units.layers.emplace_back(Layer{parameter, none});
    if (found == groups.end()) continue;
    std::size_t& unit = unit_of_group[static_cast<std::size_t>(found - groups.begin())];
    if (unit == none || !together) {
      unit = units.names.size();
      units.names.push_back(together ? found->pattern : parameter->name);
      units.scales.push_back({static_cast<float>(found->scale), 0});
    }
    layer.unit = unit;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (unit_of_group[i] != none) continue;
    std::vector<std::string_view> known;
    for (const Layer& layer : units.layers) known.push_back(layer.weight->name);
    throw std::invalid_argument(
        fmt::format("scaler.groups = \"{}={}\": it matches no weight that an earlier pattern has not taken; "
                    "weights: {}",
                    groups[i].pattern, groups[i].scale, known_are(groups[i].pattern, known)));
  }
  return units;
}

std::size_t GroupedLayerScaler::layer_of(const Parameter* weight) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [weight](const Layer& layer) { return layer.weight == weight; });
  return found == layers_.end() ? none : static_cast<std::size_t>(found - layers_.begin());
}

std::size_t GroupedLayerScaler::layer_named(const Parameter& parameter) const {
  if (const std::size_t layer = layer_of(&parameter); layer != none) return layer;
  const std::size_t dot = parameter.name.rfind('.');
  const std::size_t bias = parameter.name.find("bias", dot == std::string::npos ? 0 : dot);
  if (bias == std::string::npos) return none;
  std::string weight = parameter.name;
  weight.replace(bias, std::string_view("bias").size(), "weight");
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&weight](const Layer& layer) { return layer.weight->name == weight; });
  return found == layers_.end() ? none : static_cast<std::size_t>(found - layers_.begin());
}

int GroupedLayerScaler::exponent_at(const GradientSite& site) {
  const std::size_t layer = site.weight == nullptr ? none : layer_of(site.weight);
  if (layer == none) return site.exponent;
  if (std::find(visited_.begin(), visited_.end(), layer) == visited_.end()) visited_.push_back(layer);
  const std::size_t unit = layers_[layer].unit;
  return unit == none ? 0 : floor_exponent(scales_[unit].scale);
}

void GroupedLayerScaler::begin_iteration() {
  visited_.clear();
  nonfinite_.assign(layers_.size(), false);
  overflow_ = false;
}

void GroupedLayerScaler::note_gradients(const ScaledOptimizer& optimizer, const Tensor& step) {
  const StepState state = backend_->read_step_state(step);
  if (state.found_inf[static_cast<std::size_t>(optimizer.index())] == 0.0f) return;
  overflow_ = true;
  for (const Parameter* const parameter : optimizer.parameters()) {
    const std::size_t layer = layer_named(*parameter);
    if (layer == none || !parameter->has_gradient) continue;
    ExponentHistogram histogram;
    backend_->histogram(parameter->gradient, histogram);
    if (histogram.infinite + histogram.nan > 0) nonfinite_[layer] = true;
  }
}

void GroupedLayerScaler::update() {
  std::vector<bool> overflowed(scales_.size(), false);
  const auto blame = [&](std::size_t layer) {
    if (layers_[layer].unit != none) overflowed[layers_[layer].unit] = true;
  };
  const auto first =
      std::find_if(visited_.begin(), visited_.end(), [this](std::size_t layer) { return nonfinite_[layer]; });
  if (first != visited_.end()) {
    blame(*first);
    if (first != visited_.begin()) blame(*(first - 1));
    if (!first_only_) {
      for (const std::size_t layer : visited_)
        if (nonfinite_[layer]) blame(layer);
    }
  } else if (overflow_) {
    overflowed.assign(scales_.size(), true);
  }
  std::vector<bool> took_part(scales_.size(), false);
  for (const std::size_t layer : visited_)
    if (layers_[layer].unit != none) took_part[layers_[layer].unit] = true;
  for (std::size_t unit = 0; unit < scales_.size(); ++unit)
    if (took_part[unit]) update_layer(scales_[unit], rule_, overflowed[unit]);
  store();
}

}  // namespace fp16lab::engine::amp
