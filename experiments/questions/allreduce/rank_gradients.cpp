#include "experiments/questions/allreduce/rank_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/nn/losses.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/questions/tensor_values.hpp"

namespace fp16lab::experiments::allreduce {

using engine::Parameter;
using engine::Tensor;

RankGradients::RankGradients(PreparedRun& run, std::uint64_t steps)
    : run_(&run),
      tape_(*run.backend),
      autocast_(run.plan.amp, tape_),
      parameters_(run.workload.model->parameters()),
      step_(run.backend->make_step_state(engine::StepState{})),
      optimizer_(engine::optim::make_optimizer(*run.backend, parameters_, run.plan.optimizer, steps)) {
  if (run.plan.amp.level != engine::Level::O0 && run.plan.amp.level != engine::Level::O1)
    throw CommandError(ExitCode::usage, "amp.level: expected O0 or O1, whose gradients are FP32");
  for (const Parameter* parameter : parameters_)
    elements_ += static_cast<std::size_t>(parameter->value.element_count());
}

std::vector<float> RankGradients::weights() {
  std::vector<float> values;
  values.reserve(elements_);
  for (const Parameter* parameter : parameters_) append_values(backend(), parameter->value, values);
  return values;
}

std::vector<std::vector<float>> RankGradients::scaled(std::uint64_t iteration, int ranks, double scale) {
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::uint64_t micro_batch =
        iteration * static_cast<std::uint64_t>(ranks) + static_cast<std::uint64_t>(rank);
    gradients.push_back(one(micro_batch, scale, 1));
  }
  return gradients;
}

std::vector<float> RankGradients::scaled_outlier(std::uint64_t micro_batch, double scale, float factor) {
  return one(micro_batch, scale, factor);
}

std::vector<float> RankGradients::one(std::uint64_t micro_batch, double scale, float input_factor) {
  optimizer_->clear_gradients();
  tape_.set_context({.training = true, .seed = run_->plan.train.seed, .step = step_});
  engine::data::Batch batch = run_->workload.training->batch(backend(), micro_batch);
  if (input_factor != 1) backend().scale(batch.inputs, input_factor, batch.inputs);
  Tensor seed = backend().empty(engine::Shape{}, DType::f32);
  backend().fill(seed, scale);
  {
    const engine::amp::AutocastGuard autocast(tape_, autocast_);
    const engine::Variable output = run_->workload.model->forward(tape_, tape_.constant(batch.inputs));
    tape_.backward(engine::nn::loss_of(run_->workload.loss, output, batch.targets), seed);
  }
  tape_.reset();

  std::vector<float> gradient;
  gradient.reserve(elements_);
  for (const Parameter* parameter : parameters_) append_values(backend(), parameter->gradient, gradient);
  return gradient;
}

void RankGradients::step(const std::vector<float>& mean) {
  optimizer_->begin_iteration(step_);
  std::size_t begin = 0;
  for (Parameter* parameter : parameters_) {
    const auto count = static_cast<std::size_t>(parameter->value.element_count());
    backend().upload(std::as_bytes(std::span(mean).subspan(begin, count)), parameter->gradient);
    begin += count;
  }
  optimizer_->apply(step_);
}

bool all_finite(const std::vector<std::vector<float>>& ranks) {
  return std::ranges::all_of(ranks, [](const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  });
}

}  // namespace fp16lab::experiments::allreduce
