#include "engine/amp/scalers/ada_loss_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fp16lab::engine::amp {

namespace {

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

}  // namespace

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

}  // namespace fp16lab::engine::amp
