#include "engine/nn/initialization.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

#include "numerics/random/philox.hpp"

namespace fp16lab::engine::nn {

namespace {

/// sqrt(numerator / denominator), both roundings IEEE operations (the square root too: IEEE 754-2019, 5.4.1).
float root_of_ratio(double numerator, std::int64_t denominator) {
  return static_cast<float>(std::sqrt(numerator / static_cast<double>(denominator)));
}

void require_fan(const char* name, std::int64_t fan, std::string_view path) {
  if (fan < 1) {
    throw std::invalid_argument("initial value of " + std::string(path) + ": " + name + " is " +
                                std::to_string(fan) + "; it must be >= 1");
  }
}

PhiloxStream stream_of(std::uint64_t seed, std::string_view path) {
  return {.seed = seed, .stream = stream_id(path)};
}

}  // namespace

float torch_bound(std::int64_t fan_in) { return root_of_ratio(1.0, fan_in); }

Tensor initial_weight(Backend& backend, const Shape& shape, Initialization initialization,
                      std::int64_t fan_in, std::int64_t fan_out, std::uint64_t seed, std::string_view path) {
  require_fan("fan_in", fan_in, path);
  require_fan("fan_out", fan_out, path);
  const auto uniform = [&](float bound) { return uniform_parameter(backend, shape, seed, path, bound); };
  const auto normal = [&](float deviation) {
    return normal_parameter(backend, shape, seed, path, deviation);
  };
  switch (initialization) {
    case Initialization::torch_linear:
      return uniform(torch_bound(fan_in));
    case Initialization::kaiming_uniform:
      return uniform(root_of_ratio(6.0, fan_in));
    case Initialization::kaiming_normal:
      return normal(root_of_ratio(2.0, fan_in));
    case Initialization::xavier_uniform:
      return uniform(root_of_ratio(6.0, fan_in + fan_out));
    case Initialization::xavier_normal:
      return normal(root_of_ratio(2.0, fan_in + fan_out));
    case Initialization::normal_002:
      return normal(0.02f);
    case Initialization::mindspore_lenet:
      return normal(shape.rank() == 4 ? 0.01f : 0.02f);
  }
  throw std::invalid_argument("initial value of " + std::string(path) + ": unknown initialization " +
                              std::to_string(static_cast<int>(initialization)));
}

Tensor initial_bias(Backend& backend, const Shape& shape, Initialization initialization, std::int64_t fan_in,
                    std::uint64_t seed, std::string_view path) {
  require_fan("fan_in", fan_in, path);
  const bool drawn = initialization == Initialization::torch_linear;
  return uniform_parameter(backend, shape, seed, path, drawn ? torch_bound(fan_in) : 0.0f);
}

Tensor uniform_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                         float bound) {
  Tensor value = backend.empty(shape, DType::f32);
  if (bound == 0.0f) {
    backend.fill(value, 0.0);
  } else {
    backend.fill_uniform(value, stream_of(seed, path), -bound, bound);
  }
  return value;
}

Tensor normal_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                        float deviation) {
  Tensor value = backend.empty(shape, DType::f32);
  if (deviation == 0.0f) {
    backend.fill(value, 0.0);
  } else {
    backend.fill_normal(value, stream_of(seed, path), 0.0f, deviation);
  }
  return value;
}

}  // namespace fp16lab::engine::nn
