#include "engine/train/recorded_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/train/workload.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine {

namespace {

constexpr std::string_view gradient_suffix = ".gradient";

/// "inputs", or of one of several micro-batches "inputs.1".
std::string feed_name(std::string_view what, std::size_t micro_batch, std::size_t count) {
  return count == 1 ? std::string(what) : fmt::format("{}.{}", what, micro_batch);
}

}  // namespace

RecordedSteps::RecordedSteps(Backend& backend, TrainingMethod& method, Iteration& parts, TensorLog* log)
    : backend_(&backend),
      method_(&method),
      parts_(&parts),
      log_(log),
      parameters_(parts.model().parameters()),
      fed_(static_cast<std::size_t>(parts.micro_batches())) {
  if (!parts.records_steps())
    throw std::invalid_argument("RecordedSteps: the plan has train.graph = false; expected true");
  check_graph({.graph = true}, backend, method);
}

void RecordedSteps::feed(std::string_view name, const Tensor& value) {
  for (std::size_t i = 0; i < fed_.size(); ++i)
    for (const auto& [what, place] : {std::pair("inputs", &fed_[i].inputs), {"targets", &fed_[i].targets}}) {
      if (feed_name(what, i, fed_.size()) != name) continue;
      if (place->defined() && (place->shape() != value.shape() || place->dtype() != value.dtype()))
        throw std::invalid_argument(fmt::format("feed: {} is {}; expected {}, as it was fed first", name,
                                                value.describe(), place->describe()));
      *place = value;
      return;
    }
  throw std::invalid_argument(fmt::format("feed: a step takes no \"{}\"; expected \"{}\" or \"{}\"", name,
                                          feed_name("inputs", 0, fed_.size()),
                                          feed_name("targets", fed_.size() - 1, fed_.size())));
}

void RecordedSteps::run() {
  const FloatingPointScope environment;
  for (std::size_t i = 0; i < fed_.size(); ++i)
    for (const auto& [what, value] : {std::pair("inputs", &fed_[i].inputs), {"targets", &fed_[i].targets}})
      if (!value->defined())
        throw std::logic_error(fmt::format("run: \"{}\" was not fed", feed_name(what, i, fed_.size())));
  const std::uint64_t number = begun_ ? *begun_ + 1 : parts_->read_step_state().iteration;
  if (!parts_->load_batches(number, fed_))
    throw std::logic_error("run: inputs and targets were fed as one tensor, or as two, and it must stay so");
  begun_ = number;
  if (!replay_loaded(number, {})) {
    do_verbs(number, {});
    note_done({});
  }
}

Tensor RecordedSteps::fetch(std::string_view name) {
  if (!begun_) throw std::logic_error("fetch: nothing was run");
  if (name == "loss") {
    Tensor loss = backend_->empty({1}, DType::f32);
    const auto mean = static_cast<float>(parts_->mean_loss());
    backend_->upload(std::as_bytes(std::span(&mean, 1)), loss);
    return loss;
  }
  if (name == "loss_scale") {
    Tensor scale = backend_->empty({1}, DType::f32);
    backend_->fill_scale(parts_->step_memory(), scale);
    return scale;
  }
  const bool of_gradient = name.ends_with(gradient_suffix);
  const std::string_view of = of_gradient ? name.substr(0, name.size() - gradient_suffix.size()) : name;
  for (const Parameter* parameter : parameters_) {
    if (parameter->name == name) return parameter->value;
    if (of_gradient && parameter->name == of && parameter->has_gradient) return parameter->gradient;
  }
  std::string names = "loss, loss_scale";
  for (const Parameter* parameter : parameters_) {
    names += ", " + parameter->name;
    if (parameter->has_gradient) names += fmt::format(", {}{}", parameter->name, gradient_suffix);
  }
  throw std::invalid_argument(fmt::format("fetch: a step has no \"{}\"; it has {}", name, names));
}

bool RecordedSteps::replay(std::uint64_t number, StepKind kind) {
  return record_of(kind).warm && parts_->load_batches(number) && replay_loaded(number, kind);
}

bool RecordedSteps::replay_loaded(std::uint64_t number, StepKind kind) {
  Record& known = record_of(kind);
  if (!known.warm) return false;
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

void RecordedSteps::do_verbs(std::uint64_t number, StepKind kind) {
  parts_->begin(number, kind.names_overflows);
  method_->run(*parts_);
  parts_->end();
}

void RecordedSteps::record(std::uint64_t number, StepKind kind, Record& record) {
  for (Parameter* parameter : parameters_) {
    // Gradients of another step, and casts that the model would find up to date now, but not in a replay.
    parameter->gradient = {};
    parameter->model_value = {};
    ++parameter->version;
  }
  record.verbs = backend_->record([&] { do_verbs(number, kind); });
  for (const Parameter* parameter : parameters_)
    record.gradients.push_back({parameter->gradient, parameter->has_gradient});
  record.counted = parts_->counted_gradients();
  if (!kind.observed.empty()) record.log = *log_;
}

}  // namespace fp16lab::engine
