// What a value that a loss-scale policy's parameter cannot have should have been. Host only.
#pragma once

#include <string>

#include "engine/amp/policy_parameters.hpp"

namespace fp16lab::engine::amp {

/// expectation_of(parameter), or nearest_fp32(value) where initial_scale is in range and no FP32 number;
/// empty: the value is good. NaN is never in range; the FP32 value of a real must be in range too, because
/// most policies compute in it, and be 0 only for 0.
std::string unmet_expectation(const PolicyParameter& parameter, double value);

/// "an FP32 number; the nearest ones are 0.09999999403953552 and 0.10000000149011612", of what FP32 holds.
std::string nearest_fp32(double value);

}  // namespace fp16lab::engine::amp
