// The smallest change that weights can have: it shows how much training amplifies a difference by itself.
#pragma once

#include <cstdint>

#include "engine/backend/backend.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

/// Moves every parameter of the model that is not zero by `ulps` FP32 units in the last place, up or down by
/// the top bit of its Philox word (stream = hash of "perturb." + parameter name, element = logical index). No
/// sign changes, and nothing becomes zero or infinite: an element for which one way would do that goes the
/// other. Zeros (biases that begin there) stay, and so do NaN and Inf. ulps = 0 changes nothing.
/// std::invalid_argument for a parameter that is not f32, and for ulps above 2^22.
void perturb_parameters(Backend& backend, Module& model, std::uint64_t ulps, std::uint64_t seed);

/// One element of it; `up` is away from zero.
float moved_by_ulps(float value, std::uint32_t ulps, bool up);

}  // namespace fp16lab::engine::nn
