// A generative adversarial network under loss scaling: two optimizers that step at different times, one
// scaler.
//
// Sources: Goodfellow et al., "Generative Adversarial Nets" (NIPS 2014), algorithm 1 with its non-saturating
// loss of the generator; the order of steps is that of PyTorch's DCGAN tutorial
// (beginner/dcgan_faces_tutorial), with the scaler's calls where "Working with multiple models, losses, and
// optimizers" of its AMP examples puts them:
//   1. fake = generator(noise); loss_D = BCE(discriminator(real), 1) + BCE(discriminator(fake), 0), where no
//      gradient reaches the generator; for every micro-batch
//   2. backward of S * loss_D; for every micro-batch
//   3. unscale, clip and step the discriminator's optimizer
//   4. loss_G = BCE(discriminator(fake), 1), with the new discriminator, and backward of S * loss_G; for
//      every micro-batch
//   5. unscale, clip and step the generator's optimizer
// and then the trainer updates the scaler once. S is the same for both losses, unless scaler.per_loss gives
// loss_D (loss 0) and loss_G (loss 1) scales of their own. In step 4 the discriminator's parameters are
// frozen: the tutorial lets their gradients of loss_G be computed, added up and thrown away, here they stay
// those of step 3, for observers. An overflow in step 2 skips the discriminator only; the generator then
// learns from the old one. BCE works on logits: on probabilities it is unsafe in 16 bits, and refused under
// autocast.
//
// Noise is normal (0, 1), a pure function of (seed, iteration, micro-batch, element): a resumed run draws the
// same. The recorded loss is loss_D + loss_G. Evaluations give the same sum on test images, every batch with
// one fixed noise.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/nn/module.hpp"
#include "engine/train/method.hpp"

namespace fp16lab::engine {

namespace nn {

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

}  // namespace nn

class AdversarialTraining final : public TrainingMethod {
 public:
  /// The names of its groups.
  static constexpr std::array<std::string_view, 2> names{"generator", "discriminator"};
  /// std::invalid_argument for a model that is no nn::Gan.
  std::vector<OptimizerGroup> groups(nn::Module& model) const override;
  int losses() const override { return 2; }
  void run(Iteration& iteration) override;
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override;

  /// Noise (rows, nn::Gan::noise_width), f32: stream "gan.noise" of the seed, at the iteration and
  /// micro-batch.
  static Tensor training_noise(Iteration& iteration, std::int64_t micro_batch, std::int64_t rows);
  /// The same for every iteration: stream "gan.evaluation_noise".
  static Tensor evaluation_noise(Iteration& iteration, std::int64_t rows);

  struct Losses {
    Variable discriminator;
    Variable generator;
  };
  /// Both losses of a batch of images with the evaluation noise, in the modes that are set.
  Losses losses(Iteration& iteration, const Tensor& images);

 private:
  Variable discriminator_loss(Iteration& iteration, const Tensor& images, const Variable& fake);
  Variable generator_loss(Iteration& iteration, const Variable& fake);
  /// BCE of the discriminator's logits for x with the label `real`, mean over the batch.
  Variable judged(Iteration& iteration, const Variable& x, bool real);

  std::vector<Variable> fakes_;  ///< those of an iteration, by micro-batch; kept for its capacity
  Tensor labels_[2];             ///< f32 (rows, 1): zeros, and ones
};

}  // namespace fp16lab::engine
