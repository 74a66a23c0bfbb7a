#include "engine/train/trainer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/data/batch_source.hpp"
#include "engine/nn/losses.hpp"
#include "numerics/philox.hpp"

namespace fp16lab::engine {

namespace {

/// The only places where the host waits for numbers: records and evaluations.
double read_scalar(Backend& backend, const Tensor& scalar) {
  float value = 0.0f;
  backend.download(scalar, std::as_writable_bytes(std::span(&value, 1)));
  return static_cast<double>(value);
}

/// Rows of `logits` (batch, classes) whose first greatest element is at the target. NaN is never the
/// greatest.
std::int64_t count_correct(Backend& backend, const Tensor& logits, const Tensor& targets) {
  Tensor wide = logits;
  if (logits.dtype() != DType::f32) {
    wide = backend.empty(logits.shape(), DType::f32);
    backend.cast(logits, wide);
  }
  const auto rows = static_cast<std::size_t>(wide.shape()[0]),
             columns = static_cast<std::size_t>(wide.shape()[1]);
  std::vector<float> scores(rows * columns);
  std::vector<std::int32_t> labels(rows);
  backend.download(wide, std::as_writable_bytes(std::span(scores)));
  backend.download(targets, std::as_writable_bytes(std::span(labels)));
  std::int64_t correct = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t best = 0;
    for (std::size_t column = 1; column < columns; ++column) {
      if (scores[row * columns + column] > scores[row * columns + best]) best = column;
    }
    if (!std::isnan(scores[row * columns + best]) && static_cast<std::size_t>(labels[row]) == best) ++correct;
  }
  return correct;
}

void check(const Workload& workload, const TrainOptions& options) {
  if (workload.model == nullptr) throw std::invalid_argument("Trainer: the workload has no model");
  if (workload.training == nullptr)
    throw std::invalid_argument("Trainer: the workload has no training loader");
  if ((workload.accuracy || workload.bits_per_character) && workload.loss != LossKind::cross_entropy) {
    throw std::invalid_argument("Trainer: accuracy and bits per character need the cross_entropy loss");
  }
  if (options.accumulate < 1) {
    throw std::invalid_argument("train.accumulate = " + std::to_string(options.accumulate) +
                                ": must be >= 1");
  }
  if (!std::isfinite(options.clip_norm) || options.clip_norm < 0) {
    throw std::invalid_argument("train.clip_norm = " + std::to_string(options.clip_norm) +
                                ": must be finite and >= 0 (0: off)");
  }
  if (!std::isfinite(options.clip_value) || options.clip_value < 0) {
    throw std::invalid_argument("train.clip_value = " + std::to_string(options.clip_value) +
                                ": must be finite and >= 0 (0: off)");
  }
}

}  // namespace

Trainer::Trainer(Backend& backend, Workload& workload, const TrainOptions& train, const AmpOptions& amp,
                 const ScalerOptions& scaler, const OptimizerOptions& optimizer, TrainObserver& observer)
    : backend_((check(workload, train), &backend)),
      workload_(&workload),
      options_(train),
      observer_(&observer),
      step_(backend.make_step_state(StepState{})),
      tape_(backend),
      autocast_(amp),
      scaler_(backend, scaler, step_),
      optimizer_(optim::make_optimizer(backend, workload.model->parameters(), optimizer, train.steps)),
      parameters_(workload.model->parameters()),
      buffers_(workload.model->buffers()),
      loss_sum_(backend.empty(Shape{}, DType::f32)),
      recorded_scale_(backend.read_step_state(step_).scale) {}

StepRecord Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  const bool observed = observer_->wants_gradients(iteration_ + 1);
  tape_.set_observer(observed ? &gradient_log_ : nullptr);
  gradient_log_.clear();

  optimizer_->begin_iteration(step_);
  optimizer_->clear_gradients();
  {
    const amp::AutocastGuard autocast(tape_, autocast_);  // master weights f32 -> f16, once per iteration
    const Tensor seed = scaler_.seed();                   // S, constant over the micro-batches
    for (std::int64_t micro_batch = 0; micro_batch < options_.accumulate; ++micro_batch) {
      forward_backward(micro_batch, seed);  // forward -> loss -> x S -> scaled gradients, summed in f32
    }
  }
  scaler_.unscale(*optimizer_);  // detect
  if (dumping()) write_gradient_dump();
  optim::clip_grad_norm(*backend_, scaler_, *optimizer_, options_.clip_norm, step_);
  optim::clip_grad_value(*backend_, scaler_, *optimizer_, options_.clip_value);
  scaler_.step(*optimizer_);  // apply, or skip
  scaler_.update();           // decide the next S
  ++iteration_;

  StepRecord record = record_step(observed);
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  observer_->on_step(record);
  return record;
}

void Trainer::forward_backward(std::int64_t micro_batch, const Tensor& seed) {
  const auto index =
      iteration_ * static_cast<std::uint64_t>(options_.accumulate) + static_cast<std::uint64_t>(micro_batch);
  const data::Batch batch = workload_->training->batch(*backend_, index);
  if (dumping()) gradient_dump_->add_batch(*backend_, batch);

  tape_.set_context({.training = true,
                     .seed = options_.seed,
                     .micro_batch = static_cast<std::uint32_t>(micro_batch),
                     .step = step_});
  const Variable prediction = workload_->model->forward(tape_, tape_.constant(batch.inputs));
  Variable loss = loss_of(prediction, batch.targets);
  if (micro_batch == 0) {
    backend_->copy(loss.tensor(), loss_sum_);
  } else {
    backend_->binary(BinaryOp::add, loss_sum_, loss.tensor(), loss_sum_);
  }

  if (options_.accumulate_mode == AccumulateMode::mean && options_.accumulate > 1) {
    loss = ops::divide_constant(loss, static_cast<float>(options_.accumulate));
  }
  tape_.backward(loss, seed);
  tape_.reset();
}

Variable Trainer::loss_of(const Variable& prediction, const Tensor& targets) const {
  switch (workload_->loss) {
    case LossKind::cross_entropy:
      return nn::cross_entropy_loss(prediction, targets);
    case LossKind::mse:
      return nn::mse_loss(prediction, targets);
  }
  throw std::logic_error("Trainer: unknown loss");
}

StepRecord Trainer::record_step(bool observed) {
  const StepState state = backend_->read_step_state(step_);
  StepRecord record;
  record.step = iteration_;
  record.loss = mean_loss();
  record.loss_scale = recorded_scale_;
  record.found_inf = found_inf(state);
  record.skipped = record.found_inf;
  record.grad_norm = state.grad_norm;
  record.learning_rate = static_cast<double>(state.learning_rate);
  record.state_hash = state_hash();
  if (observed) {
    record.underflow_rate = gradient_log_.underflow_rate();
    gradient_log_.report(*observer_, iteration_, recorded_scale_);
  }
  recorded_scale_ = state.scale;
  return record;
}

double Trainer::mean_loss() {
  return read_scalar(*backend_, loss_sum_) / static_cast<double>(options_.accumulate);
}

bool Trainer::found_inf(const StepState& state) const {
  return state.found_inf[static_cast<std::size_t>(optimizer_->index())] != 0.0f;
}

void Trainer::dump_gradients(std::uint64_t step, std::filesystem::path path) {
  if (step <= iteration_ || step > options_.steps) {
    throw std::invalid_argument("dump_gradients: step " + std::to_string(step) +
                                ", but this run does steps " + std::to_string(iteration_ + 1) + " to " +
                                std::to_string(options_.steps));
  }
  gradient_dump_.emplace(step, std::move(path));
}

void Trainer::write_gradient_dump() {
  gradient_dump_->write(*backend_, *workload_->model, mean_loss(), recorded_scale_,
                        found_inf(backend_->read_step_state(step_)));
  gradient_dump_.reset();
}

std::uint64_t Trainer::state_hash() {
  std::uint64_t hash = backend_->digest(step_, stream_id("step_state"));
  for (const Parameter* parameter : parameters_) {
    hash += backend_->digest(parameter->value, stream_id(parameter->name));
  }
  for (const nn::Buffer* buffer : buffers_) {
    hash += backend_->digest(buffer->value, stream_id(buffer->name));
  }
  for (const optim::NamedTensor& state : optimizer_->state()) {
    hash += backend_->digest(state.tensor, stream_id(state.name));
  }
  return hash;
}

EvaluationRecord Trainer::evaluate() {
  if (workload_->evaluation == nullptr)
    throw std::logic_error("Trainer::evaluate: the workload has no evaluation loader");
  data::BatchSource& loader = *workload_->evaluation;
  tape_.set_context({});
  const GradModeGuard no_gradients(tape_, false);
  const amp::AutocastGuard autocast(tape_, autocast_);
  double loss_sum = 0;
  std::int64_t correct = 0;
  std::int64_t rows = 0;
  for (std::uint64_t index = 0; index < loader.batches_per_epoch(); ++index) {
    const data::Batch batch = loader.batch(*backend_, index);
    const Variable prediction = workload_->model->forward(tape_, tape_.constant(batch.inputs));
    loss_sum += read_scalar(*backend_, loss_of(prediction, batch.targets).tensor());
    rows += loader.rows_per_batch();
    if (workload_->accuracy) correct += count_correct(*backend_, prediction.tensor(), batch.targets);
    tape_.reset();
  }
  EvaluationRecord record;
  record.step = iteration_;
  record.split = "test";
  record.loss = loss_sum / static_cast<double>(loader.batches_per_epoch());
  if (workload_->accuracy) record.accuracy = static_cast<double>(correct) / static_cast<double>(rows);
  if (workload_->bits_per_character) record.bits_per_character = record.loss / std::numbers::ln2;
  observer_->on_evaluation(record);
  return record;
}

TrainingState Trainer::training_state() {
  TrainingState state{.backend = backend_,
                      .iteration = iteration_,
                      .step = step_,
                      .tensors = {},
                      .policy = scaler_.policy_name(),
                      .optimizer = std::string(optimizer_->name()),
                      .counters = counters_,
                      .state_hash = state_hash()};
  for (const Parameter* parameter : workload_->model->parameters())
    state.tensors.push_back({parameter->name, parameter->value});
  for (const nn::Buffer* buffer : workload_->model->buffers())
    state.tensors.push_back({buffer->name, buffer->value});
  for (const optim::NamedTensor& tensor : optimizer_->state())
    state.tensors.push_back({"optimizer." + tensor.name, tensor.tensor});
  return state;
}

void Trainer::resume(const CheckpointFile& checkpoint) {
  if (iteration_ != 0) throw std::logic_error("Trainer::resume: this trainer has made steps already");
  TrainingState state = training_state();
  checkpoint.load(state);
  for (Parameter* parameter : workload_->model->parameters()) ++parameter->version;
  const StepState step = backend_->read_step_state(step_);
  iteration_ = step.iteration;
  recorded_scale_ = step.scale;
  counters_ = state.counters;
  resumed_ = true;
  if (state_hash() != checkpoint.state_hash()) {
    throw std::runtime_error(fmt::format("{}: the loaded state has the state_hash {:016x}, expected {:016x}",
                                         checkpoint.path().string(), state_hash(), checkpoint.state_hash()));
  }
}

bool Trainer::evaluation_due() const {
  return workload_->evaluation != nullptr && options_.evaluate_every > 0 && iteration_ < options_.steps &&
         iteration_ % options_.evaluate_every == 0;
}

RunResult Trainer::run() {
  RunResult result;
  if (resumed_ && evaluation_due()) evaluate();  // checkpoints are written before it
  while (iteration_ < options_.steps && result.end == RunResult::End::finished) {
    const StepRecord record = train_step();
    counters_.nonfinite_losses = std::isfinite(record.loss) ? 0 : counters_.nonfinite_losses + 1;
    counters_.skips_in_a_row = record.skipped ? counters_.skips_in_a_row + 1 : 0;
    counters_.last_loss = record.loss;

    const bool skip_limit_reached =
        options_.skip_limit > 0 && counters_.skips_in_a_row >= options_.skip_limit;
    if (counters_.nonfinite_losses >= divergence_limit || skip_limit_reached) {
      result.end = RunResult::End::diverged;
      break;
    }
    RunMoment moment = iteration_ == options_.steps ? RunMoment::finished : RunMoment::going_on;
    if (moment == RunMoment::going_on && observer_->stop_requested()) {
      moment = RunMoment::stopped;
      result.end = RunResult::End::stopped;
    }
    if (observer_->wants_checkpoint(iteration_, moment)) observer_->on_checkpoint(training_state());
    if (moment == RunMoment::going_on && evaluation_due()) evaluate();
  }
  result.skipped_steps = backend_->read_step_state(step_).skipped_steps;
  result.final_train_loss = counters_.last_loss;
  result.state_hash = state_hash();
  result.steps = iteration_;
  result.final_loss_scale = recorded_scale_;
  if (result.end == RunResult::End::finished && workload_->evaluation != nullptr) {
    const EvaluationRecord record = evaluate();
    result.evaluation_loss = record.loss;
    result.evaluation_accuracy = record.accuracy;
    result.evaluation_bits_per_character = record.bits_per_character;
  }
  result.peak_tensor_bytes = backend_->memory_statistics().peak_bytes_in_use;
  return result;
}

}  // namespace fp16lab::engine
