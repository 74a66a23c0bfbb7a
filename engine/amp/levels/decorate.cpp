#include "engine/amp/levels/decorate.hpp"

#include <stdexcept>
#include <string>

namespace fp16lab::engine::amp {

namespace {

/// FP32 in spite of a low model. A parameter's name is the path of its module and its own, so that the
/// patterns of modules match it, and "*.bias" all biases.
bool stays_f32(const AmpPlan& plan, const Parameter& parameter) {
  if (matches_any(plan.excluded, parameter.name)) return true;
  // Which layers an Fp16Region will hold nobody knows yet: without patterns all are low.
  if (plan.use_guard && !plan.guard.empty() && !matches_any(plan.guard, parameter.name)) return true;
  switch (parameter.role) {
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
DType model_dtype(const AmpPlan& plan, const Parameter& parameter) {
  const ToFloat* wanted = nullptr;
  for (const ToFloat& entry : plan.to_float)
    if (matches(entry.pattern, parameter.name)) wanted = &entry;
  if (wanted != nullptr) return wanted->dtype;
  return stays_f32(plan, parameter) ? DType::f32 : plan.low;
}

}  // namespace

ParameterPlan plan_of(const AmpPlan& plan, const Parameter& parameter) {
  if (!plan.rules.low_model) return {};
  const DType low = model_dtype(plan, parameter);
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
                           std::string(fp16lab::name_of(parameter->value.dtype())) + ", the model's " +
                           std::string(fp16lab::name_of(dtypes.model)) +
                           "; decorate fresh FP32 parameters, once");
  }
  for (Parameter* parameter : parameters) {
    const ParameterPlan wanted = plan_of(plan, *parameter);
    parameter->dtypes = wanted.dtypes;
    if (wanted.value == DType::f32) continue;
    Tensor rounded = backend.empty(parameter->value.shape(), wanted.value);
    backend.cast(parameter->value, rounded);
    parameter->value = rounded;
    ++parameter->version;
  }
}

}  // namespace fp16lab::engine::amp
