#include "engine/train/iteration.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/amp/levels/decorate.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "engine/backend/backend.hpp"
#include "engine/nn/losses.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/iteration_programs.hpp"
#include "engine/train/tensor_log.hpp"
#include "numerics/formats/format.hpp"

namespace fp16lab::engine {

namespace {

/// UpdateLog: counts the weights at the start of a step, the optimizer's update of them, and its state.
///
/// For one Optimizer::apply. All that it does are verbs of the back end, so that a recording replays them.
class UpdateLog final : public Tap {
 public:
  UpdateLog(Backend& backend, TensorLog& log, const optim::Optimizer& optimizer)
      : backend_(&backend), log_(&log), optimizer_(&optimizer) {}

  /// Weights that no forward pass of the iteration has cast, as they are stored.
  void count_weights();
  void see(const Event& event) override;
  /// After the updates.
  void count_state();

 private:
  void see(const optim::WeightUpdate& update);

  Backend* backend_;
  TensorLog* log_;
  const optim::Optimizer* optimizer_;
  Tensor old_;  ///< f32: the weight before the update; undefined: not asked for
};

void UpdateLog::count_weights() {
  for (const Parameter* parameter : optimizer_->parameters()) {
    if (!log_->wants(Observed::weights, parameter->name) || log_->has_weight(parameter->name)) continue;
    CastProbe probe;
    backend_->histogram(parameter->value, probe);
    log_->on_weight(*parameter, probe);
  }
}

void UpdateLog::see(const Event& event) {
  if (const auto* update = event.as<optim::WeightUpdate>()) see(*update);
}

void UpdateLog::see(const optim::WeightUpdate& update) {
  const Parameter& parameter = update.parameter;
  if (!log_->wants(Observed::updates, parameter.name)) return;
  if (update.done) {
    UpdateProbes probes;
    backend_->count_update(old_, parameter.value, parameter.gradient, probes);
    log_->on_update(parameter.name, parameter.value.dtype(), optimizer_->index(), probes);
    old_ = {};
    return;
  }
  old_ = backend_->empty(parameter.value.shape(), DType::f32);
  if (parameter.value.dtype() == DType::f32)
    backend_->copy(parameter.value, old_);
  else
    backend_->cast(parameter.value, old_);
}

void UpdateLog::count_state() {
  for (const optim::NamedTensor& state : optimizer_->state()) {
    if (!log_->wants(Observed::optimizer_state, state.name)) continue;
    CastProbe probe;
    backend_->histogram(state.tensor, probe);
    log_->on_optimizer_state(state.name, state.tensor.dtype(), probe);
  }
}

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

void check(const Workload& workload) {
  if (workload.model == nullptr) refuse("Trainer: the workload has no model");
  if ((workload.accuracy || workload.symbols_per_character > 0) &&
      workload.loss.kind != LossKind::cross_entropy)
    refuse("Trainer: accuracy and bits per character need the cross_entropy loss");
}

void check(const std::vector<OptimizerGroup>& groups, const nn::Module& model) {
  if (groups.empty() || groups.size() > static_cast<std::size_t>(max_optimizers))
    refuse(fmt::format("Trainer: the method has {} optimizers: must be from 1 to {}", groups.size(),
                       max_optimizers));
  const std::vector<Parameter*> parameters = model.parameters();
  const std::set<const Parameter*> known(parameters.begin(), parameters.end());
  std::set<const Parameter*> seen;
  for (const OptimizerGroup& group : groups) {
    for (const Parameter* parameter : group.parameters) {
      if (!known.contains(parameter))
        refuse(fmt::format("Trainer: optimizer {} has {}, which is no parameter of the model", group.name,
                           parameter->name));
      if (!seen.insert(parameter).second)
        refuse(fmt::format("Trainer: {} belongs to more than one optimizer, the last one {}", parameter->name,
                           group.name));
    }
  }
}

}  // namespace

amp::NetworkNames network_names(const nn::Module& model) {
  amp::NetworkNames names{.layers = model.scopes(), .parameters = {}};
  names.layers.emplace_back("loss");  // engine/nn/losses.hpp
  for (const Parameter* parameter : model.parameters()) names.parameters.push_back(parameter->name);
  return names;
}

Iteration::Iteration(Backend& backend, Workload& workload, TrainingMethod& method, const TrainingPlan& plan,
                     parallel::Communicator* communicator)
    : backend_((check(workload), check_per_loss(plan.scaler, method.losses()),
                check_rescue(plan.scaler, method), &backend)),
      workload_(&workload),
      options_(plan.train),
      sharding_(backend, plan.parallel, communicator),
      step_(backend.make_step_state(StepState{})),
      tape_(backend),
      counting_(tape_),
      autocast_(plan.amp, tape_),
      scaler_(backend, plan.scaler, plan.policy, step_, method.losses()),
      groups_(method.groups(*workload.model)),
      loss_sum_(backend.empty(Shape{}, DType::f32)),
      norms_(backend.empty({max_optimizers}, DType::f64)) {
  check(groups_, *workload.model);
  const amp::ScalerOptions& scaler = plan.scaler;
  if (scaler_.checks()) rescue_limit_ = static_cast<std::uint64_t>(scaler.rescue);
  const std::vector<Parameter*> parameters = workload.model->parameters();
  amp::check_patterns(autocast_.plan(), network_names(*workload.model));
  amp::decorate(backend, parameters, autocast_.plan());       // before optimizers look at the parameters
  for (nn::Buffer* const buffer : workload.model->buffers())  // all are running statistics
    amp::decorate_statistic(backend, buffer->name, buffer->value, autocast_.plan());
  for (OptimizerGroup& group : groups_) {
    std::erase_if(group.parameters, [](const Parameter* parameter) { return parameter->frozen; });
    if (group.parameters.empty())
      refuse(
          fmt::format("Trainer: optimizer {} has nothing to train, all parameters are frozen", group.name));
    optimizers_.push_back(optim::make_optimizer(backend, group.parameters, plan.optimizer_of(group.name),
                                                plan.train.steps, static_cast<int>(optimizers_.size())));
    sharding_.add_group(optimizers_.back()->parameters());
  }
  names_.resize(groups_.size());
  counted_.resize(groups_.size());
  loss_states_ = scaler_.states();
  if (amp::scales_layers(scaler)) {
    layer_scaler_ = amp::make_layer_scaler(backend, scaler, parameters);
    tape_.set_gradient_scales(layer_scaler_.get());
    for (const amp::NamedTensor& state : layer_scaler_->states()) loss_states_.push_back(state);
  }
  if (autocast_.plan().product_formats.forward.a.delayed) {
    for (const std::string& layer : network_names(*workload.model).layers) {
      ProductFormats formats = autocast_.plan().product_formats;
      autocast_.recipe_records().attach(formats, layer);
    }
    const auto count = static_cast<std::int64_t>(autocast_.recipe_records().histories().size());
    histories_ = backend.empty({count}, DType::f32);
    store_histories();
    loss_states_.push_back({"amp.amax_histories", histories_});
  }
}

void Iteration::store_histories() {
  const std::vector<float> states = autocast_.recipe_records().histories();
  backend_->upload(std::as_bytes(std::span(states)), histories_);
}

amp::GradScaler& Iteration::scaler() {
  if (!scaler_.per_loss()) return scaler_;
  throw std::logic_error("Iteration::scaler: scaler.per_loss = true: each loss has a scale of its own");
}

bool Iteration::logs(std::initializer_list<Observed> any) const {
  return log_ != nullptr && std::any_of(any.begin(), any.end(), [this](Observed observed) {
           return log_->wanted().contains(observed);
         });
}

void Iteration::set_taps(TensorLog* log, CulpritFinder* finder) {
  log_ = log;
  finder_ = finder;
  counting_.end();
  Taps taps;
  if (log != nullptr) {
    ObservedSet observed = log->wanted();
    if (wants_statistics()) observed.insert(Observed::gradients);
    counting_.begin(*log, observed);
    taps.add(counting_);
  }
  if (finder != nullptr) taps.add(*finder);
  tape_.set_taps(taps);
}

void Iteration::begin(std::uint64_t number, bool names_overflows) {
  number_ = number;
  names_overflows_ = names_overflows;
  loss_recorded_ = false;
  for (auto& names : names_) names.reset();
  for (CountedGradients& counted : counted_) counted.clear();
  reduced_ = {};
  if (rescue_.attempts > 0) rescue_ = {};
  finite_scale_.reset();
  if (finder_ != nullptr) finder_->clear();
  if (layer_scaler_ != nullptr) layer_scaler_->begin_iteration();
  autocast_.recipe_records().begin_step();
  const Norms norms{
      .by_optimizer = reinterpret_cast<double*>(norms_.data()), .count = optimizers_.size(), .optimizer = 0};
  backend_->run(scalar_program("train.begin_iteration", &begin_iteration_program, norms), step_);
  for (const auto& optimizer : optimizers_) {
    optimizer->begin_iteration(step_);
    optimizer->clear_gradients();
    if (!logs({Observed::weights})) continue;
    for (Parameter* const parameter : optimizer->parameters())
      parameter->model_value = {};  // an evaluation may have cast it already, unseen
  }
  forward_bytes_ = 0;
}

void Iteration::end() {
  if (!loss_recorded_)
    throw std::logic_error("Trainer: the method recorded no loss in iteration " +
                           std::to_string(number_ + 1));
  if (optimizers_.size() > 1) {
    const Norms norms{.by_optimizer = reinterpret_cast<double*>(norms_.data()),
                      .count = optimizers_.size(),
                      .optimizer = 0};
    backend_->run(scalar_program("train.total_norm", &total_norm_program, norms), step_);
  }
  if (dumping()) {
    const StepState state = read_step_state();
    const bool scaled = scaler_.enabled() && !scaler_.checks();
    dump_->write(mean_loss(), state, scaled);
    dump_.reset();
  }
  scaler_.update(statistics());
  if (layer_scaler_ != nullptr) layer_scaler_->update();
  autocast_.recipe_records().end_step();
  if (histories_.defined()) store_histories();
}

double Iteration::mean_loss() {
  const float sum = sharding_.mean(loss_sum_);
  return static_cast<double>(sum) / static_cast<double>(options_.accumulate);
}

std::vector<std::string> Iteration::nonfinite_parameters(std::size_t group) {
  if (names_[group]) return *names_[group];
  if (backend_->read_step_state(step_).found_inf[group] == 0.0f) return {};
  if (counted_[group].empty()) return scaler_.nonfinite_parameters(*optimizers_[group]);
  std::vector<CastProbe*> probes;
  for (CountedGradient& counted : counted_[group]) probes.push_back(&counted.probe);
  backend_->settle(probes);
  std::vector<std::string> names;
  for (const auto& [parameter, probe] : counted_[group])
    if (probe.before.infinite + probe.before.nan > 0) names.push_back(parameter->name);
  return names;
}

/// Keeps what shows which of the group's gradients are not finite, before clipping by value or
/// scaler.on_overflow = zero makes an infinity finite.
void Iteration::keep_names(std::size_t group) {
  if (names_[group] || !counted_[group].empty()) return;
  if (!runs_asynchronously() && !options_.graph) {
    names_[group] = nonfinite_parameters(group);
    return;
  }
  for (const Parameter* parameter : optimizers_[group]->parameters()) {
    if (!parameter->has_gradient) continue;
    CountedGradient& counted = counted_[group].emplace_back();
    counted.parameter = parameter;
    backend_->histogram(parameter->gradient, counted.probe);
  }
}

data::Batch Iteration::take_batch(std::uint64_t number, std::int64_t micro_batch) {
  if (micro_batch == 0 && ahead_ && ahead_->number == number) {
    const data::Batch batch = std::move(ahead_->batch);
    ahead_.reset();
    return batch;
  }
  const std::uint64_t index =
      number * static_cast<std::uint64_t>(options_.accumulate) + static_cast<std::uint64_t>(micro_batch);
  if (!sharding_.has_other_ranks()) return workload_->training->batch(*backend_, index);
  const parallel::Shards& shards = sharding_.shards();
  return workload_->training->part_of_batch(*backend_, index, {shards.first, shards.local, shards.total});
}

bool Iteration::load_batches(std::uint64_t number, std::span<const data::Batch> fed) {
  const auto fits = [](const Tensor& from, const Tensor& to) {
    return from.shape() == to.shape() && from.dtype() == to.dtype();
  };
  const auto is_shared = [](const data::Batch& batch) { return batch.inputs.data() == batch.targets.data(); };
  if (loaded_number_ == number) return true;
  loaded_number_.reset();
  for (std::int64_t i = 0; i < options_.accumulate; ++i) {
    const data::Batch batch = fed.empty() ? take_batch(number, i) : fed[static_cast<std::size_t>(i)];
    const bool shared = is_shared(batch);
    if (loaded_.size() == static_cast<std::size_t>(i)) {
      const Tensor inputs = backend_->empty(batch.inputs.shape(), batch.inputs.dtype());
      loaded_.push_back(
          {.inputs = inputs,
           .targets = shared ? inputs : backend_->empty(batch.targets.shape(), batch.targets.dtype())});
    }
    data::Batch& loaded = loaded_[static_cast<std::size_t>(i)];
    if (!fits(batch.inputs, loaded.inputs) || !fits(batch.targets, loaded.targets) ||
        shared != is_shared(loaded))
      return false;
    backend_->copy(batch.inputs, loaded.inputs);
    if (!shared) backend_->copy(batch.targets, loaded.targets);
  }
  loaded_number_ = number;
  return true;
}

void Iteration::fetch_ahead() {
  const std::uint64_t next = number_ + 1;
  if (!runs_asynchronously() || next >= options_.steps) return;
  if (!loaded_.empty()) {
    load_batches(next);  // after the replay that still reads them, in the order of the device's work
  } else {
    ahead_ = {.number = next, .batch = take_batch(next, 0)};
  }
}

void Iteration::note_replayed(std::uint64_t number, bool names_overflows,
                              const std::vector<CountedGradients>& counted) {
  number_ = number;
  names_overflows_ = names_overflows;
  for (auto& names : names_) names.reset();
  counted_ = counted;
}

data::Batch Iteration::begin_micro_batch(std::int64_t micro_batch) {
  data::Batch batch = loaded_number_ == number_ ? loaded_.at(static_cast<std::size_t>(micro_batch))
                                                : take_batch(number_, micro_batch);
  if (dumping()) dump_->add_batch(*backend_, batch);
  if (micro_batch == 0) begun_with_ = backend_->memory_statistics().bytes_in_use - batch.inputs.byte_count();
  StepContext context{.training = true,
                      .seed = options_.seed,
                      .micro_batch = static_cast<std::uint32_t>(micro_batch),
                      .step = step_,
                      .stochastic_gradients = autocast_.plan().stochastic_gradients(),
                      .stochastic_operands = autocast_.plan().product_formats.dx.a.stochastic};
  sharding_.enter(context, number_ + 1);
  tape_.set_context(std::move(context));
  return batch;
}

Variable Iteration::network_input(const Tensor& inputs) {
  const amp::AmpPlan& plan = autocast_.plan();
  const auto entered = [&](const Tensor& value) {
    const Variable variable = tape_.constant(value);
    if (finder_ != nullptr) finder_->on_network_input(tape_, variable, inputs);
    return variable;
  };
  if (!plan.rules.low_inputs || inputs.dtype() != DType::f32) return entered(inputs);
  Tensor low = backend_->empty(inputs.shape(), plan.low);
  backend_->cast(inputs, low, tape_.probe());
  tape_.tell(RoundedConstant{tape_, low});
  count_cast(plan.low);
  return entered(low);
}

Variable Iteration::network_output(const Variable& output) {
  const amp::AmpPlan& plan = autocast_.plan();
  const bool widens = plan.rules.f32_outputs && !plan.low_loss;
  if (!widens || output.dtype() == DType::f32) return output;
  count_cast(DType::f32);
  return ops::cast(output, DType::f32);
}

void Iteration::count_cast(DType dtype) {
  if (amp::OpStatistics* const statistics = autocast_.statistics()) {
    statistics->on_op(tape_.scope_path(tape_.scope()), Op::cast, dtype);
    statistics->on_cast(tape_.scope_path(tape_.scope()), Op::cast, dtype);
  }
}

Variable Iteration::loss_of(const Variable& output, const Tensor& targets) {
  return nn::loss_of(workload_->loss, output, targets);
}

Variable Iteration::accumulated(const Variable& loss) {
  if (options_.accumulate_mode == AccumulateMode::sum || options_.accumulate == 1) return loss;
  return ops::divide_constant(loss, static_cast<float>(options_.accumulate));
}

void Iteration::record_loss(const Variable& loss) {
  Tensor value = loss.tensor();
  if (value.dtype() != DType::f32) {
    value = backend_->empty(loss.shape(), DType::f32);
    backend_->cast(loss.tensor(), value);
  }
  if (loss_recorded_) {
    backend_->binary(BinaryOp::add, loss_sum_, value, loss_sum_);
  } else {
    if (!(loss_sum_.shape() == value.shape())) loss_sum_ = backend_->empty(value.shape(), DType::f32);
    backend_->copy(value, loss_sum_);
  }
  loss_recorded_ = true;
}

void Iteration::backward(const Variable& loss, BackwardOptions options, int which) {
  if (trial_) return try_backward(loss, options);
  if (const std::size_t in_use = backend_->memory_statistics().bytes_in_use;
      forward_bytes_ == 0 && in_use > begun_with_)
    forward_bytes_ = in_use - begun_with_;
  const Tensor seed = seed_of(loss, which);
  if (loss.dtype() != DType::f32) note_loss_overflow(loss.tensor(), seed);
  tape_.backward(loss, seed, options);
}

Tensor Iteration::seed_of(const Variable& loss, int which) {
  return for_each(loss.shape(), scaler_.seed(which, loss.dtype()));
}

Tensor Iteration::for_each(const Shape& losses, const Tensor& seed) {
  if (losses.element_count() == 1) return seed;
  Tensor seeds = backend_->empty(losses, seed.dtype());
  backend_->fill(seeds, 1.0);
  backend_->binary(BinaryOp::multiply, seeds, seed, seeds);
  return seeds;
}

/// Frameworks multiply the loss by S in the loss's dtype; a tape starts at S. So the product is only looked
/// at.
void Iteration::note_loss_overflow(const Tensor& loss, const Tensor& seed) {
  Tensor scaled = backend_->empty(loss.shape(), loss.dtype());
  backend_->binary(BinaryOp::multiply, loss, seed, scaled);
  if (finder_ != nullptr) finder_->on_scaled_loss(tape_, loss, seed, scaled);
  for (std::int64_t shard = 0; shard < loss.element_count(); ++shard) {
    const ScaledLoss value{
        .loss = reinterpret_cast<const std::uint16_t*>(loss.data()) + shard,
        .scaled = reinterpret_cast<const std::uint16_t*>(scaled.data()) + shard,
        .infinity = loss.dtype() == DType::f16 ? Binary16::infinity : BrainFloat16::infinity};
    backend_->run(scalar_program("train.note_loss_overflow", &note_loss_overflow_program, value), step_);
  }
}

void Iteration::collect(int which, std::initializer_list<std::size_t> groups) {
  std::array<amp::ScaledOptimizer*, max_optimizers> optimizers{};
  std::size_t count = 0;
  for (const std::size_t group : groups) {
    if (collects()) reduce(*optimizers_.at(group));
    optimizers.at(count++) = optimizers_.at(group).get();
  }
  scaler_.collect(which, std::span(optimizers).first(count));
}

void Iteration::reduce(optim::Optimizer& optimizer) {
  sharding_.reduce(static_cast<std::size_t>(optimizer.index()), wants_statistics() ? &reduced_ : nullptr);
}

void Iteration::unscale(optim::Optimizer& optimizer) {
  reduce(optimizer);
  scaler_.unscale(optimizer);
  if (layer_scaler_ != nullptr) layer_scaler_->note_gradients(optimizer, step_);
  if (dumping()) dump_->add_gradients(*backend_, optimizer.parameters());
}

void Iteration::clip(optim::Optimizer& optimizer) {
  clip(optimizer, options_.clip_norm, options_.clip_value);
}

void Iteration::clip(optim::Optimizer& optimizer, double max_norm, double max_value) {
  const auto slot = static_cast<std::size_t>(optimizer.index());
  if (scaler_.enabled() && !scaler_.checks()) {
    // Gradients keep their scale until the optimizer divides; clipping them is refused above, their norm is
    // known.
    backend_->global_norm(optimizer.gradients(), step_);
    backend_->run({.name = "train.unscale_norm", .function = &unscale_norm_program, .parameters = {}}, step_);
  } else {
    optim::clip_grad_norm(*backend_, scaler_, optimizer, max_norm, step_);
    if (max_value > 0 && names_overflows_) keep_names(slot);
    optim::clip_grad_value(*backend_, scaler_, optimizer, max_value);
  }
  if (optimizers_.size() > 1) {
    const Norms norms{.by_optimizer = reinterpret_cast<double*>(norms_.data()),
                      .count = optimizers_.size(),
                      .optimizer = slot};
    backend_->run(scalar_program("train.keep_norm", &keep_norm_program, norms), step_);
  }
}

void Iteration::step(optim::Optimizer& optimizer) {
  // The scaler would unscale by itself; layers' scales, the dump and grad_norm would then not learn of these
  // gradients.
  if (scaler_.stage(optimizer) != amp::GradScaler::Stage::unscaled) {
    unscale(optimizer);
    clip(optimizer, 0, 0);
  }
  if (names_overflows_ && scaler_.steps_with_zeros()) keep_names(static_cast<std::size_t>(optimizer.index()));
  if (!logs({Observed::weights, Observed::updates, Observed::optimizer_state})) {
    scaler_.step(optimizer);
    return;
  }
  UpdateLog log(*backend_, *log_, optimizer);
  log.count_weights();
  optimizer.set_tap(&log);
  scaler_.step(optimizer);
  optimizer.set_tap(nullptr);
  log.count_state();
}

}  // namespace fp16lab::engine
