#include "engine/amp/scalers/layer_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/policies/ada_loss.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

/// GroupedLayerScaler: scales of named layers (policy layerwise) or of groups of them (policy groups).
///
/// A unit is a layer that a pattern of scaler.groups matches, or all layers whose first matching pattern it
/// is. Layers of no unit have the constant scale 1; products that are no layer's pass the scale on that they
/// got.
///
/// Whose overflow is it? In a step with one, an infinity runs down the whole backward pass, and an input
/// gradient may overflow without any weight gradient showing it. So:
///   layerwise  backs off every unit with a non-finite gradient of a weight or its bias, as fairscale does,
///   groups     backs off the first one on the way down, where MindSpore's status register would have been
///              raised,
///   both       also the unit of the layer right before the first non-finite one on the way down, whose input
///              gradient may be what overflowed. Without that, a step whose input gradient overflows at one
///              layer's scale would lower the scales of all others, and never that one. An overflow that no
///              layer shows (a norm's parameter has it, an embedding) lowers all scales, as it would with one
///              scale.
/// Parameters are looked at one by one, in steps with an overflow only.
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
  std::vector<bool> nonfinite_;  ///< by layer, for this iteration
  bool overflow_ = false;        ///< somewhere, in this iteration
};

/// The exponent of the power of two at or below a scale; for an unusable one from a checkpoint, that of the
/// nearest usable scale.
int floor_exponent(float scale) {
  int power = 0;
  if (!(scale >= static_cast<float>(smallest_usable_scale)))
    scale = static_cast<float>(smallest_usable_scale);
  if (scale > static_cast<float>(largest_usable_scale)) scale = static_cast<float>(largest_usable_scale);
  std::frexp(scale, &power);  // scale = f 2^power, f in [1/2, 1)
  return power - 1;
}

bool is_weight(const Parameter& parameter) { return parameter.value.shape().rank() >= 2; }

GroupedLayerScaler::GroupedLayerScaler(Backend& backend, const ScalePolicy& policy,
                                       std::span<const ScaleGroup> groups,
                                       std::span<Parameter* const> parameters)
    : GroupedLayerScaler(backend, policy, units_of(policy, groups, parameters)) {}

GroupedLayerScaler::GroupedLayerScaler(Backend& backend, const ScalePolicy& policy, Units units)
    : LayerScaler(backend, std::move(units.names), std::move(units.scales)),
      first_only_(policy.name == groups_policy),
      layers_(std::move(units.layers)),
      nonfinite_(layers_.size(), false) {
  const PolicyValues& values = policy.values;
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

/// AdaLossScaler: policy ada-loss (engine/amp/policies/ada_loss.hpp) on the back end's own verbs.
///
/// Moments of a tensor: the sum of squares by global_norm (TREE, FP64) into a StepState of our own, the
/// largest magnitude exactly; the rest is FP64 arithmetic on the host. So the same bits everywhere, and two
/// numbers to wait for at every product that is looked at.
///
/// With update_per_n_iteration = n a layer measures in every n-th iteration in which it takes part, at each
/// of its products; until then the smallest factor that it found holds, between the bounds. A product that is
/// no layer's (attention) looks each time. An iteration with an overflow counts like any other.
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

std::vector<std::string> weight_names(std::span<Parameter* const> parameters) {
  std::vector<std::string> names;
  for (const Parameter* const parameter : parameters)
    if (parameter->value.shape().rank() >= 2) names.push_back(parameter->name);
  return names;
}

/// How many terms make an element of the input's gradient. A site does not know the groups of a conv2d: those
/// of all of them are counted, more than there are, and the scale is smaller than it could be.
double fan_in_of(const GradientSite& site) {
  if (site.op == Op::lstm) return static_cast<double>(site.operand.shape()[0]);  // W_hh is (4 H, H)
  if (site.op != Op::conv2d && site.op != Op::conv_transpose2d)
    return static_cast<double>(site.cotangent.shape()[-1]);
  const Shape taps = site.operand.shape();  // (K, C, R, S); transposed (C, K, R, S)
  return static_cast<double>(taps[site.op == Op::conv2d ? 0 : 1] * taps[2] * taps[3]);
}

/// An FP32 gradient counts as if FP16 were to hold it.
FormatRange range_at(const GradientSite& site) {
  return site.cotangent.dtype() == DType::bf16 ? range_of(DType::bf16) : fp16_range;
}

AdaLossScaler::AdaLossScaler(Backend& backend, const PolicyValues& values,
                             std::span<Parameter* const> parameters)
    : LayerScaler(backend, weight_names(parameters),
                  std::vector<LayerScale>(weight_names(parameters).size())),
      params_(AdaLossScaling::layer_params(values)),
      interval_(values.count("update_per_n_iteration")),
      use_weights_(values.enabled("use_weights")),
      norm_(backend.make_step_state({})) {
  for (const Parameter* const parameter : parameters)
    if (parameter->value.shape().rank() >= 2) layers_.push_back({parameter, false, {}});
}

AdaLossScaling::Moments AdaLossScaler::moments_of(const Tensor& tensor) {
  const std::int64_t count = tensor.element_count();
  if (count == 0) return {};
  backend_->global_norm(std::span(&tensor, 1), norm_);
  const double norm = backend_->read_step_state(norm_).grad_norm;
  return {.mean_square = norm * norm / static_cast<double>(count),
          .largest = largest_magnitude(*backend_, tensor)};
}

double AdaLossScaler::factor_at(const GradientSite& site) {
  const AdaLossScaling::LayerParams params = AdaLossScaling::in_format(params_, range_at(site));
  const AdaLossScaling::Moments gradient = moments_of(site.cotangent);
  if (!use_weights_) return AdaLossScaling::factor(params, gradient);
  return AdaLossScaling::factor(params, gradient, moments_of(site.operand), fan_in_of(site));
}

int AdaLossScaler::exponent_at(const GradientSite& site) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&site](const Layer& layer) { return layer.weight == site.weight; });
  if (found == layers_.end()) return AdaLossScaling::exponent_after(params_, factor_at(site), site.exponent);
  LayerScale& state = scales_[static_cast<std::size_t>(found - layers_.begin())];
  found->took_part = true;
  double factor = static_cast<double>(state.scale);
  if (state.count % interval_ == 0) {
    factor = factor_at(site);
    found->smallest = std::min(found->smallest.value_or(factor), factor);
  } else if (const double largest = largest_magnitude(*backend_, site.cotangent);
             largest > 0 && std::isfinite(largest)) {
    // An old factor may be too much for today's gradients.
    factor = std::min(factor, AdaLossScaling::in_format(params_, range_at(site)).u_max / largest);
  }
  return AdaLossScaling::exponent_after(params_, factor, site.exponent);
}

void AdaLossScaler::begin_iteration() {
  for (Layer& layer : layers_) layer = {layer.weight, false, {}};
}

void AdaLossScaler::update() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].took_part) continue;
    if (layers_[i].smallest) scales_[i].scale = static_cast<float>(*layers_[i].smallest);
    ++scales_[i].count;
  }
  store();
}

bool read(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

[[noreturn]] void refuse_low_gradients(const ScalerOptions& options, const std::string& whose, DType dtype) {
  throw std::invalid_argument(fmt::format(
      "scaler.policy = \"{}\": gradients {} add up in {}, and dividing them by a layer's scale would round; "
      "expected amp.master_gradients = true, or a level whose gradients add up in f32",
      options.policy, whose, name_of(dtype)));
}

}  // namespace

ScaleGroup scale_group(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  ScaleGroup group;
  bool good = equals != std::string_view::npos && equals > 0;
  if (good) {
    group.pattern = text.substr(0, equals);
    const std::string_view scale = text.substr(equals + 1);
    if (scale.starts_with("2^")) {
      double power = 0;
      good = read(scale.substr(2), power) && std::trunc(power) == power && std::abs(power) < 1000;
      if (good) group.scale = std::ldexp(1.0, static_cast<int>(power));
    } else {
      good = read(scale, group.scale);
    }
    good = good && is_usable_scale(group.scale);
  }
  if (!good)
    throw std::invalid_argument(
        fmt::format("scaler.groups = \"{}\": expected PATTERN=SCALE, such as \"fc1=2^8\" or \"*=16\", with a "
                    "scale from 2^-126 to 2^127",
                    text));
  return group;
}

bool scales_layers(const ScalerOptions& options) {
  for (const std::string& group : options.groups) scale_group(group);
  const PolicyDescription& policy = scale_policy(options.policy);
  const bool grouped = policy.name == layerwise_policy || policy.name == groups_policy;
  if (grouped && options.groups.empty())
    throw std::invalid_argument(fmt::format(
        "scaler.policy = \"{}\": it scales the layers that scaler.groups names, and there are none; "
        "expected patterns and scales, such as [\"fc1=2^8\", \"*=2^4\"]",
        policy.name));
  if (!grouped && !options.groups.empty())
    throw std::invalid_argument(fmt::format(
        "scaler.groups with scaler.policy = \"{}\": only layerwise and groups have scales of layers "
        "that are named; expected []",
        policy.name));
  return options.enabled && policy.per_layer;
}

bool scales_layers(const ScalerOptions& options, const AmpPlan& plan) {
  const bool scales = scales_layers(options);
  if (scales && plan.rules.low_model && plan.rules.low_gradients)
    refuse_low_gradients(options, "of this level", plan.low);
  return scales;
}

LayerScaler::LayerScaler(Backend& backend, std::vector<std::string> names, std::vector<LayerScale> scales)
    : backend_(&backend), names_(std::move(names)), scales_(std::move(scales)) {
  const auto count = static_cast<std::int64_t>(scales_.size());
  states_ = {{"scaler.layer_scales", backend.empty({count}, DType::f32)},
             {"scaler.layer_counts", backend.empty({count}, DType::i32)}};
  store();
}

void LayerScaler::begin_iteration() {}

void LayerScaler::note_gradients(const ScaledOptimizer&, const Tensor&) {}

void LayerScaler::store() {
  std::vector<float> scales;
  std::vector<std::int32_t> counts;
  for (const LayerScale& layer : scales_) {
    scales.push_back(layer.scale);
    counts.push_back(layer.count);
  }
  backend_->upload(std::as_bytes(std::span(scales)), states_[0].tensor);
  backend_->upload(std::as_bytes(std::span(counts)), states_[1].tensor);
}

void LayerScaler::reload() {
  std::vector<float> scales(scales_.size());
  std::vector<std::int32_t> counts(scales_.size());
  backend_->download(states_[0].tensor, std::as_writable_bytes(std::span(scales)));
  backend_->download(states_[1].tensor, std::as_writable_bytes(std::span(counts)));
  for (std::size_t i = 0; i < scales_.size(); ++i) scales_[i] = {scales[i], counts[i]};
}

std::unique_ptr<LayerScaler> make_layer_scaler(Backend& backend, const ScalerOptions& options,
                                               std::span<Parameter* const> parameters) {
  const ScalePolicy policy = make_scale_policy(options);
  for (const Parameter* const parameter : parameters) {
    if (parameter->dtypes.gradient == DType::f32) continue;
    refuse_low_gradients(options, "of " + parameter->name, parameter->dtypes.gradient);
  }
  const PolicyValues& values = policy.values;
  if (policy.name == ada_loss_policy) return std::make_unique<AdaLossScaler>(backend, values, parameters);
  if (policy.name != layerwise_policy && policy.name != groups_policy)
    throw std::logic_error(fmt::format("make_layer_scaler: no scaler carries out \"{}\"", policy.name));
  std::vector<ScaleGroup> groups;
  for (const std::string& group : options.groups) groups.push_back(scale_group(group));
  return std::make_unique<GroupedLayerScaler>(backend, policy, groups, parameters);
}

}  // namespace fp16lab::engine::amp
