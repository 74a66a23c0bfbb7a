// RunIteration: the statistics that policies decide by, and backward passes that are done again.
#include <fmt/core.h>

#include <cmath>
#include <stdexcept>

#include "engine/amp/layer_scaler.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/iteration_programs.hpp"

namespace fp16lab::engine {

void check_rescue(const amp::ScalerOptions& scaler, const TrainingMethod& method) {
  if (scaler.rescue == 0) return;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("scaler.rescue = {}{}", scaler.rescue, why));
  };
  if (scaler.rescue < 0 || scaler.rescue > 1000) refuse(": must be from 0 to 1000");
  if (amp::scale_policy(scaler.policy).constant)
    refuse(
        fmt::format(" with scaler.policy = \"{}\": its scale never goes down, so that there is nothing to "
                    "try; expected a dynamic policy, or 0",
                    scaler.policy));
  if (amp::scales_layers(scaler))
    refuse(fmt::format(" with scaler.policy = \"{}\": scales of layers are decided once a step; expected 0",
                       scaler.policy));
  if (scaler.per_loss)
    refuse(
        " with scaler.per_loss = true: gradients of other losses are unscaled and summed by then; one of the "
        "two must be off");
  if (!method.rescuable())
    refuse(
        ": this training method does not keep the graphs of its backward passes; only the supervised one "
        "does; expected 0");
}

const amp::GradientStatistics* RunIteration::statistics() {
  if (!wants_statistics() || log_ == nullptr) return nullptr;
  log_->settle(*backend_);
  statistics_ = log_->statistics();
  return &statistics_;
}

bool RunIteration::rescue(optim::Optimizer& optimizer) {
  if (!keeps_graphs() || rescue_.attempts == rescue_limit_) return false;
  const StepState state = backend_->read_step_state(step_);
  if (state.found_inf[static_cast<std::size_t>(optimizer.index())] == 0.0f || !std::isfinite(mean_loss()))
    return false;
  const amp::GradientStatistics* const counts = statistics();
  const double lower = scaler_.next_scale(state, counts);
  if (!(lower < state.scale)) return false;
  if (rescue_.attempts == 0) {
    rescue_.overflowed_scale = state.scale;
    rescue_.loss_overflow = state.loss_overflow != 0.0f;
    if (names_overflows_) rescue_.parameters = scaler_.nonfinite_parameters(optimizer);
  }
  ++rescue_.attempts;
  rescue_.scale = lower;
  scaler_.update(counts);
  backend_->run({.name = "train.begin_rescue", .function = &begin_rescue_program, .parameters = {}}, step_);
  optimizer.clear_gradients();
  if (log_ != nullptr) log_->clear();
  if (dumping()) dump_->forget_gradients();
  return true;
}

}  // namespace fp16lab::engine
