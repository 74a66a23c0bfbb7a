#include "engine/amp/grad_scaler.hpp"

#include <algorithm>
#include <utility>

namespace fp16lab::engine::amp {

namespace {

using Kind = ScalerError::Kind;

void clear_found_inf(StepState& step, const std::byte*) {
  for (float& flag : step.found_inf) flag = 0.0f;
}

std::size_t slot_of(const ScaledOptimizer& optimizer) {
  if (optimizer.index() < 0 || optimizer.index() >= max_optimizers) {
    throw std::invalid_argument("GradScaler: optimizer " + std::string(optimizer.name()) + " has index " +
                                std::to_string(optimizer.index()) + ", must be in [0, " +
                                std::to_string(max_optimizers) + ")");
  }
  return static_cast<std::size_t>(optimizer.index());
}

ScalerError misuse(Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what) {
  return {kind, call, optimizer.name(), "",
          std::string(call) + "(" + std::string(optimizer.name()) + "): " + what};
}

}  // namespace

GradScaler::GradScaler(Backend& backend, const ScalerOptions& options, Tensor step)
    : backend_(&backend), policy_(make_scale_policy(options)), step_(std::move(step)) {
  StepState state = backend_->read_step_state(step_);
  state.policy = policy_.initial.policy;
  state.set_scale(policy_.initial.scale);
  backend_->write_step_state(state, step_);
}

Tensor GradScaler::seed() {
  const bool used =
      std::any_of(stages_.begin(), stages_.end(), [](Stage stage) { return stage != Stage::ready; });
  if (used) {
    throw ScalerError(
        Kind::seed_after_unscale, "GradScaler::seed", "", "",
        "GradScaler::seed: gradients were unscaled since the last update; a backward pass now would add "
        "scaled gradients to them. Call update first");
  }
  Tensor seed = backend_->empty(Shape{}, DType::f32);
  backend_->fill_scale(step_, seed);
  return seed;
}

void GradScaler::unscale(ScaledOptimizer& optimizer) {
  constexpr std::string_view call = "GradScaler::unscale";
  const std::size_t slot = slot_of(optimizer);
  if (stages_[slot] == Stage::unscaled) {
    throw misuse(Kind::unscale_twice, call, optimizer, "the gradients are already unscaled; once per update");
  }
  if (stages_[slot] == Stage::stepped) {
    throw misuse(Kind::unscale_after_step, call, optimizer,
                 "the optimizer has already stepped; call update first");
  }
  gradients_.clear();
  for (const Parameter* parameter : optimizer.parameters()) {
    if (!parameter->has_gradient) continue;
    if (parameter->gradient.dtype() != DType::f32) {
      throw ScalerError(Kind::gradient_dtype, call, optimizer.name(), parameter->name,
                        std::string(call) + "(" + std::string(optimizer.name()) + "): the gradient of " +
                            parameter->name + " is " + parameter->gradient.describe() +
                            "; unscaling needs f32");
    }
    gradients_.push_back(parameter->gradient);
  }
  if (gradients_.empty()) {
    const auto parameters = optimizer.parameters();
    const std::string first = parameters.empty() ? "" : parameters.front()->name;
    throw ScalerError(Kind::no_gradients, call, optimizer.name(), first,
                      std::string(call) + "(" + std::string(optimizer.name()) + "): none of its " +
                          std::to_string(parameters.size()) + " parameters" +
                          (first.empty() ? "" : " (" + first + " ...)") +
                          " has a gradient; run a backward pass through them first");
  }
  // The first check of an iteration forgets the flags of the last one, of all optimizers.
  if (std::all_of(stages_.begin(), stages_.end(), [](Stage stage) { return stage == Stage::ready; })) {
    backend_->run({.name = "scaler.clear_found_inf", .function = &clear_found_inf, .parameters = {}}, step_);
  }
  backend_->unscale(gradients_, optimizer.index(), step_);
  gradients_.clear();
  stages_[slot] = Stage::unscaled;
}

void GradScaler::require_unscaled(const ScaledOptimizer& optimizer, std::string_view call) const {
  if (stages_[slot_of(optimizer)] == Stage::unscaled) return;
  throw misuse(Kind::scaled_gradients, call, optimizer,
               "needs unscaled gradients; call GradScaler::unscale before it and GradScaler::step after it");
}

void GradScaler::step(ScaledOptimizer& optimizer) {
  constexpr std::string_view call = "GradScaler::step";
  const std::size_t slot = slot_of(optimizer);
  if (stages_[slot] == Stage::stepped) {
    throw misuse(Kind::step_twice, call, optimizer, "the optimizer has already stepped; call update first");
  }
  if (stages_[slot] == Stage::ready) unscale(optimizer);
  optimizer.apply(step_);
  stages_[slot] = Stage::stepped;
}

void GradScaler::update() {
  if (std::all_of(stages_.begin(), stages_.end(), [](Stage stage) { return stage == Stage::ready; })) {
    throw ScalerError(
        Kind::update_without_check, "GradScaler::update", "", "",
        "GradScaler::update: no optimizer was unscaled or stepped since the last update, so nothing is "
        "known about overflow");
  }
  backend_->run(policy_.update, step_);
  stages_.fill(Stage::ready);
}

GradScaler::Stage GradScaler::stage(const ScaledOptimizer& optimizer) const {
  return stages_[slot_of(optimizer)];
}

}  // namespace fp16lab::engine::amp
