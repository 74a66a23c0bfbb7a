// Iteration: the statistics that policies decide by, and backward passes that are done again.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/amp/scalers/layer_scaler.hpp"
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
        fmt::format(" with scaler.policy = \"{}\": its scale never decreases, so there is nothing to try; "
                    "expected a dynamic policy, or 0",
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

const amp::GradientStatistics* Iteration::statistics() {
  if (!wants_statistics() || log_ == nullptr) return nullptr;
  log_->settle(*backend_, &sharding_);
  statistics_ = log_->statistics();
  if (sharding_.cut()) statistics_.weight = reduced_;
  return &statistics_;
}

bool Iteration::rescue(optim::Optimizer& optimizer) {
  if (rescue_.attempts == rescue_limit_) return false;
  const StepState state = backend_->read_step_state(step_);
  if (state.found_inf[static_cast<std::size_t>(optimizer.index())] == 0.0f || !std::isfinite(mean_loss()))
    return false;
  const amp::GradientStatistics* const counts = statistics();
  const double lower = scaler().next_scale(state, counts);
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
  reduced_ = {};
  if (log_ != nullptr) log_->forget_gradients();
  if (dumping()) dump_->forget_gradients();
  return true;
}

void Iteration::try_backward(const Variable& loss, const BackwardOptions& options) {
  Tensor seed = backend_->empty(Shape{}, DType::f32);
  backend_->fill(seed, trial_->scale);
  if (loss.dtype() != DType::f32) {
    Tensor narrow = backend_->empty(Shape{}, loss.dtype());
    backend_->cast(seed, narrow);
    seed = narrow;
    Tensor scaled = backend_->empty(loss.tensor().shape(), loss.dtype());
    backend_->binary(BinaryOp::multiply, loss.tensor(), seed, scaled);
    ExponentHistogram counts;
    backend_->histogram(scaled, counts);
    trial_->finite = trial_->finite && counts.infinite + counts.nan == 0;
  }
  tape_.backward(loss, for_each(loss.shape(), seed), options);
}

bool Iteration::is_finite_at(double scale, optim::Optimizer& optimizer,
                             const std::function<void()>& backward) {
  trial_ = Trial{.scale = scale};
  optimizer.clear_gradients();
  backward();
  reduce(optimizer);
  const bool finite = trial_->finite && scaler_.nonfinite_parameters(optimizer).empty();
  trial_.reset();
  return finite;
}

void Iteration::find_finite_scale(optim::Optimizer& optimizer, const std::function<void()>& backward) {
  if (!explains_scales()) return;
  const StepState state = backend_->read_step_state(step_);
  const bool overflowed =
      state.found_inf[static_cast<std::size_t>(optimizer.index())] != 0.0f || state.loss_overflow != 0.0f;
  if (!overflowed || !std::isfinite(state.scale) || !std::isfinite(mean_loss())) return;
  // S 2^-most is the lowest scale from 2^least_tried_exponent on.
  const int most = std::ilogb(state.scale) - least_tried_exponent;
  if (most < 1) return;
  struct Gradient {
    Tensor tensor;
    bool there = false;
  };
  std::vector<Gradient> gradients;
  for (Parameter* const parameter : optimizer.parameters())
    gradients.push_back({std::exchange(parameter->gradient, {}), parameter->has_gradient});
  const Taps taps = tape_.taps();
  tape_.set_taps({});

  const auto finite_at = [&](int k) {
    return is_finite_at(std::ldexp(state.scale, -k), optimizer, backward);
  };
  int overflows = 0, finite = 0;  // largest and smallest k that are known to
  while (finite == 0 && overflows < most) {
    const int k = std::min(2 * overflows + 1, most);
    (finite_at(k) ? finite : overflows) = k;
  }
  while (finite - overflows > 1) {
    const int k = overflows + (finite - overflows) / 2;
    (finite_at(k) ? finite : overflows) = k;
  }
  finite_scale_ = finite == 0 ? 0.0 : std::ldexp(state.scale, -finite);

  tape_.set_taps(taps);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Parameter* const parameter = optimizer.parameters()[i];
    parameter->gradient = std::move(gradients[i].tensor);
    parameter->has_gradient = gradients[i].there;
  }
}

}  // namespace fp16lab::engine
