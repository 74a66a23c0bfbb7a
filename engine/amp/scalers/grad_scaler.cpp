#include "engine/amp/scalers/grad_scaler.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::amp {

namespace {

using Kind = ScalerError::Kind;

}  // namespace

GradScaler::GradScaler(Backend& backend, const ScalerOptions& options, Tensor step)
    : GradScaler(backend, options, make_scale_policy(options), std::move(step)) {}

GradScaler::GradScaler(Backend& backend, const ScalerOptions& options, ScalePolicy policy, Tensor step)
    : Scaler(backend, options, std::move(policy), std::move(step)) {
  StepState state = backend_->read_step_state(step_);
  state.policy = policy_.initial.policy;
  state.set_scale(policy_.initial.scale);
  state.found_inf = {};
  backend_->write_step_state(state, step_);
}

Tensor GradScaler::seed(DType dtype) {
  require_none_waiting("GradScaler::seed", "step or update");
  return seed_of(step_, dtype);
}

Tensor GradScaler::inverse_seed() {
  // 1 * inverse_scale by the verb that unscales: the same factor, and no found_inf, because 1 is finite.
  std::array<Tensor, 1> one = {backend_->empty(Shape{}, DType::f32)};
  backend_->fill(one.front(), 1.0);
  backend_->unscale(one, 0, step_);
  return one.front();
}

bool GradScaler::begun() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.stage != Stage::ready; });
}

void GradScaler::unscale(ScaledOptimizer& optimizer, std::string_view call) {
  Slot& slot = slot_of(optimizer, call);
  require_not_unscaled(slot, optimizer, call, "the gradients are already unscaled; once per update");
  require_gradients(optimizer, call);
  if (checks() && !options_.allow_low_gradients) require_wide_gradients(optimizer, call);
  // The first check of an iteration forgets the flags of the last one, of all optimizers.
  if (!begun()) clear_found_inf(step_);
  if (checks()) {
    gradients_.clear();
    for (Parameter* const parameter : optimizer.parameters()) {
      if (!parameter->has_gradient) continue;
      if (parameter->dtypes.unscaled == DType::f32)
        parameter->gradient = widened(*backend_, parameter->gradient);
      gradients_.push_back(parameter->gradient);
    }
    backend_->unscale(gradients_, optimizer.index(), step_);
    gradients_.clear();
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
    throw misuse(
        Kind::scaled_gradients, call, optimizer,
        "needs unscaled gradients, but with scaler.drop_overflow_update = false nobody unscales them before "
        "the optimizer divides (optimizer.loss_scale). Leave it true to clip");
  }
  const Stage now = stage(optimizer);
  if (now == Stage::unscaled) return;
  throw misuse(
      Kind::scaled_gradients, call, optimizer,
      now == Stage::ready
          ? "the gradients are still scaled; call GradScaler::unscale before it and GradScaler::step after it"
          : "the optimizer has already stepped; call it between GradScaler::unscale and GradScaler::step");
}

void GradScaler::update(const GradientStatistics* statistics) {
  if (!begun()) {
    throw ScalerError(
        Kind::update_without_check, "GradScaler::update", "", "",
        "GradScaler::update: no optimizer was unscaled or stepped since the last update, so nothing is "
        "known about overflow");
  }
  if (wants_statistics()) {
    if (statistics == nullptr) {
      throw ScalerError(
          Kind::missing_statistics, "GradScaler::update", "", "",
          "GradScaler::update: policy \"" + policy_.name +
              "\" decides by the counts of gradients; give update the GradientStatistics of all "
              "backward passes since the last one (engine/train/tensor_log.hpp sums them)");
    }
    const auto bytes = std::as_bytes(std::span(statistics, 1));
    if (!statistics_.defined())
      statistics_ = backend_->empty({static_cast<std::int64_t>(bytes.size())}, DType::u8);
    backend_->upload(bytes, statistics_);
    const auto* const uploaded = reinterpret_cast<const GradientStatistics*>(statistics_.data());
    backend_->run(with_statistics(policy_, uploaded), step_);
  } else if (checks()) {
    backend_->run(policy_.update, step_);
  }
  slots_.fill({});
}

double GradScaler::next_scale(const StepState& state, const GradientStatistics* statistics) const {
  if (!checks()) return state.scale;
  const FloatingPointScope scope;
  StepState next = state;
  const ScalarProgram program = with_statistics(policy_, wants_statistics() ? statistics : nullptr);
  program.function(next, program.parameters.data());
  return next.scale;
}

std::optional<std::string> GradScaler::stop(const StepState& state) const {
  if (!checks() || policy_.stop == nullptr) return std::nullopt;
  return policy_.stop(state, policy_.values);
}

bool GradScaler::can_fall(const StepState& state) const {
  if (policy_.wants_statistics) return true;
  constexpr int longest_patience = 10000;  // no policy waits for so many overflows in a row
  StepState next = state;
  for (int i = 0; i < longest_patience; ++i) {
    advance(policy_, next, {.found_inf = true, .statistics = nullptr, .scale = next.scale});
    if (next.scale < state.scale) return true;
  }
  return false;
}

void GradScaler::minimize(ScaledOptimizer& optimizer) {
  step(optimizer);
  update();
}

}  // namespace fp16lab::engine::amp
