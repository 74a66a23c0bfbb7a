#include "engine/train/methods/gan.hpp"

#include <span>
#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/train/iteration.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

namespace nn {

Gan::Gan(std::unique_ptr<Module> generator, std::unique_ptr<Module> discriminator, std::int64_t noise_width)
    : noise_width_(noise_width) {
  if (generator == nullptr || discriminator == nullptr)
    throw std::invalid_argument("Gan: a generator and a discriminator are needed");
  generator_ = &add_child(std::move(generator));
  discriminator_ = &add_child(std::move(discriminator));
}

}  // namespace nn

namespace {

nn::Gan& gan_of(nn::Module& model) {
  auto* const gan = dynamic_cast<nn::Gan*>(&model);
  if (gan == nullptr) throw std::invalid_argument("AdversarialTraining: the workload's model is no nn::Gan");
  return *gan;
}

Tensor normal_noise(Iteration& iteration, const PhiloxStream& stream, std::int64_t rows) {
  Tensor noise = iteration.backend().empty({rows, gan_of(iteration.model()).noise_width()}, DType::f32);
  fill_rows(iteration.tape(), noise, stream, 2, [&](Tensor& out, const PhiloxStream& part) {
    iteration.backend().fill_normal(out, part, 0.0f, 1.0f);
  });
  return noise;
}

/// No gradient flows into the parameters of `optimizer` while this lives.
class Frozen {
 public:
  explicit Frozen(const optim::Optimizer& optimizer) : parameters_(optimizer.parameters()) { set(true); }
  ~Frozen() { set(false); }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  void set(bool frozen) {
    for (Parameter* parameter : parameters_) parameter->frozen = frozen;
  }
  std::span<Parameter* const> parameters_;
};

}  // namespace

std::vector<OptimizerGroup> AdversarialTraining::groups(nn::Module& model) const {
  const nn::Gan& gan = gan_of(model);
  return {{std::string(names[0]), gan.generator().parameters()},
          {std::string(names[1]), gan.discriminator().parameters()}};
}

void AdversarialTraining::run(Iteration& iteration) {
  Tape& tape = iteration.tape();
  // Off, but alive over all passes: it keeps the casts of the parameters (of one version each).
  const amp::AutocastGuard window(tape, iteration.autocast(), false);
  fakes_.clear();
  for (std::int64_t micro_batch = 0; micro_batch < iteration.micro_batches(); ++micro_batch) {
    const data::Batch batch = iteration.begin_micro_batch(micro_batch);
    Variable loss;
    {
      const amp::AutocastGuard autocast(tape, iteration.autocast());  // 1
      const Tensor noise = training_noise(iteration, micro_batch, batch.inputs.shape()[0]);
      fakes_.push_back(iteration.model().forward(tape, iteration.network_input(noise)));
      loss = discriminator_loss(iteration, batch.inputs, fakes_.back());
    }
    iteration.record_loss(loss);
    const bool last = micro_batch + 1 == iteration.micro_batches();
    iteration.backward(iteration.accumulated(loss), {.last = last}, 0);  // 2
  }
  iteration.collect(0, {1});
  iteration.unscale(iteration.optimizer(1));  // 3
  iteration.clip(iteration.optimizer(1));
  iteration.step(iteration.optimizer(1));

  const Frozen discriminator(iteration.optimizer(1));
  for (std::size_t i = 0; i < fakes_.size(); ++i) {
    Variable loss;
    {
      const amp::AutocastGuard autocast(tape, iteration.autocast());  // 4
      loss = generator_loss(iteration, fakes_[i]);
    }
    iteration.record_loss(loss);
    // The fakes share the casts of the generator's parameters, which must outlive all but the last pass.
    const bool last = i + 1 == fakes_.size();
    iteration.backward(iteration.accumulated(loss), {.retain_graph = !last, .last = last}, 1);
  }
  tape.reset();
  iteration.collect(1, {0});
  iteration.unscale(iteration.optimizer(0));  // 5
  iteration.clip(iteration.optimizer(0));
  iteration.step(iteration.optimizer(0));
}

TrainingMethod::Evaluation AdversarialTraining::evaluate(Iteration& iteration, const data::Batch& batch) {
  const Losses both = losses(iteration, batch.inputs);
  return {.loss = ops::add(both.discriminator, both.generator)};
}

AdversarialTraining::Losses AdversarialTraining::losses(Iteration& iteration, const Tensor& images) {
  const Variable fake = iteration.model().forward(
      iteration.tape(), iteration.network_input(evaluation_noise(iteration, images.shape()[0])));
  const Variable discriminator = discriminator_loss(iteration, images, fake);
  return {.discriminator = discriminator, .generator = generator_loss(iteration, fake)};
}

Variable AdversarialTraining::discriminator_loss(Iteration& iteration, const Tensor& images,
                                                 const Variable& fake) {
  const Variable real_part = judged(iteration, iteration.network_input(images), true);
  return ops::add(real_part, judged(iteration, ops::detach(fake), false));
}

Variable AdversarialTraining::generator_loss(Iteration& iteration, const Variable& fake) {
  return judged(iteration, fake, true);
}

Variable AdversarialTraining::judged(Iteration& iteration, const Variable& x, bool real) {
  Tape& tape = iteration.tape();
  const Variable logits =
      iteration.network_output(gan_of(iteration.model()).discriminator().forward(tape, x));
  Tensor& label = labels_[real ? 1 : 0];
  if (!label.defined() || !(label.shape() == logits.shape())) {
    label = iteration.backend().empty(logits.shape(), DType::f32);
    iteration.backend().fill(label, real ? 1.0 : 0.0);
  }
  const ScopeGuard scope(tape, "loss");
  return ops::binary_cross_entropy_with_logits(logits, tape.constant(label));
}

Tensor AdversarialTraining::training_noise(Iteration& iteration, std::int64_t micro_batch,
                                           std::int64_t rows) {
  return normal_noise(iteration,
                      {.seed = iteration.seed(),
                       .stream = stream_id("gan.noise"),
                       .iteration = static_cast<std::uint32_t>(iteration.number()),
                       .micro_batch = static_cast<std::uint32_t>(micro_batch)},
                      rows);
}

Tensor AdversarialTraining::evaluation_noise(Iteration& iteration, std::int64_t rows) {
  return normal_noise(iteration, {.seed = iteration.seed(), .stream = stream_id("gan.evaluation_noise")},
                      rows);
}

}  // namespace fp16lab::engine
