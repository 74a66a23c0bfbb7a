// A GAN of two perceptrons, for tests of what trains one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"

namespace fp16lab::engine::test {

/// Widths of "generator.fc1 ...", from noise to pixels, with a sigmoid at the end, and of "discriminator.fc1
/// ...", from pixels to one logit.
inline std::unique_ptr<nn::Gan> gan_of(Backend& backend, const std::vector<std::int64_t>& generator,
                                       const std::vector<std::int64_t>& discriminator,
                                       std::uint64_t seed = 3) {
  const auto part = [&](const std::vector<std::int64_t>& widths, std::string path, nn::Activation output) {
    return std::make_unique<nn::Mlp>(
        backend, nn::MlpOptions{.widths = widths, .output = output, .path = std::move(path), .seed = seed});
  };
  return std::make_unique<nn::Gan>(part(generator, "generator", nn::Activation::sigmoid),
                                   part(discriminator, "discriminator", nn::Activation::none),
                                   generator.front());
}

}  // namespace fp16lab::engine::test
