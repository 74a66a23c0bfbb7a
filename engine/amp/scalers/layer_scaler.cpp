#include "engine/amp/scalers/layer_scaler.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "engine/amp/scalers/ada_loss_scaler.hpp"
#include "engine/amp/scalers/grouped_layer_scaler.hpp"

namespace fp16lab::engine::amp {

namespace {

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
  const PolicyValues values(policy.values);
  if (policy.name == ada_loss_policy) return std::make_unique<AdaLossScaler>(backend, values, parameters);
  if (policy.name != layerwise_policy && policy.name != groups_policy)
    throw std::logic_error(fmt::format("make_layer_scaler: no scaler carries out \"{}\"", policy.name));
  std::vector<ScaleGroup> groups;
  for (const std::string& group : options.groups) groups.push_back(scale_group(group));
  return std::make_unique<GroupedLayerScaler>(backend, policy, groups, parameters);
}

}  // namespace fp16lab::engine::amp
