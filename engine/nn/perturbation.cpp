#include "engine/nn/perturbation.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/random/philox.hpp"

namespace fp16lab::engine::nn {
namespace {

constexpr std::uint64_t most_ulps = std::uint64_t{1} << 22;
constexpr std::uint32_t sign_bit = 0x80000000u;
constexpr std::uint32_t largest_finite = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max());

}  // namespace

float moved_by_ulps(float value, std::uint32_t ulps, bool up) {
  if (value == 0 || !std::isfinite(value)) return value;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~sign_bit;
  const bool away = up ? magnitude + ulps <= largest_finite : magnitude <= ulps;
  return std::bit_cast<float>((bits & sign_bit) | (away ? magnitude + ulps : magnitude - ulps));
}

void perturb_parameters(Backend& backend, Module& model, std::uint64_t ulps, std::uint64_t seed) {
  if (ulps == 0) return;
  if (ulps > most_ulps)
    throw std::invalid_argument("a perturbation of " + std::to_string(ulps) + " ulps: expected at most " +
                                std::to_string(most_ulps));
  for (Parameter* const parameter : model.parameters()) {
    if (parameter->value.dtype() != DType::f32)
      throw std::invalid_argument("a perturbation of " + parameter->name + ": expected f32, not " +
                                  std::string(name_of(parameter->value.dtype())));
    std::vector<float> values(static_cast<std::size_t>(parameter->value.element_count()));
    const PhiloxStream stream{.seed = seed, .stream = stream_id("perturb." + parameter->name)};
    backend.download(parameter->value, std::as_writable_bytes(std::span(values)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = moved_by_ulps(values[i], static_cast<std::uint32_t>(ulps), (stream.word(i) >> 31) != 0);
    backend.upload(std::as_bytes(std::span(values)), parameter->value);
    ++parameter->version;
  }
}

}  // namespace fp16lab::engine::nn
