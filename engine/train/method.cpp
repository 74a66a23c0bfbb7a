#include "engine/train/method.hpp"

#include <functional>

#include "engine/train/iteration.hpp"

namespace fp16lab::engine {

std::vector<OptimizerGroup> TrainingMethod::groups(nn::Module& model) const {
  return {{.name = "model", .parameters = model.parameters()}};
}

void Supervised::run(Iteration& iteration) {
  optim::Optimizer& optimizer = iteration.optimizer(0);
  BackwardOptions options{.retain_graph = iteration.keeps_graphs()};
  std::vector<Variable> kept;  // losses whose graphs are needed until the step is decided on
  {
    const amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());  // weights f32 -> f16, once
    for (std::int64_t i = 0; i < iteration.micro_batches(); ++i) {
      data::Batch batch = iteration.begin_micro_batch(i);
      const Variable input = iteration.network_input(batch.inputs);
      batch.inputs = {};  // the tape has what the network reads
      const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
      const Variable loss = iteration.loss_of(output, batch.targets);
      iteration.record_loss(loss);
      const Variable part = iteration.accumulated(loss);
      options.last = i + 1 == iteration.micro_batches();
      iteration.backward(part, options);  // x S -> scaled gradients, summed over micro-batches
      if (options.retain_graph)
        kept.push_back(part);
      else
        iteration.tape().reset();
    }
  }
  iteration.unscale(optimizer);  // detect
  const auto backward_again = [&] {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      options.last = i + 1 == kept.size();
      iteration.backward(kept[i], options);
    }
  };
  iteration.find_finite_scale(optimizer, std::ref(backward_again));  // by reference: no allocation
  while (iteration.rescue(optimizer)) {
    backward_again();
    iteration.unscale(optimizer);
  }
  if (options.retain_graph) iteration.tape().reset();
  iteration.clip(optimizer);
  iteration.step(optimizer);  // apply, or skip; the trainer lets the policy decide the next S
}

TrainingMethod::Evaluation Supervised::evaluate(Iteration& iteration, const data::Batch& batch) {
  const Variable input = iteration.network_input(batch.inputs);
  const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
  return {.loss = iteration.loss_of(output, batch.targets), .output = output};
}

}  // namespace fp16lab::engine
