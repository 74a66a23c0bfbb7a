#include "engine/train/recorded_steps.hpp"

#include <cstddef>

namespace fp16lab::engine {

bool RecordedSteps::replay(std::uint64_t number, StepKind kind) {
  Record& known = record_of(kind);
  if (!known.warm || !parts_->load_batches(number)) return false;
  if (known.verbs == nullptr) record(number, kind, known);
  known.verbs->replay();

  parts_->note_replayed(number, kind.names_overflows, known.counted);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    parameter.gradient = known.gradients[i].gradient;
    parameter.has_gradient = known.gradients[i].has_gradient;
    ++parameter.version;
  }
  if (known.log) log_->take(*known.log, number + 1);
  return true;
}

void RecordedSteps::record(std::uint64_t number, StepKind kind, Record& record) {
  for (Parameter* parameter : parameters_) {
    // Gradients of another step, and casts that the model would find up to date now, but not in a replay.
    parameter->gradient = {};
    parameter->model_value = {};
    ++parameter->version;
  }
  record.verbs = backend_->record([&] {
    parts_->begin(number, kind.names_overflows);
    method_->run(*parts_);
    parts_->end();
  });
  for (const Parameter* parameter : parameters_)
    record.gradients.push_back({parameter->gradient, parameter->has_gradient});
  record.counted = parts_->counted_gradients();
  if (!kind.observed.empty()) record.log = *log_;
}

}  // namespace fp16lab::engine
