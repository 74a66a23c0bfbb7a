// Gan: a generator and its discriminator (Goodfellow et al., "Generative Adversarial Nets", NIPS 2014).
#pragma once

#include <cstdint>
#include <memory>

#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

/// The generator makes images of noise; the discriminator's one output is the logit of "this image is real".
/// Parameters: those of the generator, then those of the discriminator; their paths must differ.
class Gan final : public Module {
 public:
  /// std::invalid_argument if either is null.
  Gan(std::unique_ptr<Module> generator, std::unique_ptr<Module> discriminator, std::int64_t noise_width);

  /// Images (batch, ...) of noise (batch, noise_width).
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
