// decorate: the model's side of a level, as paddle.amp.decorate and apex.amp.initialize do it.
#pragma once

#include <span>
#include <string_view>

#include "engine/amp/levels/level.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/backend/backend.hpp"

namespace fp16lab::engine::amp {

/// The dtypes that the plan gives a parameter (engine/autograd/parameter.hpp has the table).
struct ParameterPlan {
  DType value = DType::f32;
  ParameterDTypes dtypes;
};
ParameterPlan plan_of(const AmpPlan& plan, const Parameter& parameter);

/// Sets dtypes, and without master weights rounds the values once, in place of the FP32 ones. Call it once,
/// on fresh FP32 parameters, before optimizers are made: std::logic_error naming the parameter if it was
/// decorated already (its value or dtypes are not FP32).
void decorate(Backend& backend, std::span<Parameter* const> parameters, const AmpPlan& plan);

/// The same of a running statistic of BatchNorm (f32), by its name as a parameter's: it has the dtype of
/// its layer's parameters where LevelRules::low_statistics says so, rounded in place of the FP32 one.
void decorate_statistic(Backend& backend, std::string_view name, Tensor& statistic, const AmpPlan& plan);

}  // namespace fp16lab::engine::amp
