#include "engine/amp/levels/decorate.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace fp16lab::engine::amp {

namespace {

/// FP32 in spite of a low model. A name is the path of its module and its own, so that the patterns of
/// modules match it, and "*.bias" all biases.
bool stays_f32(const AmpPlan& plan, std::string_view name, ParameterRole role) {
  if (matches_any(plan.excluded, name)) return true;
  // The layers of a later Fp16Region are not known yet: without patterns all are low.
  if (plan.use_guard && !plan.guard.empty() && !matches_any(plan.guard, name)) return true;
  switch (role) {
    case ParameterRole::batch_norm:
      return plan.rules.batch_norm_f32;
    case ParameterRole::layer_norm:
      return plan.rules.layer_norm_f32;
    case ParameterRole::weight:
      return false;
  }
  return false;
}

/// What the model holds.
DType model_dtype(const AmpPlan& plan, std::string_view name, ParameterRole role) {
  const ToFloat* wanted = nullptr;
  for (const ToFloat& entry : plan.to_float)
    if (matches(entry.pattern, name)) wanted = &entry;
  if (wanted != nullptr) return wanted->dtype;
  return stays_f32(plan, name, role) ? DType::f32 : plan.low;
}

void round_to(DType dtype, Backend& backend, Tensor& value) {
  Tensor rounded = backend.empty(value.shape(), dtype);
  backend.cast(value, rounded);
  value = std::move(rounded);
}

}  // namespace

ParameterPlan plan_of(const AmpPlan& plan, const Parameter& parameter) {
  if (!plan.rules.low_model) return {};
  const DType low = model_dtype(plan, parameter.name, parameter.role);
  const LevelRules& rules = plan.rules;
  const DType gradient = rules.low_gradients ? low : DType::f32;
  return {.value = rules.master_weights ? DType::f32 : low,
          .dtypes = {
              .model = low, .gradient = gradient, .unscaled = rules.unscales_to_f32 ? DType::f32 : gradient}};
}

void decorate(Backend& backend, std::span<Parameter* const> parameters, const AmpPlan& plan) {
  for (const Parameter* parameter : parameters) {
    const ParameterDTypes& dtypes = parameter->dtypes;
    if (parameter->value.dtype() == DType::f32 && dtypes.model == DType::f32 &&
        dtypes.gradient == DType::f32 && dtypes.unscaled == DType::f32)
      continue;
    throw std::logic_error("amp::decorate: " + parameter->name + " is decorated already: its value is " +
                           std::string(name_of(parameter->value.dtype())) + ", the model's " +
                           std::string(name_of(dtypes.model)) + "; decorate fresh FP32 parameters, once");
  }
  for (Parameter* parameter : parameters) {
    const ParameterPlan wanted = plan_of(plan, *parameter);
    parameter->dtypes = wanted.dtypes;
    if (wanted.value == DType::f32) continue;
    round_to(wanted.value, backend, parameter->value);
    ++parameter->version;
  }
}

void decorate_statistic(Backend& backend, std::string_view name, Tensor& statistic, const AmpPlan& plan) {
  if (!plan.rules.low_model || !plan.rules.low_statistics) return;
  const DType wanted = model_dtype(plan, name, ParameterRole::batch_norm);
  if (wanted != DType::f32) round_to(wanted, backend, statistic);
}

}  // namespace fp16lab::engine::amp
