#include "engine/nn/initialization.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/nearest_name.hpp"
#include "numerics/philox.hpp"

namespace fp16lab::engine::nn {

namespace {

constexpr std::array all_initializations = {Initialization::torch_linear, Initialization::kaiming_uniform,
                                            Initialization::xavier_uniform};

/// sqrt(numerator / denominator), both roundings IEEE operations (the square root too: IEEE 754-2019, 5.4.1).
float root_of_ratio(double numerator, std::int64_t denominator) {
  return static_cast<float>(std::sqrt(numerator / static_cast<double>(denominator)));
}

}  // namespace

std::string_view name_of(Initialization initialization) {
  switch (initialization) {
    case Initialization::torch_linear:
      return "torch_linear";
    case Initialization::kaiming_uniform:
      return "kaiming_uniform";
    case Initialization::xavier_uniform:
      return "xavier_uniform";
  }
  return "?";
}

Initialization initialization_from_name(std::string_view name) {
  std::vector<std::string_view> known;
  known.reserve(all_initializations.size());
  for (const Initialization candidate : all_initializations) {
    if (name_of(candidate) == name) return candidate;
    known.push_back(name_of(candidate));
  }
  throw std::invalid_argument("model.initialization = \"" + std::string(name) +
                              "\": " + known_are(name, known));
}

float weight_bound(Initialization initialization, std::int64_t fan_in, std::int64_t fan_out) {
  switch (initialization) {
    case Initialization::torch_linear:
      return root_of_ratio(1.0, fan_in);
    case Initialization::kaiming_uniform:
      return root_of_ratio(6.0, fan_in);
    case Initialization::xavier_uniform:
      return root_of_ratio(6.0, fan_in + fan_out);
  }
  return 0.0f;
}

float bias_bound(Initialization initialization, std::int64_t fan_in) {
  return initialization == Initialization::torch_linear ? root_of_ratio(1.0, fan_in) : 0.0f;
}

Tensor uniform_parameter(Backend& backend, const Shape& shape, std::uint64_t seed, std::string_view path,
                         float bound) {
  Tensor value = backend.empty(shape, DType::f32);
  if (bound == 0.0f) {
    backend.fill(value, 0.0);
  } else {
    backend.fill_uniform(value, PhiloxStream{.seed = seed, .stream = stream_id(path)}, -bound, bound);
  }
  return value;
}

}  // namespace fp16lab::engine::nn
