#include "engine/amp/scalers/scaler.hpp"

#include <algorithm>
#include <utility>

#include "engine/amp/scalers/per_loss_scaler.hpp"
#include "engine/amp/scalers/scaler_programs.hpp"

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

}  // namespace

Scaler::Scaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step)
    : backend_(&backend),
      options_(options),
      policy_(policy_of(options, std::move(policy))),
      step_(std::move(step)) {}

std::unique_ptr<Scaler> make_scaler(Backend& backend, const ScalerOptions& options, const ScalePolicy& policy,
                                    int losses, Tensor step) {
  if (options.per_loss)
    return std::make_unique<PerLossScaler>(backend, options, policy, losses, std::move(step));
  return std::make_unique<GradScaler>(backend, options, policy, std::move(step));
}

Scaler::Stage Scaler::stage(const ScaledOptimizer& optimizer) const {
  return slots_[place_of(optimizer, "Scaler::stage")].stage;
}

std::vector<std::string> Scaler::nonfinite_parameters(const ScaledOptimizer& optimizer) const {
  std::vector<std::string> names;
  for (const Parameter* const parameter : optimizer.parameters()) {
    if (!parameter->has_gradient) continue;
    ExponentHistogram histogram;
    backend_->histogram(parameter->gradient, histogram);
    if (histogram.infinite + histogram.nan > 0) names.push_back(parameter->name);
  }
  return names;
}

Scaler::Slot& Scaler::slot_of(const ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slots_[place_of(optimizer, call)];
  if (slot.optimizer != nullptr && slot.optimizer != &optimizer) {
    throw std::invalid_argument(
        describe(call, optimizer) +
        ": another optimizer with the same index takes part in this iteration; every optimizer "
        "of a scaler needs an index of its own");
  }
  return slot;
}

void Scaler::require_not_unscaled(const Slot& slot, const ScaledOptimizer& optimizer, std::string_view call,
                                  const char* twice) {
  if (slot.stage == Stage::unscaled) throw misuse(Kind::unscale_twice, call, optimizer, twice);
  if (slot.stage == Stage::stepped)
    throw misuse(Kind::unscale_after_step, call, optimizer,
                 "the optimizer has already stepped; call update first");
}

void Scaler::require_none_waiting(std::string_view call, const char* first) const {
  for (const Slot& slot : slots_) {
    if (slot.stage != Stage::unscaled) continue;
    throw misuse(Kind::seed_after_unscale, call, *slot.optimizer,
                 std::string("its gradients are unscaled and not yet used; a backward pass now could add "
                             "scaled ones to them. Call ") +
                     first + " first");
  }
}

Tensor Scaler::seed_of(const Tensor& state, DType dtype) const {
  Tensor seed = backend_->empty(Shape{}, DType::f32);
  backend_->fill_scale(state, seed);
  if (dtype == DType::f32) return seed;
  Tensor narrow = backend_->empty(Shape{}, dtype);
  backend_->cast(seed, narrow);
  return narrow;
}

void Scaler::step(ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slot_of(optimizer, call);
  if (slot.stage == Stage::stepped)
    throw misuse(Kind::step_twice, call, optimizer, "the optimizer has already stepped; call update first");
  if (slot.stage != Stage::unscaled) unscale(optimizer, call);
  if (checks() && options_.on_overflow == OnOverflow::zero)
    apply_with_zeros(optimizer);
  else
    optimizer.apply(step_);
  slot.stage = Stage::stepped;
}

void Scaler::apply_with_zeros(ScaledOptimizer& optimizer) {
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

void Scaler::clear_found_inf(Tensor& state) const {
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
