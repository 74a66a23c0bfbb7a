#include "engine/amp/scalers/per_loss_scaler.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/amp/scalers/scaler_programs.hpp"

namespace fp16lab::engine::amp {

namespace {

using Kind = ScalerError::Kind;

void merge_found_inf(Backend& backend, const Tensor& loss_state, Tensor& step) {
  backend.run(scalar_program("scaler.merge_found_inf", &merge_found_inf_program,
                             MergeFoundInf{.loss_state = loss_state.data()}),
              step);
}

std::string loss_text(std::string_view call, int loss) {
  return std::string(call) + "(loss " + std::to_string(loss) + ")";
}

}  // namespace

PerLossScaler::PerLossScaler(Backend& backend, const ScalerOptions& options, int losses, Tensor step)
    : PerLossScaler(backend, options, make_scale_policy(options), losses, std::move(step)) {}

PerLossScaler::PerLossScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, int losses,
                             Tensor step)
    : Scaler(backend, options, std::move(policy), std::move(step)) {
  if (losses < 1) {
    throw std::invalid_argument("PerLossScaler: losses = " + std::to_string(losses) + ": must be >= 1");
  }
  if (!options.drop_overflow_update) {
    throw std::invalid_argument(
        "PerLossScaler: scaler.drop_overflow_update = false leaves the division to the optimizer, which "
        "divides by one "
        "scale; with a scale for each loss leave it true");
  }
  if (policy_.wants_statistics) {
    throw std::invalid_argument("PerLossScaler: scaler.policy = \"" + options.policy +
                                "\" decides by the counts of all gradients of a step, and those of several "
                                "losses carry several scales; expected a policy that counts steps");
  }
  for (int loss = 0; loss < losses; ++loss) states_.push_back(backend_->make_step_state(policy_.initial));
  collected_losses_.assign(states_.size(), false);
  StepState state = backend_->read_step_state(step_);
  state.policy = {};
  state.set_scale(1.0);
  state.found_inf = {};
  backend_->write_step_state(state, step_);
}

std::size_t PerLossScaler::position_of(int loss, std::string_view call) const {
  if (loss >= 0 && loss < losses()) return static_cast<std::size_t>(loss);
  throw std::invalid_argument(loss_text(call, loss) + ": there are " + std::to_string(losses()) +
                              " losses, numbered from 0");
}

void PerLossScaler::require_no_open_loss(std::string_view call) const {
  if (open_ < 0) return;
  throw ScalerError(Kind::uncollected_loss, call, "", "",
                    std::string(call) + ": loss " + std::to_string(open_) +
                        " was seeded, and its gradients, which carry its own scale, were not collected; call "
                        "PerLossScaler::collect(" +
                        std::to_string(open_) + ", ...) first");
}

Tensor PerLossScaler::seed(int loss, DType dtype) {
  constexpr std::string_view call = "PerLossScaler::seed";
  const Tensor& state = states_[position_of(loss, call)];
  if (open_ != loss) require_no_open_loss(call);
  require_none_waiting(call, "step");
  open_ = loss;
  return seed_of(state, dtype);
}

void PerLossScaler::collect(int loss, std::span<ScaledOptimizer* const> optimizers) {
  constexpr std::string_view call = "PerLossScaler::collect";
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
                   "it has got its gradients already; collect every loss before combine and step");
    }
    require_gradients(*optimizer, call);
  }
  // The first check of an iteration forgets the flags of the last one.
  const auto first = std::find(collected_losses_.begin(), collected_losses_.end(), true);
  if (first == collected_losses_.end()) clear_found_inf(step_);
  if (!collected_losses_[position]) clear_found_inf(states_[position]);
  for (ScaledOptimizer* const optimizer : optimizers) {
    gradients_.clear();
    for (Parameter* const parameter : optimizer->parameters()) {
      if (!parameter->has_gradient) continue;
      parameter->gradient = widened(*backend_, parameter->gradient);
      gradients_.push_back(parameter->gradient);
    }
    if (enabled()) backend_->unscale(gradients_, optimizer->index(), states_[position]);
    gradients_.clear();
    for (Parameter* const parameter : optimizer->parameters()) {
      if (parameter->has_gradient) add(*parameter);
    }
    slots_[static_cast<std::size_t>(optimizer->index())] = {Stage::collected, optimizer};
  }
  merge_found_inf(*backend_, states_[position], step_);
  collected_losses_[position] = true;
  open_ = -1;
}

Tensor& PerLossScaler::sum_of(const Parameter& parameter) {
  const auto found = std::find_if(collected_.begin(), collected_.end(),
                                  [&](const Collected& entry) { return entry.parameter == &parameter; });
  if (found != collected_.end()) return found->sum;
  return collected_.emplace_back(Collected{&parameter, {}}).sum;
}

/// Moves the parameter's unscaled gradient into its sum.
void PerLossScaler::add(Parameter& parameter) {
  Tensor& sum = sum_of(parameter);
  if (sum.defined()) {
    backend_->binary(BinaryOp::add, sum, parameter.gradient, sum);
  } else {
    sum = std::move(parameter.gradient);
    parameter.gradient = {};  // the next backward pass takes memory of its own
  }
  parameter.clear_gradient();
}

void PerLossScaler::unscale(ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slot_of(optimizer, call);
  require_not_unscaled(slot, optimizer, call, "it is combined already");
  require_no_open_loss(call);
  if (slot.stage == Stage::ready) {
    throw misuse(
        Kind::no_gradients, call, optimizer,
        "no loss was collected for it; call collect with it first, or leave it out of this iteration");
  }
  for (Parameter* const parameter : optimizer.parameters()) {
    Tensor& sum = sum_of(*parameter);
    // What a loss that was not collected for this optimizer may have left there is none of its gradients.
    parameter->has_gradient = sum.defined();
    if (sum.defined()) parameter->gradient = std::exchange(sum, {});
  }
  slot.stage = Stage::unscaled;
}

void PerLossScaler::require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const {
  const Stage now = stage(optimizer);
  if (now == Stage::unscaled) return;
  throw misuse(Kind::scaled_gradients, call, optimizer,
               now == Stage::stepped
                   ? "the optimizer has already stepped; call it between PerLossScaler::combine and step"
                   : "needs the sum of the unscaled gradients; call PerLossScaler::combine before it");
}

void PerLossScaler::update(const GradientStatistics*) {
  constexpr std::string_view call = "PerLossScaler::update";
  require_no_open_loss(call);
  if (std::find(collected_losses_.begin(), collected_losses_.end(), true) == collected_losses_.end()) {
    throw ScalerError(Kind::update_without_check, call, "", "",
                      std::string(call) +
                          ": no loss was collected since the last update, so nothing is known about "
                          "overflow");
  }
  for (std::size_t loss = 0; loss < states_.size(); ++loss) {
    if (enabled() && collected_losses_[loss]) backend_->run(policy_.update, states_[loss]);
  }
  collected_losses_.assign(states_.size(), false);
  slots_.fill({});
  for (Collected& entry : collected_) entry.sum = {};
}

std::optional<std::string> PerLossScaler::stop(const StepState&) const {
  if (!enabled() || policy_.stop == nullptr) return std::nullopt;
  for (std::size_t loss = 0; loss < states_.size(); ++loss) {
    if (const auto reason = policy_.stop(backend_->read_step_state(states_[loss]), policy_.values))
      return "loss " + std::to_string(loss) + ": " + *reason;
  }
  return std::nullopt;
}

StepState PerLossScaler::read_step_state() const {
  StepState state = Scaler::read_step_state();
  state.set_scale(scale(0));
  return state;
}

std::vector<NamedTensor> PerLossScaler::states() const {
  std::vector<NamedTensor> named;
  for (const Tensor& state : states_) named.push_back({"scaler.loss" + std::to_string(named.size()), state});
  return named;
}

double PerLossScaler::scale(int loss) const { return backend_->read_step_state(loss_state(loss)).scale; }

const Tensor& PerLossScaler::loss_state(int loss) const {
  return states_[position_of(loss, "PerLossScaler::loss_state")];
}

}  // namespace fp16lab::engine::amp
