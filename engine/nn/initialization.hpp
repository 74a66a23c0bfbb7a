// Initial values of parameters: the frameworks' distributions, drawn from Philox streams keyed by seed and
// parameter path, so that no value depends on the order in which layers are made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/backend/backend.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::nn {

/// For a layer with fan_in inputs and fan_out outputs. U(b) is uniform on [-b, b), N(s) normal with mean 0
/// and deviation s. Biases are 0 by default.
enum class Initialization {
  /// weight and bias U(1/sqrt(fan_in)): torch.nn.Linear and Conv2d, kaiming_uniform(a = sqrt 5)
  torch_linear,
  kaiming_uniform,  ///< U(sqrt(6/fan_in)), for ReLU (He et al., ICCV 2015)
  kaiming_normal,   ///< N(sqrt(2/fan_in)), likewise
  xavier_uniform,   ///< U(sqrt(6/(fan_in + fan_out))) (Glorot & Bengio, AISTATS 2010)
  xavier_normal,    ///< N(sqrt(2/(fan_in + fan_out))), likewise
  normal_002,       ///< N(0.02), whatever the fans: GPT-2 (Radford et al. 2019)
  /// N(0.02) for linear layers, N(0.01) for convolutions: MindSpore r1.7's tutorials, which give Normal(0.02)
  /// to Dense layers only and leave Conv2d its default "normal"
  mindspore_lenet,
};

constexpr std::array<std::string_view, 7> names_of(Initialization) {
  return {"torch_linear",  "kaiming_uniform", "kaiming_normal", "xavier_uniform",
          "xavier_normal", "normal_002",      "mindspore_lenet"};
}

/// 1/sqrt(fan_in), torch's bound for Linear, Conv2d and (with the hidden extent) LSTM. This and every other
/// bound or deviation is one correctly rounded FP64 division and square root, then one rounding to FP32.
float torch_bound(std::int64_t fan_in);

/// A new f32 tensor from stream (seed, path), e.g. path "fc1.weight". Linear weights (outputs, inputs) have
/// fan_in = inputs, fan_out = outputs; Conv2d weights (K, C / groups, R, S) have fan_in = C / groups R S,
/// fan_out = K R S. Both must be >= 1 (std::invalid_argument naming path).
Tensor initial_weight(Backend& backend, const Shape& shape, Initialization initialization,
                      std::int64_t fan_in, std::int64_t fan_out, std::uint64_t seed, std::string_view path);
/// The bias that goes with it.
Tensor initial_bias(Backend& backend, const Shape& shape, Initialization initialization, std::int64_t fan_in,
                    std::uint64_t seed, std::string_view path);

/// A new f32 tensor, U[-bound, bound) from stream (seed, path); bound 0 gives zeros.
Tensor uniform_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                         float bound);
/// A new f32 tensor, normal with mean 0 from stream (seed, path); deviation 0 gives zeros.
Tensor normal_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                        float deviation);

}  // namespace fp16lab::engine::nn
