#include "engine/train/methods/gradient_penalty.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/train/iteration.hpp"

namespace fp16lab::engine {

namespace {

/// An f32 scalar.
Variable constant_of(Tape& tape, double value) {
  Tensor tensor = tape.backend().empty(Shape{}, DType::f32);
  tape.backend().fill(tensor, value);
  return tape.constant(tensor);
}

}  // namespace

Variable l2_norm(std::span<const Variable> parts) {
  if (parts.empty()) throw std::invalid_argument("l2_norm: no tensors");
  Tape& tape = parts.front().tape();
  Variable squares;
  for (const Variable& part : parts) {
    const Variable sum = sum_of_elements(ops::multiply(part, part));
    squares = squares.defined() ? ops::add(squares, sum) : sum;
  }
  // The root is taken of x where x > 0 and of 1 where x == 0, and its result is then dropped there: no path
  // leads through the infinite slope at 0. (JAX's users know it as the double where.)
  const Variable one = constant_of(tape, 1.0);
  const Variable is_zero = ops::subtract(one, ops::select_positive(ops::detach(squares), one));
  const Variable root = ops::square_root(ops::add(squares, is_zero));
  return ops::select_positive(ops::detach(squares), root);
}

GradientPenalty::GradientPenalty(const GradientPenaltyOptions& options) : options_(options) {
  if (!std::isfinite(options.weight) || options.weight < 0.0f) {
    throw std::invalid_argument("GradientPenalty: weight = " + std::to_string(options.weight) +
                                ": must be finite and >= 0");
  }
}

void GradientPenalty::run(Iteration& iteration) {
  Tape& tape = iteration.tape();
  {
    // Off, but alive over all micro-batches: it keeps the casts of the parameters.
    const amp::AutocastGuard window(tape, iteration.autocast(), false);
    for (std::int64_t micro_batch = 0; micro_batch < iteration.micro_batches(); ++micro_batch) {
      const data::Batch batch = iteration.begin_micro_batch(micro_batch);
      const Variable total = penalised_loss(iteration, batch);
      iteration.record_loss(total);
      const bool last = micro_batch + 1 == iteration.micro_batches();
      iteration.backward(iteration.accumulated(total), {.last = last});  // 5
      tape.reset();
    }
  }
  optim::Optimizer& optimizer = iteration.optimizer(0);
  iteration.unscale(optimizer);
  iteration.clip(optimizer);
  iteration.step(optimizer);
}

Variable GradientPenalty::penalised_loss(Iteration& iteration, const data::Batch& batch) {
  Variable loss;
  {
    const amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
    loss = evaluate(iteration, batch).loss;  // 1
  }
  const Variable norm = penalty(iteration, loss);
  const amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
  return ops::add(loss, options_.weight == 1.0f ? norm : ops::scale(norm, options_.weight));
}

Variable GradientPenalty::penalty(Iteration& iteration, const Variable& loss) {
  Tape& tape = iteration.tape();
  parameters_.clear();
  for (Parameter* parameter : iteration.optimizer(0).parameters())
    parameters_.push_back(tape.parameter(*parameter));
  // Not counted: the tap would count every tensor twice, once without the penalty.
  std::vector<Variable> gradients =
      tape.gradients(std::array{loss}, std::array{iteration.seed_of(loss)}, parameters_,
                     {.create_graph = true, .allow_unused = true, .counted = false});  // 2
  const Variable inverse = tape.constant(iteration.scaler().inverse_seed());
  for (Variable& gradient : gradients)
    gradient = ops::multiply(ops::cast(gradient, DType::f32), inverse);  // 3
  const amp::AutocastGuard autocast(tape, iteration.autocast());
  return l2_norm(gradients);  // 4
}

TrainingMethod::Evaluation GradientPenalty::evaluate(Iteration& iteration, const data::Batch& batch) {
  const Variable output = iteration.network_output(
      iteration.model().forward(iteration.tape(), iteration.network_input(batch.inputs)));
  return {.loss = iteration.loss_of(output, batch.targets), .output = output};
}

}  // namespace fp16lab::engine
