#include "engine/amp/scalers/grad_scaler.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/amp/scalers/scaler_programs.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::amp {

namespace {

using Kind = ScalerError::Kind;

/// A disabled scaler's policy was checked, too.
ScalePolicy policy_of(const ScalerOptions& options, ScalePolicy policy) {
  if (options.enabled) return policy;
  policy = make_scale_policy({.policy = "none"});
  policy.name = "disabled";
  return policy;
}

/// std::invalid_argument if the optimizer's index is no place in StepState.
std::size_t place_of(const ScaledOptimizer& optimizer, std::string_view call) {
  if (optimizer.index() < 0 || optimizer.index() >= max_optimizers) {
    throw std::invalid_argument(std::string(call) + ": optimizer " + std::string(optimizer.name()) +
                                " has index " + std::to_string(optimizer.index()) + ", must be in [0, " +
                                std::to_string(max_optimizers) + ")");
  }
  return static_cast<std::size_t>(optimizer.index());
}

std::string first_parameter(const ScaledOptimizer& optimizer) {
  return optimizer.parameters().empty() ? std::string() : optimizer.parameters().front()->name;
}

std::string loss_text(std::string_view call, int loss) {
  return std::string(call) + "(loss " + std::to_string(loss) + ")";
}

/// The options of a scale for each loss.
void check_per_loss(const ScalerOptions& options, const ScalePolicy& policy, int losses) {
  if (losses < 1)
    throw std::invalid_argument("GradScaler: losses = " + std::to_string(losses) + ": must be >= 1");
  if (!options.drop_overflow_update)
    throw std::invalid_argument(
        "GradScaler: scaler.drop_overflow_update = false leaves the division to the optimizer, which divides "
        "by one scale; with a scale for each loss leave it true");
  if (policy.wants_statistics)
    throw std::invalid_argument("GradScaler: scaler.policy = \"" + options.policy +
                                "\" decides by the counts of all gradients of a step, and those of several "
                                "losses carry several scales; expected a policy that counts steps");
}

void require_one_scale(const GradScaler& scaler, std::string_view call) {
  if (scaler.per_loss())
    throw std::logic_error(std::string(call) + ": scaler.per_loss = true: each loss has a scale of its own");
}

}  // namespace

GradScaler::GradScaler(Backend& backend, const ScalerOptions& options, Tensor step, int losses)
    : GradScaler(backend, options, make_scale_policy(options), std::move(step), losses) {}

GradScaler::GradScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step,
                       int losses)
    : backend_(&backend),
      options_(options),
      policy_(policy_of(options, std::move(policy))),
      step_(std::move(step)) {
  StepState state = backend_->read_step_state(step_);
  state.found_inf = {};
  if (per_loss()) {
    check_per_loss(options_, policy_, losses);
    for (int loss = 0; loss < losses; ++loss) states_.push_back(backend_->make_step_state(policy_.initial));
    state.policy = {};
    state.set_scale(1.0);
  } else {
    states_ = {step_};
    state.policy = policy_.initial.policy;
    state.set_scale(policy_.initial.scale);
  }
  decides_.assign(states_.size(), false);
  backend_->write_step_state(state, step_);
}

bool GradScaler::begun() const { return std::find(decides_.begin(), decides_.end(), true) != decides_.end(); }

GradScaler::Stage GradScaler::stage(const ScaledOptimizer& optimizer) const {
  return slots_[place_of(optimizer, "GradScaler::stage")].stage;
}

std::vector<std::string> GradScaler::nonfinite_parameters(const ScaledOptimizer& optimizer) const {
  std::vector<std::string> names;
  for (const Parameter* const parameter : optimizer.parameters()) {
    if (!parameter->has_gradient) continue;
    ExponentHistogram histogram;
    backend_->histogram(parameter->gradient, histogram);
    if (histogram.infinite + histogram.nan > 0) names.push_back(parameter->name);
  }
  return names;
}

GradScaler::Slot& GradScaler::slot_of(const ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slots_[place_of(optimizer, call)];
  if (slot.optimizer != nullptr && slot.optimizer != &optimizer) {
    throw std::invalid_argument(
        describe(call, optimizer) +
        ": another optimizer with the same index takes part in this iteration; every optimizer "
        "of a scaler needs an index of its own");
  }
  return slot;
}

std::size_t GradScaler::position_of(int loss, std::string_view call) const {
  if (!per_loss()) return 0;
  const auto losses = static_cast<int>(states_.size());
  if (loss >= 0 && loss < losses) return static_cast<std::size_t>(loss);
  throw std::invalid_argument(loss_text(call, loss) + ": there are " + std::to_string(losses) +
                              " losses, numbered from 0");
}

void GradScaler::require_no_open_loss(std::string_view call) const {
  if (open_ < 0) return;
  throw ScalerError(Kind::uncollected_loss, call, "", "",
                    std::string(call) + ": loss " + std::to_string(open_) +
                        " was seeded, and its gradients, which carry its own scale, were not collected; call "
                        "GradScaler::collect(" +
                        std::to_string(open_) + ", ...) first");
}

Tensor GradScaler::seed(int loss, DType dtype) {
  constexpr std::string_view call = "GradScaler::seed";
  const Tensor& state = states_[position_of(loss, call)];
  if (open_ != loss) require_no_open_loss(call);
  for (const Slot& slot : slots_) {
    if (slot.stage != Stage::unscaled) continue;
    throw misuse(
        Kind::seed_after_unscale, call, *slot.optimizer,
        "its gradients are unscaled and not yet used; a backward pass now could add scaled ones to them. "
        "Call step or update first");
  }
  if (per_loss()) open_ = loss;
  Tensor seed = backend_->empty(Shape{}, DType::f32);
  backend_->fill_scale(state, seed);
  if (dtype == DType::f32) return seed;
  Tensor narrow = backend_->empty(Shape{}, dtype);
  backend_->cast(seed, narrow);
  return narrow;
}

Tensor GradScaler::inverse_seed() {
  require_one_scale(*this, "GradScaler::inverse_seed");
  // 1 * inverse_scale by the verb that unscales: the same factor, and no found_inf, because 1 is finite.
  std::array<Tensor, 1> one = {backend_->empty(Shape{}, DType::f32)};
  backend_->fill(one.front(), 1.0);
  backend_->unscale(one, 0, step_);
  return one.front();
}

void GradScaler::collect(int loss, std::span<ScaledOptimizer* const> optimizers) {
  if (!per_loss()) return;
  constexpr std::string_view call = "GradScaler::collect";
  const std::size_t position = position_of(loss, call);
  if (open_ != loss) {
    throw ScalerError(Kind::unseeded_loss, call, "", "",
                      loss_text(call, loss) +
                          ": its seed was not taken since it was last collected; call seed(" +
                          std::to_string(loss) + ") and run a backward pass first");
  }
  for (const ScaledOptimizer* const optimizer : optimizers) {
    const Slot& slot = slot_of(*optimizer, call);
    if (slot.stage == Stage::unscaled || slot.stage == Stage::stepped) {
      throw misuse(Kind::unscale_after_step, call, *optimizer,
                   "it has got its gradients already; collect every loss before unscale and step");
    }
    require_gradients(*optimizer, call);
  }
  // The first check of an iteration forgets the flags of the last one.
  if (!begun()) clear_found_inf(step_);
  if (!decides_[position]) clear_found_inf(states_[position]);
  for (ScaledOptimizer* const optimizer : optimizers) {
    divide(*optimizer, states_[position]);
    for (Parameter* const parameter : optimizer->parameters())
      if (parameter->has_gradient) add(*parameter);
    slots_[static_cast<std::size_t>(optimizer->index())] = {Stage::collected, optimizer};
  }
  backend_->run(scalar_program("scaler.merge_found_inf", &merge_found_inf_program,
                               MergeFoundInf{.loss_state = states_[position].data()}),
                step_);
  decides_[position] = true;
  open_ = -1;
}

/// Multiplies the gradients by 1 / the scale of `state`, and sets the optimizer's found_inf there.
void GradScaler::divide(ScaledOptimizer& optimizer, Tensor& state) {
  gradients_.clear();
  for (Parameter* const parameter : optimizer.parameters()) {
    if (!parameter->has_gradient) continue;
    if (per_loss() || parameter->dtypes.unscaled == DType::f32)
      parameter->gradient = widened(*backend_, parameter->gradient);
    gradients_.push_back(parameter->gradient);
  }
  if (enabled()) backend_->unscale(gradients_, optimizer.index(), state);
  gradients_.clear();
}

Tensor& GradScaler::sum_of(const Parameter& parameter) {
  const auto found = std::find_if(collected_.begin(), collected_.end(),
                                  [&](const Collected& entry) { return entry.parameter == &parameter; });
  if (found != collected_.end()) return found->sum;
  return collected_.emplace_back(Collected{&parameter, {}}).sum;
}

/// Moves the parameter's unscaled gradient into its sum.
void GradScaler::add(Parameter& parameter) {
  Tensor& sum = sum_of(parameter);
  if (sum.defined()) {
    backend_->binary(BinaryOp::add, sum, parameter.gradient, sum);
  } else {
    sum = std::move(parameter.gradient);
    parameter.gradient = {};  // the next backward pass takes memory of its own
  }
  parameter.clear_gradient();
}

void GradScaler::unscale(ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slot_of(optimizer, call);
  if (slot.stage == Stage::unscaled)
    throw misuse(Kind::unscale_twice, call, optimizer, "the gradients are already unscaled; once per update");
  if (slot.stage == Stage::stepped)
    throw misuse(Kind::unscale_after_step, call, optimizer,
                 "the optimizer has already stepped; call update first");
  if (per_loss()) {
    require_no_open_loss(call);
    if (slot.stage == Stage::ready)
      throw misuse(
          Kind::no_gradients, call, optimizer,
          "no loss was collected for it; call collect with it first, or leave it out of this iteration");
    for (Parameter* const parameter : optimizer.parameters()) {
      Tensor& sum = sum_of(*parameter);
      // A loss that was not collected for this optimizer may have left gradients; they are not its own.
      parameter->has_gradient = sum.defined();
      if (sum.defined()) parameter->gradient = std::exchange(sum, {});
    }
  } else {
    require_gradients(optimizer, call);
    if (checks() && !options_.allow_low_gradients) require_wide_gradients(optimizer, call);
    // The first check of an iteration forgets the flags of the last one, of all optimizers.
    if (!begun()) clear_found_inf(step_);
    if (checks()) divide(optimizer, step_);
    decides_.front() = true;
  }
  slot = {Stage::unscaled, &optimizer};
}

void GradScaler::require_wide_gradients(const ScaledOptimizer& optimizer, std::string_view call) const {
  for (const Parameter* const parameter : optimizer.parameters()) {
    if (!parameter->has_gradient || !is_tensor_half(parameter->gradient.dtype())) continue;
    throw ScalerError(Kind::gradient_dtype, call, optimizer.name(), parameter->name,
                      describe(call, optimizer) + ": the gradient of " + parameter->name + " is " +
                          parameter->gradient.describe() +
                          ", and ScalerOptions::allow_low_gradients is false. Let gradients add up in f32 "
                          "(amp.master_gradients = true, or level O1), or allow 16-bit ones");
  }
}

void GradScaler::require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const {
  if (options_.enabled && !options_.drop_overflow_update && policy_.initial.scale != 1.0) {
    throw misuse(Kind::scaled_gradients, call, optimizer,
                 "needs unscaled gradients, but with scaler.drop_overflow_update = false nothing unscales "
                 "them before the optimizer divides (optimizer.loss_scale). Leave it true to clip");
  }
  const Stage now = stage(optimizer);
  if (now == Stage::unscaled) return;
  throw misuse(
      Kind::scaled_gradients, call, optimizer,
      now != Stage::stepped
          ? "the gradients are still scaled; call GradScaler::unscale before it and GradScaler::step after it"
          : "the optimizer has already stepped; call it between GradScaler::unscale and GradScaler::step");
}

void GradScaler::step(ScaledOptimizer& optimizer) {
  constexpr std::string_view call = "GradScaler::step";
  Slot& slot = slot_of(optimizer, call);
  if (slot.stage == Stage::stepped)
    throw misuse(Kind::step_twice, call, optimizer, "the optimizer has already stepped; call update first");
  if (slot.stage != Stage::unscaled) unscale(optimizer, call);
  if (steps_with_zeros())
    apply_with_zeros(optimizer);
  else
    optimizer.apply(step_);
  slot.stage = Stage::stepped;
}

void GradScaler::apply_with_zeros(ScaledOptimizer& optimizer) {
  if (!finite_.defined()) {
    set_aside_ = backend_->empty(Shape{}, DType::f32);
    finite_ = backend_->empty(Shape{}, DType::f32);
  }
  const SetAsideFoundInf aside{.optimizer = static_cast<std::uint64_t>(optimizer.index()),
                               .found_inf = reinterpret_cast<float*>(set_aside_.data()),
                               .finite = reinterpret_cast<float*>(finite_.data())};
  backend_->run(scalar_program("scaler.set_aside_found_inf", &set_aside_found_inf_program, aside), step_);
  for (Parameter* const parameter : optimizer.parameters()) {
    if (!parameter->has_gradient) continue;
    Tensor& gradient = parameter->gradient;
    Tensor finite = finite_;
    if (gradient.dtype() != DType::f32) {
      finite = backend_->empty(Shape{}, gradient.dtype());
      backend_->cast(finite_, finite);
    }
    backend_->binary(BinaryOp::select_positive, finite, gradient, gradient);
  }
  optimizer.apply(step_);
  backend_->run(scalar_program("scaler.bring_back_found_inf", &bring_back_found_inf_program, aside), step_);
}

void GradScaler::update(const GradientStatistics* statistics) {
  constexpr std::string_view call = "GradScaler::update";
  require_no_open_loss(call);
  if (!begun())
    throw ScalerError(Kind::update_without_check, call, "", "",
                      std::string(call) + ": no " +
                          (per_loss() ? "loss was collected" : "optimizer was unscaled or stepped") +
                          " since the last update, so nothing is known about overflow");
  ScalarProgram program = policy_.update;
  if (wants_statistics()) {
    if (statistics == nullptr)
      throw ScalerError(
          Kind::missing_statistics, call, "", "",
          std::string(call) + ": policy \"" + policy_.name +
              "\" decides by the counts of gradients; give update the GradientStatistics of all "
              "backward passes since the last one (engine/train/tensor_log.hpp sums them)");
    const auto bytes = std::as_bytes(std::span(statistics, 1));
    if (!statistics_.defined())
      statistics_ = backend_->empty({static_cast<std::int64_t>(bytes.size())}, DType::u8);
    backend_->upload(bytes, statistics_);
    program = with_statistics(policy_, reinterpret_cast<const GradientStatistics*>(statistics_.data()));
  }
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (checks() && decides_[i]) backend_->run(program, states_[i]);
  decides_.assign(states_.size(), false);
  slots_.fill({});
  for (Collected& entry : collected_) entry.sum = {};
}

void GradScaler::minimize(ScaledOptimizer& optimizer) {
  step(optimizer);
  update();
}

double GradScaler::next_scale(const StepState& state, const GradientStatistics* statistics) const {
  require_one_scale(*this, "GradScaler::next_scale");
  if (!checks()) return state.scale;
  const FloatingPointScope scope;
  StepState next = state;
  const ScalarProgram program = with_statistics(policy_, wants_statistics() ? statistics : nullptr);
  program.function(next, program.parameters.data());
  return next.scale;
}

std::optional<std::string> GradScaler::stop(const StepState& state) const {
  if (!checks() || policy_.stop == nullptr) return std::nullopt;
  if (!per_loss()) return policy_.stop(state, policy_.values);
  for (std::size_t loss = 0; loss < states_.size(); ++loss)
    if (const auto reason = policy_.stop(backend_->read_step_state(states_[loss]), policy_.values))
      return "loss " + std::to_string(loss) + ": " + *reason;
  return std::nullopt;
}

bool GradScaler::can_fall(const StepState& state) const {
  if (per_loss() || policy_.wants_statistics) return true;
  constexpr int longest_patience = 10000;  // no policy waits for so many overflows in a row
  StepState next = state;
  for (int i = 0; i < longest_patience; ++i) {
    advance(policy_, next, {.found_inf = true, .statistics = nullptr, .scale = next.scale});
    if (next.scale < state.scale) return true;
  }
  return false;
}

StepState GradScaler::read_step_state() const {
  StepState state = backend_->read_step_state(step_);
  if (per_loss()) state.set_scale(scale(0));
  return state;
}

std::vector<NamedTensor> GradScaler::states() const {
  std::vector<NamedTensor> named;
  if (!per_loss()) return named;
  for (const Tensor& state : states_) named.push_back({"scaler.loss" + std::to_string(named.size()), state});
  return named;
}

double GradScaler::scale(int loss) const { return backend_->read_step_state(loss_state(loss)).scale; }

const Tensor& GradScaler::loss_state(int loss) const {
  return states_[position_of(loss, "GradScaler::loss_state")];
}

void GradScaler::clear_found_inf(Tensor& state) const {
  backend_->run({.name = "scaler.clear_found_inf", .function = &clear_found_inf_program, .parameters = {}},
                state);
}

std::string describe(std::string_view call, const ScaledOptimizer& optimizer) {
  const std::string first = first_parameter(optimizer);
  const std::string of = first.empty() ? " without parameters"
                                       : " of " + first + (optimizer.parameters().size() > 1 ? " ..." : "");
  return std::string(call) + "(" + std::string(optimizer.name()) + " " + std::to_string(optimizer.index()) +
         of + ")";
}

ScalerError misuse(ScalerError::Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what) {
  return {kind, call, optimizer.name(), first_parameter(optimizer), describe(call, optimizer) + ": " + what};
}

void require_gradients(const ScaledOptimizer& optimizer, std::string_view call) {
  const auto parameters = optimizer.parameters();
  const bool reached = std::any_of(parameters.begin(), parameters.end(),
                                   [](const Parameter* parameter) { return parameter->has_gradient; });
  if (reached) return;
  throw misuse(
      Kind::no_gradients, call, optimizer,
      "none of its " + std::to_string(parameters.size()) +
          " parameters has a gradient; run a backward pass through them first, or leave this optimizer out "
          "of this iteration (others may step)");
}

}  // namespace fp16lab::engine::amp
