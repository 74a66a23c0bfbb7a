// What GradScaler and PerLossScaler share: messages of misuse, and small pieces of "detect".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/amp/scalers/grad_scaler.hpp"

namespace fp16lab::engine::amp {

/// The optimizer's place in StepState; std::invalid_argument if its index is no such place.
std::size_t slot_of(const ScaledOptimizer& optimizer, std::string_view call);

/// "CALL(sgd 1 of fc1.weight ...)": the optimizer by its name, slot and first parameter.
std::string describe(std::string_view call, const ScaledOptimizer& optimizer);

/// With the message "describe(call, optimizer): WHAT".
ScalerError misuse(ScalerError::Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what);

/// Kind::no_gradients for an optimizer that no backward pass has reached.
void require_gradients(const ScaledOptimizer& optimizer, std::string_view call);

/// std::invalid_argument if `present`, another optimizer, has the same slot in this iteration.
void require_own_slot(const ScaledOptimizer& optimizer, const ScaledOptimizer* present,
                      std::string_view call);

/// No optimizer of the state has seen an overflow.
void clear_found_inf(Backend& backend, Tensor& step);

}  // namespace fp16lab::engine::amp
