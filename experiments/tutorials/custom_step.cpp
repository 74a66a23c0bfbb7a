#include "experiments/tutorials/custom_step.hpp"

#include "engine/train/iteration.hpp"

namespace fp16lab::experiments {

using engine::Variable;

void CustomStep::run(engine::Iteration& iteration) {
  engine::Backend& backend = iteration.backend();
  engine::optim::Optimizer& optimizer = iteration.optimizer(0);
  {
    const engine::amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
    for (std::int64_t i = 0; i < iteration.micro_batches(); ++i) {
      const engine::data::Batch batch = iteration.begin_micro_batch(i);
      const Variable input = iteration.network_input(batch.inputs);
      const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
      const Variable loss = iteration.loss_of(output, batch.targets);
      iteration.record_loss(loss);
      iteration.backward(iteration.accumulated(loss));
      iteration.tape().reset();
    }
  }
  if (!inverse_.defined()) {
    inverse_ = backend.empty(engine::Shape{1}, DType::f32);
    backend.fill(inverse_, 1.0 / scale_);
  }
  for (engine::Parameter* parameter : optimizer.parameters())
    if (parameter->has_gradient)
      backend.binary(engine::BinaryOp::multiply, parameter->gradient, inverse_, parameter->gradient);
  iteration.step(optimizer);
}

engine::TrainingMethod::Evaluation CustomStep::evaluate(engine::Iteration& iteration,
                                                        const engine::data::Batch& batch) {
  return engine::Supervised().evaluate(iteration, batch);
}

}  // namespace fp16lab::experiments
