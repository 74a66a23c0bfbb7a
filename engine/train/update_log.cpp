#include "engine/train/update_log.hpp"

namespace fp16lab::engine {

void UpdateLog::count_weights() {
  for (const Parameter* parameter : optimizer_->parameters()) {
    if (!log_->wants(Observed::weights, parameter->name) || log_->has_weight(parameter->name)) continue;
    CastProbe probe;
    backend_->histogram(parameter->value, probe);
    log_->on_weight(*parameter, probe);
  }
}

void UpdateLog::before_update(const Parameter& parameter) {
  if (!log_->wants(Observed::updates, parameter.name)) return;
  old_ = backend_->empty(parameter.value.shape(), DType::f32);
  if (parameter.value.dtype() == DType::f32)
    backend_->copy(parameter.value, old_);
  else
    backend_->cast(parameter.value, old_);
}

void UpdateLog::after_update(const Parameter& parameter) {
  if (!old_.defined()) return;
  UpdateProbes probes;
  backend_->count_update(old_, parameter.value, parameter.gradient, probes);
  log_->on_update(parameter.name, parameter.value.dtype(), optimizer_->index(), probes);
  old_ = {};
}

void UpdateLog::count_state() {
  for (const optim::NamedTensor& state : optimizer_->state()) {
    if (!log_->wants(Observed::optimizer_state, state.name)) continue;
    CastProbe probe;
    backend_->histogram(state.tensor, probe);
    log_->on_optimizer_state(state.name, state.tensor.dtype(), probe);
  }
}

}  // namespace fp16lab::engine
