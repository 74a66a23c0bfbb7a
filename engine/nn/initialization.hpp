// Initial weights: uniform distributions from Philox streams keyed by seed and parameter path.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/backend/backend.hpp"

namespace fp16lab::engine::nn {

/// For a layer with fan_in inputs and fan_out outputs, U(-bound, bound) with
enum class Initialization {
  torch_linear,  ///< bound = 1/sqrt(fan_in), weight and bias: torch.nn.Linear, i.e. kaiming_uniform(a = sqrt
                 ///< 5)
  kaiming_uniform,  ///< weight bound = sqrt(6/fan_in) (He et al., ICCV 2015, for ReLU), bias 0
  xavier_uniform,   ///< weight bound = sqrt(6/(fan_in + fan_out)) (Glorot & Bengio, AISTATS 2010), bias 0
};

std::string_view name_of(Initialization initialization);
/// "torch_linear", "kaiming_uniform", "xavier_uniform"; std::invalid_argument otherwise.
Initialization initialization_from_name(std::string_view name);

/// Bounds as FP32 numbers: one correctly rounded FP64 division and square root, then one rounding to FP32.
float weight_bound(Initialization initialization, std::int64_t fan_in, std::int64_t fan_out);
float bias_bound(Initialization initialization, std::int64_t fan_in);

/// A new f32 tensor, U[-bound, bound) from stream (seed, path); bound 0 gives zeros.
Tensor uniform_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                         float bound);

}  // namespace fp16lab::engine::nn
