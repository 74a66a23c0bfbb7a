#include "engine/train/methods/two_models.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include "engine/train/iteration.hpp"

namespace fp16lab::engine {

namespace nn {

ModelPair::ModelPair(std::unique_ptr<Module> first, std::unique_ptr<Module> second) {
  if (first == nullptr || second == nullptr) {
    throw std::invalid_argument(std::string("ModelPair: the ") + (first == nullptr ? "first" : "second") +
                                " model is null; two are needed");
  }
  first_ = &add_child(std::move(first));
  second_ = &add_child(std::move(second));
}

Variable ModelPair::forward(Tape& tape, const Variable& x) {
  const Variable a = first_->forward(tape, x);
  return combine(combinations.front(), a, second_->forward(tape, x));
}

Variable ModelPair::combine(const Combination& combination, const Variable& a, const Variable& b) {
  const Variable left = ops::scale(a, combination.first);
  return ops::add(left, ops::scale(b, combination.second));
}

}  // namespace nn

namespace {

nn::ModelPair& pair_of(nn::Module& model) {
  auto* const pair = dynamic_cast<nn::ModelPair*>(&model);
  if (pair == nullptr) throw std::invalid_argument("TwoModels: the workload's model is no nn::ModelPair");
  return *pair;
}

}  // namespace

std::vector<OptimizerGroup> TwoModels::groups(nn::Module& model) const {
  const nn::ModelPair& pair = pair_of(model);
  return {{std::string(names[0]), pair.first().parameters()},
          {std::string(names[1]), pair.second().parameters()}};
}

void TwoModels::run(Iteration& iteration) {
  {
    // Off, but alive over all micro-batches: it keeps the casts of the parameters.
    const amp::AutocastGuard window(iteration.tape(), iteration.autocast(), false);
    for (std::int64_t micro_batch = 0; micro_batch < iteration.micro_batches(); ++micro_batch) {
      const bool last = micro_batch + 1 == iteration.micro_batches();
      forward_backward(iteration, iteration.begin_micro_batch(micro_batch), last);
      iteration.tape().reset();
    }
  }
  iteration.unscale(iteration.optimizer(0));  // 4
  iteration.clip(iteration.optimizer(0));
  iteration.step(iteration.optimizer(0));  // 5
  iteration.step(iteration.optimizer(1));
}

void TwoModels::forward_backward(Iteration& iteration, const data::Batch& batch, bool last) {
  const nn::ModelPair& models = pair_of(iteration.model());
  Tape& tape = iteration.tape();
  std::array<Variable, nn::ModelPair::combinations.size()> losses;
  {
    const amp::AutocastGuard autocast(tape, iteration.autocast());  // 1
    const Variable x = iteration.network_input(batch.inputs);
    const Variable a = models.first().forward(tape, x), b = models.second().forward(tape, x);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const Variable output = nn::ModelPair::combine(nn::ModelPair::combinations[i], a, b);
      losses[i] = iteration.loss_of(iteration.network_output(output), batch.targets);
    }
  }
  for (const Variable& loss : losses) iteration.record_loss(loss);
  const bool apart = iteration.collects();
  iteration.backward(iteration.accumulated(losses[0]), {.retain_graph = true, .last = apart}, 0);  // 2
  iteration.collect(0, {0, 1});
  iteration.backward(iteration.accumulated(losses[1]), {.last = apart || last}, 1);  // 3
  iteration.collect(1, {0, 1});
}

TrainingMethod::Evaluation TwoModels::evaluate(Iteration& iteration, const data::Batch& batch) {
  const Variable output = iteration.network_output(
      iteration.model().forward(iteration.tape(), iteration.network_input(batch.inputs)));
  return {.loss = iteration.loss_of(output, batch.targets), .output = output};
}

}  // namespace fp16lab::engine
