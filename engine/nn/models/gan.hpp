// Gan: a generator and its discriminator (Goodfellow et al., "Generative Adversarial Nets", NIPS 2014).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct GanOptions {
  std::vector<std::int64_t>
      generator;  ///< widths of a perceptron: noise, hidden ones, the pixels of an image
  std::vector<std::int64_t> discriminator;  ///< pixels, hidden ones, 1
  Activation activation = Activation::relu;
  Initialization initialization = Initialization::torch_linear;
  std::uint64_t seed = 0;
};

/// Two perceptrons, "generator.fc1 ..." with a sigmoid at the end, so that pixels lie in (0, 1), and
/// "discriminator.fc1 ..." whose one output is the logit of "this image is real".
class Gan final : public Module {
 public:
  /// std::invalid_argument unless the generator makes what the discriminator takes, and that has one output.
  Gan(Backend& backend, const GanOptions& options);
  /// Of any two modules. std::invalid_argument if either is null.
  Gan(std::unique_ptr<Module> generator, std::unique_ptr<Module> discriminator, std::int64_t noise_width);

  /// Images (batch, pixels) of noise (batch, noise_width).
  Variable forward(Tape& tape, const Variable& noise) override { return generator_->forward(tape, noise); }

  Module& generator() const { return *generator_; }
  Module& discriminator() const { return *discriminator_; }
  std::int64_t noise_width() const { return noise_width_; }

 private:
  std::int64_t noise_width_;
  Module* generator_;
  Module* discriminator_;
};

}  // namespace fp16lab::engine::nn
