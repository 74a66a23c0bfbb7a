#include "experiments/device_acceptance/forward_memory.hpp"

#include <stdexcept>

#include "engine/train/iteration.hpp"

namespace fp16lab::experiments::acceptance {

namespace {

/// Else what it is cast to is made, and counted, in the forward pass.
bool reads_as_it_is(engine::Iteration& iteration, const engine::Variable& input) {
  return iteration.autocast().plan().level != engine::amp::Level::O1 &&
         input.dtype() == iteration.model().parameters().front()->dtypes.model;
}

}  // namespace

void ForwardMemory::run(engine::Iteration& iteration) {
  if (iteration.micro_batches() != 1) throw std::logic_error("ForwardMemory: one micro-batch is watched");
  const auto in_use = [&] { return iteration.backend().memory_statistics().bytes_in_use; };
  {
    const engine::amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
    engine::data::Batch batch = iteration.begin_micro_batch(0);
    const engine::Variable input = iteration.network_input(batch.inputs);
    batch.inputs = {};
    const std::size_t before = in_use();
    const engine::Variable values = iteration.model().forward(iteration.tape(), input);
    activations_->bytes =
        in_use() - before + (reads_as_it_is(iteration, input) ? input.tensor().byte_count() : 0);
    const engine::Variable loss = iteration.loss_of(iteration.network_output(values), batch.targets);
    iteration.record_loss(loss);
    iteration.backward(iteration.accumulated(loss));
    iteration.tape().reset();
  }
  engine::optim::Optimizer& optimizer = iteration.optimizer(0);
  iteration.unscale(optimizer);
  iteration.clip(optimizer);
  iteration.step(optimizer);
}

engine::TrainingMethod::Evaluation ForwardMemory::evaluate(engine::Iteration& iteration,
                                                           const engine::data::Batch& batch) {
  return engine::Supervised().evaluate(iteration, batch);
}

}  // namespace fp16lab::experiments::acceptance
