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
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

namespace {

ObservedSet wanted_tensors(Tap& tap, std::uint64_t step) {
  ObservedSet wanted;
  for (const Observed observed : every<Observed>)
    if (tap.wants({.what = what_of(observed), .step = step})) wanted.insert(observed);
  return wanted;
}

bool is_set(float flag) { return flag != 0.0f; }

/// The only places where the host waits for numbers: records and evaluations.
double read_scalar(Backend& backend, const Tensor& scalar) {
  const Tensor wide = widened(backend, scalar);
  float value = 0.0f;
  backend.download(wide, std::as_writable_bytes(std::span(&value, 1)));
  return static_cast<double>(value);
}

/// Where the first greatest element of each row is; -1 where the greatest is NaN.
std::vector<std::int32_t> greatest_of_rows(Backend& backend, const Tensor& matrix) {
  const Tensor wide = widened(backend, matrix);
  const auto rows = static_cast<std::size_t>(wide.shape()[0]),
             columns = static_cast<std::size_t>(wide.shape()[1]);
  std::vector<float> values(rows * columns);
  std::vector<std::int32_t> greatest(rows);
  backend.download(wide, std::as_writable_bytes(std::span(values)));
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const begin = values.data() + row * columns;
    std::size_t best = 0;
    for (std::size_t column = 1; column < columns; ++column)
      if (begin[column] > begin[best]) best = column;
    greatest[row] = std::isnan(begin[best]) ? -1 : static_cast<std::int32_t>(best);
  }
  return greatest;
}

/// Rows of `logits` (batch, classes) whose first greatest element is at the target: the class, or the first
/// greatest probability of a soft label (class 0 of one of zeros, as argmax has it). NaN is never the
/// greatest.
std::uint64_t count_correct(Backend& backend, const Tensor& logits, const Tensor& targets) {
  const std::vector<std::int32_t> answers = greatest_of_rows(backend, logits);
  std::vector<std::int32_t> labels(answers.size());
  if (targets.dtype() == DType::i32)
    backend.download(targets, std::as_writable_bytes(std::span(labels)));
  else
    labels = greatest_of_rows(backend, targets);
  std::uint64_t correct = 0;
  for (std::size_t row = 0; row < answers.size(); ++row)
    if (answers[row] >= 0 && answers[row] == labels[row]) ++correct;
  return correct;
}

/// "adam"; for several groups "generator: adam, discriminator: adam".
std::string optimizers_text(Iteration& parts) {
  if (parts.optimizer_count() == 1) return std::string(parts.optimizer(0).name());
  std::string text;
  for (std::size_t group = 0; group < parts.optimizer_count(); ++group)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", parts.group(group).name,
                        parts.optimizer(group).name());
  return text;
}

/// The greatest learning rate of all optimizers, and whether all of them are adaptive.
RunSettings settings_of(const TrainingPlan& plan, Iteration& parts) {
  double learning_rate = 0;
  bool adaptive = true;
  for (std::size_t group = 0; group < parts.optimizer_count(); ++group) {
    const optim::OptimizerOptions& options = parts.optimizer(group).options();
    learning_rate = std::max(learning_rate, options.learning_rate);
    adaptive = adaptive && optim::row_of(options.name).adaptive;
  }
  const auto bound = [&plan](const char* name) {
    const double value = plan.policy.values.find(name).value_or(0);
    return std::isfinite(value) ? value : 0.0;
  };
  return {
      .fp32 = plan.amp.level == Level::O0,
      .learning_rate = learning_rate,
      .adaptive = adaptive,
      .optimizer_scale = plan.optimizer.loss_scale,
      .clips_norm = plan.train.clip_norm > 0,
      .sums_micro_batches = plan.train.accumulate > 1 && plan.train.accumulate_mode == AccumulateMode::sum,
      .scaler_enabled = plan.scaler.enabled,
      .drops_overflow_update = plan.scaler.drop_overflow_update,
      .rescues = plan.scaler.rescue > 0,
      .min_scale = bound("min_scale"),
      .max_scale = bound("max_scale")};
}

}  // namespace

Trainer::Trainer(Backend& backend, Workload& workload, const TrainOptions& train, const AmpOptions& amp,
                 const ScalerOptions& scaler, const OptimizerOptions& optimizer, Tap& tap)
    : Trainer(backend, workload, plan_training(train, amp, scaler, optimizer), tap) {}

Trainer::Trainer(Backend& backend, Workload& workload, const TrainingPlan& plan, Tap& tap,
                 parallel::Communicator* communicator)
    : backend_(&backend),
      workload_(&workload),
      supervised_(workload.method ? nullptr : std::make_unique<Supervised>()),
      method_(workload.method ? workload.method.get() : supervised_.get()),
      options_(plan.train),
      tap_(&tap),
      parts_(backend, workload, *method_, plan, communicator),
      parameters_(workload.model->parameters()),
      buffers_(workload.model->buffers()),
      culprits_(backend),
      settings_(settings_of(plan, parts_)),
      last_(step_state()) {
  if (workload.training == nullptr)
    throw std::invalid_argument("Trainer: the workload has no training loader");
  if (options_.graph) recorded_.emplace(backend, *method_, parts_, &tensor_log_);
}

StepRow Trainer::train_step() {
  const FloatingPointScope environment;
  const auto start = std::chrono::steady_clock::now();
  const StepKind kind = begin_looking(iteration_ + 1);
  if (!is_replayed(kind)) {
    parts_.begin(iteration_, kind.names_overflows);
    method_->run(parts_);  // Supervised::run: forward, backward from S, unscale, check, clip, step or skip
    parts_.end();          // update: the policy gives the next S
    if (recorded_) recorded_->note_done(kind);
  }
  parts_.fetch_ahead();
  ++iteration_;
  StepRow row = record_step();
  end_looking();
  row.epoch = static_cast<double>(iteration_) * static_cast<double>(options_.accumulate) /
              static_cast<double>(workload_->training->batches_per_epoch());
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (const std::uint64_t told = std::min<std::uint64_t>(2, options_.steps); iteration_ == told)
    tap_->see(Event(memory()));
  tap_->see(Event(row));
  return row;
}

/// Asks what the step is to show, and has it shown.
StepKind Trainer::begin_looking(std::uint64_t step) {
  const ObservedSet observed = wanted_tensors(*tap_, step);
  tensor_log_.begin(step, observed, *tap_);
  parts_.autocast().set_statistics(wants(What::op_statistics, step) ? &op_statistics_ : nullptr);
  parts_.set_taps(!observed.empty() || parts_.wants_statistics() ? &tensor_log_ : nullptr,
                  wants_culprits(step) ? &culprits_ : nullptr);
  return {.observed = observed, .names_overflows = wants(What::overflows, step)};
}

void Trainer::end_looking() {
  parts_.set_taps(nullptr, nullptr);  // not in evaluations
  if (parts_.autocast().statistics() == nullptr) return;
  parts_.autocast().set_statistics(nullptr);
  tap_->see(Event(CountedOps{.step = iteration_, .statistics = op_statistics_}));
  op_statistics_.clear();
}

bool Trainer::is_replayed(StepKind kind) {
  // Ops are counted, gradients dumped and values followed by the host.
  const bool by_host =
      parts_.autocast().statistics() != nullptr || parts_.dumps(iteration_) || parts_.follows_values();
  return recorded_ && !by_host && recorded_->replay(iteration_, kind);
}

StepRow Trainer::record_step() {
  const StepState state = step_state();
  const Rescue& rescue = parts_.last_rescue();
  StepRow row;
  row.step = iteration_;
  row.loss = parts_.mean_loss();
  row.loss_scale = rescue.attempts > 0 ? rescue.scale : last_.scale;
  row.found_inf = std::any_of(state.found_inf.begin(), state.found_inf.end(), is_set);
  row.skipped = state.skipped_steps != last_.skipped_steps;
  row.grad_norm = state.grad_norm;
  row.lr = static_cast<double>(state.learning_rate.front());
  row.state_hash = state_hash();
  parts_.sharding().compare(row.state_hash, row.step, [this] { return digests(); });
  if (!tensor_log_.wanted().empty()) report_tensors(row, state);
  if (wants(What::operands, iteration_))
    for (const RecipeRow& operand : parts_.autocast().recipe_records().rows(iteration_))
      tap_->see(Event(operand));
  if (wants(What::overflows, iteration_)) report_overflow(row, state);
  last_ = state;
  return row;
}

void Trainer::report_tensors(StepRow& row, const StepState& state) {
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group)
    if (state.skipped_steps[group] != last_.skipped_steps[group])
      tensor_log_.forget_updates(static_cast<int>(group));
  tensor_log_.settle(*backend_, &parts_.sharding());
  if (tensor_log_.wanted().contains(Observed::gradients))
    if (const auto counts = tensor_log_.cast_counts()) row.underflow_rate = counts->underflow_rate();
  tensor_log_.report(row.loss_scale);
}

void Trainer::report_overflow(const StepRow& row, const StepState& state) {
  // If a rescue was tried, everything but the optimizers' part comes from the step's first backward pass.
  const Rescue& rescue = parts_.last_rescue();
  const bool rescued = rescue.attempts > 0;
  const bool loss = rescued ? rescue.loss_overflow : is_set(state.loss_overflow);
  const bool gradients = rescued || row.found_inf;
  // A loss that is not finite has its culprits too, where no code checks gradients (scaler.enabled = false).
  if (parts_.follows_values() && (gradients || loss || !std::isfinite(row.loss))) {
    Culprits culprits{.step = row.step, .rows = culprits_.culprits()};
    for (CulpritRow& culprit : culprits.rows) {
      culprit.step = row.step;
      if (culprit.pass == CulpritPass::backward) culprit.finite_scale = parts_.finite_scale();
    }
    tap_->see(Event(culprits));
  }
  if (!gradients && !loss) return;
  OverflowRow overflow{.step = row.step,
                       .kind = gradients && loss ? OverflowKind::both
                               : gradients       ? OverflowKind::gradient
                                                 : OverflowKind::loss,
                       .loss_scale = rescued ? rescue.overflowed_scale : row.loss_scale};
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group) {
    if (state.skipped_steps[group] != last_.skipped_steps[group])
      overflow.optimizers.push_back(parts_.group(group).name);
    if (rescued) continue;
    for (std::string& name : parts_.nonfinite_parameters(group))
      overflow.parameters.push_back(std::move(name));
  }
  if (rescued) {
    overflow.parameters = rescue.parameters;
    overflow.rescue = {.attempts = rescue.attempts, .loss_scale = rescue.scale, .rescued = !row.found_inf};
  }
  tap_->see(Event(overflow));
}

void Trainer::dump_gradients(std::uint64_t step, std::filesystem::path path) {
  if (step <= iteration_ || step > options_.steps) {
    throw std::invalid_argument("dump_gradients: step " + std::to_string(step) +
                                ", but this run does steps " + std::to_string(iteration_ + 1) + " to " +
                                std::to_string(options_.steps));
  }
  parts_.dump_gradients(step, std::move(path));
}

std::uint64_t Trainer::state_hash() {
  digests_.clear();
  const auto add = [this](const Tensor& tensor, std::string_view name) {
    digests_.push_back({tensor, stream_id(name)});
  };
  add(parts_.step_memory(), "step_state");
  for (const Parameter* parameter : parameters_) add(parameter->value, parameter->name);
  for (const nn::Buffer* buffer : buffers_) add(buffer->value, buffer->name);
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group) {
    for (const optim::NamedTensor& state : parts_.optimizer(group).state()) add(state.tensor, state.name);
  }
  for (const optim::NamedTensor& state : parts_.loss_states()) add(state.tensor, state.name);
  const std::uint64_t hash = backend_->digest(digests_);
  digests_.clear();  // no share of any memory is kept
  return hash;
}

std::vector<NamedDigest> Trainer::digests() {
  const TrainingState state = training_state();
  std::vector<NamedDigest> digests{{"step", backend_->digest(state.step, stream_id("step"))}};
  for (const optim::NamedTensor& part : state.tensors)
    digests.push_back({part.name, backend_->digest(part.tensor, stream_id(part.name))});
  return digests;
}

RunMemory Trainer::memory() {
  RunMemory memory{.activations = parts_.forward_bytes(),
                   .peak = backend_->memory_statistics().peak_bytes_in_use};
  for (const Parameter* parameter : parameters_) {
    const auto elements = static_cast<std::size_t>(parameter->value.element_count());
    const bool has_master = parameter->dtypes.model != parameter->value.dtype();
    memory.parameters += elements * size_of(parameter->dtypes.model);
    if (has_master) memory.masters += parameter->value.byte_count();
    if (!parameter->frozen) memory.gradients += elements * size_of(parameter->dtypes.gradient);
  }
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group)
    for (const optim::NamedTensor& state : parts_.optimizer(group).state())
      memory.optimizer += state.tensor.byte_count();
  return memory;
}

EvaluationRow Trainer::evaluate() {
  const FloatingPointScope environment;
  if (workload_->evaluation == nullptr)
    throw std::logic_error("Trainer::evaluate: the workload has no evaluation loader");
  data::BatchSource& loader = *workload_->evaluation;
  Tape& tape = parts_.tape();
  tape.set_context({});
  const GradModeGuard no_gradients(tape, false);
  const amp::AutocastGuard autocast(tape, parts_.autocast());
  Sharding& sharding = parts_.sharding();
  std::vector<double> losses(loader.batches_per_epoch());
  std::uint64_t correct = 0;
  for (std::uint64_t index = 0; index < losses.size(); ++index) {
    if (!sharding.evaluates(index)) continue;
    const data::Batch batch = loader.batch(*backend_, index);
    const TrainingMethod::Evaluation evaluation = method_->evaluate(parts_, batch);
    losses[index] = read_scalar(*backend_, evaluation.loss.tensor());
    if (workload_->accuracy) correct += count_correct(*backend_, evaluation.output.tensor(), batch.targets);
    if (evaluation.output.defined())
      tap_->see(Event(EvaluatedBatch{evaluation.output.tensor(), batch.targets}));
    tape.reset();
  }
  const double loss_sum = sharding.sum_of_batches(losses, correct);
  const std::int64_t rows = static_cast<std::int64_t>(losses.size()) * loader.rows_per_batch();
  EvaluationRow row;
  row.step = iteration_;
  row.split = loader.split();
  row.loss = loss_sum / static_cast<double>(loader.batches_per_epoch());
  if (workload_->accuracy) row.accuracy = static_cast<double>(correct) / static_cast<double>(rows);
  if (workload_->symbols_per_character > 0)
    row.bits_per_character = row.loss / std::numbers::ln2 * workload_->symbols_per_character;
  tap_->see(Event(row));
  return row;
}

TrainingState Trainer::training_state() {
  TrainingState state{.backend = backend_,
                      .iteration = iteration_,
                      .step = parts_.step_memory(),
                      .tensors = {},
                      .policy = parts_.policy_name(),
                      .optimizer = optimizers_text(parts_),
                      .counters = counters_,
                      .state_hash = state_hash()};
  for (const Parameter* parameter : parameters_) state.tensors.push_back({parameter->name, parameter->value});
  for (const nn::Buffer* buffer : buffers_) state.tensors.push_back({buffer->name, buffer->value});
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group) {
    for (const optim::NamedTensor& tensor : parts_.optimizer(group).state())
      state.tensors.push_back({"optimizer." + tensor.name, tensor.tensor});
  }
  for (const optim::NamedTensor& tensor : parts_.loss_states()) state.tensors.push_back(tensor);
  return state;
}

void Trainer::resume(const CheckpointFile& checkpoint) {
  if (iteration_ != 0) throw std::logic_error("Trainer::resume: this trainer has made steps already");
  TrainingState state = training_state();
  checkpoint.load(state);
  for (Parameter* parameter : parameters_) ++parameter->version;
  parts_.note_loaded();
  last_ = step_state();
  iteration_ = last_.iteration;
  counters_ = state.counters;
  resumed_ = true;
  if (state_hash() != checkpoint.state_hash()) {
    throw std::runtime_error(fmt::format("{}: the loaded state has the state_hash {:016x}, expected {:016x}",
                                         checkpoint.path().string(), state_hash(), checkpoint.state_hash()));
  }
  if (checkpoint.state_hash_version() < state_hash_version) forget_unread_powers();
}

/// Version 1 of the state_hash covers powers of beta1 and beta2 that no rule of the run reads.
void Trainer::forget_unread_powers() {
  for (std::size_t group = 0; group < parts_.optimizer_count(); ++group)
    if ((optim::row_of(parts_.optimizer(group).options().name).reads & optim::reads::betas) == 0) {
      last_.beta1_power[group] = 1;
      last_.beta2_power[group] = 1;
    }
  backend_->write_step_state(last_, parts_.step_memory());
}

/// Counts what is not finite; the exponent of the highest bin that holds a finite value.
std::optional<int> Trainer::look_at_weights(NonfiniteValues& nonfinite) {
  std::optional<int> highest;
  for (const Parameter* parameter : parameters_) {
    ExponentHistogram histogram;
    backend_->histogram(parameter->value, histogram);
    if (!nonfinite.any() && histogram.nan + histogram.infinite > 0) nonfinite.first = parameter->name;
    nonfinite.nan += histogram.nan;
    nonfinite.infinite += histogram.infinite;
    for (int e = ExponentHistogram::max_exponent; e > highest.value_or(ExponentHistogram::min_exponent - 1);
         --e)
      if (histogram.at(e) > 0) highest = e;
  }
  return highest;
}

/// From what the run has recorded.
Diagnosis Trainer::diagnosis(RunFacts::End end, const std::string& stop_reason) {
  RunFacts facts = facts_.facts(counters_.skips_in_a_row, counters_.nonfinite_losses);
  facts.end = end;
  facts.policy = parts_.policy_name();
  facts.stop_reason = stop_reason;
  facts.checked = parts_.checks();
  facts.settings = settings_;
  facts.settings.explained = wants_culprits(iteration_);
  facts.weight_exponent = look_at_weights(facts.weights);
  facts.first_weight_exponent = first_weight_exponent_;
  facts.weights_began_nonfinite = weights_began_nonfinite_;
  if (tensor_log_.seen()) facts.counts = tensor_log_.statistics();
  return diagnose(facts);
}

bool Trainer::evaluation_due() const {
  return workload_->evaluation != nullptr && options_.evaluate_every > 0 && iteration_ < options_.steps &&
         iteration_ % options_.evaluate_every == 0;
}

RunResult Trainer::run() {
  const FloatingPointScope environment;
  RunResult result;
  NonfiniteValues began;
  first_weight_exponent_ = look_at_weights(began);
  weights_began_nonfinite_ = began.any();
  if (resumed_ && evaluation_due()) evaluate();  // checkpoints are written before it
  while (iteration_ < options_.steps && result.end == RunResult::End::finished) {
    const StepRow record = train_step();
    counters_.nonfinite_losses = std::isfinite(record.loss) ? 0 : counters_.nonfinite_losses + 1;
    counters_.skips_in_a_row = record.skipped ? counters_.skips_in_a_row + 1 : 0;
    counters_.last_loss = record.loss;

    facts_.note(record, last_.scale);

    const bool skip_limit_reached =
        options_.skip_limit > 0 && counters_.skips_in_a_row >= options_.skip_limit;
    const std::optional<std::string> policy_stop = parts_.policy_stop(last_);
    if (counters_.nonfinite_losses >= divergence_limit || skip_limit_reached || policy_stop) {
      result.end = RunResult::End::diverged;
      result.diagnosis = diagnosis(skip_limit_reached ? RunFacts::End::skip_limit
                                   : policy_stop      ? RunFacts::End::policy_stop
                                                      : RunFacts::End::nonfinite_losses,
                                   policy_stop.value_or(""));
      break;
    }
    RunMoment moment = iteration_ == options_.steps ? RunMoment::finished : RunMoment::going_on;
    if (moment == RunMoment::going_on && parts_.sharding().any(wants(What::stop, iteration_))) {
      moment = RunMoment::stopped;
      result.end = RunResult::End::stopped;
    }
    if (tap_->wants({.what = What::checkpoint, .step = iteration_, .moment = moment}))
      tap_->see(Event(training_state()));
    if (moment == RunMoment::going_on && evaluation_due()) evaluate();
  }
  // This run lost its training, as far as its last step shows; evaluations say the rest.
  const bool ends_nonfinite = result.end == RunResult::End::finished && !std::isfinite(counters_.last_loss);
  if (ends_nonfinite) {
    result.end = RunResult::End::diverged;
    result.diagnosis = diagnosis(RunFacts::End::nonfinite_losses, "");
  }
  const StepState state = step_state();
  result.skipped_steps = *std::max_element(state.skipped_steps.begin(), state.skipped_steps.end());
  if (result.end == RunResult::End::finished && iteration_ > 0 && result.skipped_steps == iteration_ &&
      !parts_.can_fall(state)) {
    result.end = RunResult::End::diverged;
    result.diagnosis = diagnosis(RunFacts::End::no_step, "");
  }
  result.final_train_loss = counters_.last_loss;
  result.state_hash = state_hash();
  result.steps = iteration_;
  result.final_loss_scale = last_.scale;
  if ((result.end == RunResult::End::finished || ends_nonfinite) && workload_->evaluation != nullptr)
    result.evaluation = evaluate();
  result.peak_tensor_bytes = backend_->memory_statistics().peak_bytes_in_use;
  return result;
}

}  // namespace fp16lab::engine
