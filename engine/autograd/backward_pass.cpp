#include "engine/autograd/backward_pass.hpp"

#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine {

namespace {

using Kind = AutogradError::Kind;

}  // namespace

void BackwardPass::add_output(const Variable& output, const Tensor* seed) {
  const Tape::Node& node = tape_.node(output, call_);
  Tensor value;
  if (seed == nullptr) {
    if (node.shape.element_count() != 1) {
      throw AutogradError(Kind::missing_seed,
                          std::string(call_) + ": the output " + tape_.describe(output.id()) + " has shape " +
                              node.shape.to_string() + "; only a scalar may go without a seed");
    }
    value = tape_.backend().empty(node.shape, node.dtype);
    tape_.backend().fill(value, 1.0);
  } else {
    if (!seed->defined() || seed->dtype() != node.dtype ||
        !(seed->shape() == node.shape || (seed->element_count() == 1 && node.shape.element_count() == 1))) {
      throw AutogradError(Kind::bad_seed, std::string(call_) + ": the seed is " + seed->describe() +
                                              ", but the output " + tape_.describe(output.id()) + " is " +
                                              std::string(name_of(node.dtype)) + " " +
                                              node.shape.to_string());
    }
    value = seed->reshaped(node.shape);
  }
  entries_[output.id()].is_output = true;
  start_ = std::max(start_, output.id() + 1);
  tape_.tell(Seeded{tape_, output, value});
  if (create_graph_) {
    const Variable recorded = tape_.constant(value);
    tape_.tell(CotangentNamed{recorded, output.id()});
    accumulate(output.id(), recorded);
  } else {
    accumulate(output.id(), value, 0);
  }
}

void BackwardPass::find_paths() {
  for (std::uint32_t id = first_; id < start_; ++id) {
    bool reaches = entries_[id].wanted;
    for (const auto& slot : tape_.slots_of(tape_.nodes_[id]))
      reaches = reaches || (slot.vjp && entries_[slot.input].on_path);
    // A released node has no vjps left: whatever it may have reached, it is on the path.
    entries_[id].on_path = reaches || (tape_.nodes_[id].released && released_reaches(id));
  }
}

bool BackwardPass::released_reaches(std::uint32_t id) const {
  const auto slots = tape_.slots_of(tape_.nodes_[id]);
  return std::any_of(slots.begin(), slots.end(),
                     [this](const auto& slot) { return entries_[slot.input].on_path; });
}

void BackwardPass::check_released() {
  for (std::uint32_t id = start_; id-- > first_;) {
    Entry& entry = entries_[id];
    if (!entry.on_path || !(entry.reached || entry.has_cotangent())) continue;
    const Tape::Node& node = tape_.nodes_[id];
    if (node.released) {
      throw AutogradError(
          Kind::graph_released,
          std::string(call_) + ": the values of " + tape_.describe(id) +
              " were released by an earlier backward pass; pass retain_graph = true to that one");
    }
    for (const auto& slot : tape_.slots_of(node)) {
      if (slot.vjp) entries_[slot.input].reached = true;
    }
  }
}

void BackwardPass::propagate(std::uint32_t id) {
  const std::size_t mark = tape_.nodes_.size();
  const std::uint32_t slot_count = tape_.nodes_[id].slot_count;
  if (slot_count > 0) {
    if (scales_ != nullptr) rescale(id);
    const Variable output = tape_.handle(id);
    const Variable cotangent = gradient(id);
    for (std::uint32_t slot = 0; slot < slot_count; ++slot) hand_on(id, slot, cotangent, output);
  }
  if (!create_graph_) tape_.truncate(mark);
  if (mode_ == Mode::into_parameters && entries_[id].wanted) add_to_parameter(id);
  if (mode_ == Mode::into_parameters || !entries_[id].wanted) {
    entries_[id].cotangent = {};
    entries_[id].recorded_cotangent = {};
  }
  if (!retain_graph_) release(id);
}

void BackwardPass::hand_on(std::uint32_t id, std::uint32_t slot, const Variable& cotangent,
                           const Variable& output) {
  const std::size_t position = tape_.nodes_[id].first_slot + slot;
  const std::uint32_t input = tape_.slots_[position].input;
  if (!tape_.slots_[position].vjp || !entries_[input].on_path) return;
  if (narrows_into_parameter(id, position)) {
    tape_.tell(GradientHandedOn{id, input});
    accumulate(input, cotangent.tensor(), entries_[id].exponent);
    return;
  }
  // A copy: vjps record nodes, and the pool of slots may move.
  const Vjp vjp = tape_.slots_[position].vjp;
  const BackwardSite site{.op = tape_.nodes_[id].op,
                          .scope = tape_.nodes_[id].scope,
                          .label = tape_.slots_[position].label,
                          .node = id,
                          .input = input,
                          .cotangent = cotangent.id(),
                          .exponent = entries_[id].exponent,
                          .operand = tape_.slots_[position].cotangent};
  const SiteGuard here(tape_, site);
  const RoundedByChance rounded(*this, id, slot);
  tape_.tell(VjpBegins{tape_, site, cotangent});
  const Variable result = applied(id, vjp, cotangent, output);
  const bool first = !entries_[input].has_cotangent();
  if (result.defined()) check_result(id, input, result);
  tape_.tell(VjpGave{tape_, site, cotangent, output, result, first});
  if (!result.defined()) return;
  if (create_graph_) {
    accumulate(input, result);
  } else {
    accumulate(input, result.tensor(), entries_[id].exponent);
  }
}

bool BackwardPass::narrows_into_parameter(std::uint32_t id, std::size_t slot) const {
  const Tape::InputSlot& way = tape_.slots_[slot];
  const Tape::Node& leaf = tape_.nodes_[way.input];
  return mode_ == Mode::into_parameters && way.label == SlotLabel::none && tape_.nodes_[id].op == Op::cast &&
         leaf.parameter != nullptr && leaf.dtype == DType::f32 && !entries_[way.input].has_cotangent() &&
         (leaf.parameter->dtypes.gradient == tape_.nodes_[id].dtype || is_whole_gradient(way.input));
}

void BackwardPass::accumulate(std::uint32_t id, const Variable& contribution) {
  Variable& sum = entries_[id].recorded_cotangent;
  sum = sum.defined() ? ops::add(sum, contribution) : contribution;
}

void BackwardPass::accumulate(std::uint32_t id, Tensor contribution, int exponent) {
  Tensor& cotangent = entries_[id].cotangent;
  const bool followed = tape_.follows_values();  // by a tap that looks at both addends after the addition
  if (!cotangent.defined()) {
    cotangent = std::move(contribution);
    entries_[id].exponent = exponent;
    if (followed) tape_.tell(GradientAdded{tape_, id, {}, cotangent, cotangent});
    return;
  }
  cotangent = converted(std::move(cotangent), contribution.dtype());  // see narrows_into_parameter
  if (exponent != entries_[id].exponent) meet(id, contribution, exponent);
  // Vjps may hand the same memory to several inputs, or give back what they were given.
  if (!followed && cotangent.owns_memory_alone()) {
    tape_.backend().binary(BinaryOp::add, cotangent, contribution, cotangent);
    return;
  }
  Tensor sum = tape_.backend().empty(contribution.shape(), contribution.dtype());
  tape_.backend().binary(BinaryOp::add, cotangent, contribution, sum);
  if (followed) tape_.tell(GradientAdded{tape_, id, cotangent, contribution, sum});
  cotangent = std::move(sum);
}

void BackwardPass::add_to_parameter(std::uint32_t id) {
  Backend& backend = tape_.backend();
  Parameter& parameter = *tape_.nodes_[id].parameter;
  DType dtype = parameter.dtypes.gradient;
  const bool followed = tape_.follows_values();
  const Tensor shown = followed ? entries_[id].cotangent : Tensor();
  Tensor before;
  if (followed && parameter.has_gradient) {
    before = backend.empty(parameter.gradient.shape(), parameter.gradient.dtype());
    backend.copy(parameter.gradient, before);
  }
  // Narrowing is exact where the model's view has this dtype: the value was widened on the way to an FP32
  // master.
  Tensor contribution = std::exchange(entries_[id].cotangent, {});
  if (dtype == DType::f32 && is_whole_gradient(id))
    dtype = contribution.dtype();
  else
    contribution = stored(id, std::move(contribution), parameter);
  if (entries_[id].exponent != 0) contribution = unscaled(parameter, contribution, entries_[id].exponent);
  const Shape shape = stacked(tape_, parameter.value.shape());
  if (!(contribution.element_count() == shape.element_count()))
    throw std::logic_error("Tape::backward: the gradient of " + parameter.name + " is " +
                           contribution.describe() + ", not " + shape.to_string() +
                           " by shard: an operation on its way has no rule for shards");
  const bool fits = parameter.gradient.defined() && parameter.gradient.dtype() == dtype &&
                    parameter.gradient.shape() == shape;
  if (parameter.has_gradient && !parameter.gradient.defined())
    throw std::logic_error("Tape::backward: the gradient of " + parameter.name +
                           " travels already: a pass before this one was the last");
  if (parameter.has_gradient && !fits) {
    throw std::logic_error("Tape::backward: the gradient of " + parameter.name + " is " +
                           parameter.gradient.describe() + ", but it is to be " +
                           std::string(name_of(dtype)) + "; clear it first");
  }
  if (parameter.has_gradient) {
    backend.binary(BinaryOp::add, parameter.gradient, contribution, parameter.gradient);
  } else if (contribution.owns_memory_alone()) {
    parameter.gradient = contribution.reshaped(shape);
  } else {  // cotangents may share memory with each other, the buffer is the parameter's own
    if (!fits) parameter.gradient = backend.empty(shape, dtype);
    backend.copy(contribution, parameter.gradient);
  }
  parameter.has_gradient = true;
  parameter.gradient_by_shard = tape_.context_.shards.total > 1;
  if (followed) tape_.tell(ParameterGradient{tape_, id, parameter, shown, before});
  if (final_gradients_ != nullptr && !has_leaf_below(id))
    final_gradients_->see(Event(GradientFinal{parameter}));
}

bool BackwardPass::has_leaf_below(std::uint32_t id) const {
  for (std::uint32_t below = first_; below < id; ++below)
    if (entries_[below].wanted && tape_.nodes_[below].parameter == tape_.nodes_[id].parameter) return true;
  return false;
}

Tensor BackwardPass::stored(std::uint32_t id, Tensor x, const Parameter& parameter) {
  const DType dtype = parameter.dtypes.gradient;
  if (x.dtype() != DType::f32 || dtype == DType::f32) return converted(std::move(x), dtype);
  CastProbe probe;
  CastProbe* const counts = tape_.taps().any() ? &probe : nullptr;
  Tensor narrowed = tape_.backend().empty(x.shape(), dtype);
  if (const RoundedByChance rounded(*this, parameter); tape_.rounds_stochastically())
    tape_.round_stochastically(x, narrowed, counts);
  else
    tape_.backend().cast(x, narrowed, counts);
  if (counts != nullptr) tape_.tell(GradientNarrowed{tape_, id, dtype, probe, entries_[id].exponent});
  return narrowed;
}

void BackwardPass::check_result(std::uint32_t id, std::uint32_t input, const Variable& result) const {
  const Tape::Node& node = tape_.nodes_[input];
  if (result.dtype() == node.dtype && (result.shape() == node.shape || is_stack(tape_, result, node.shape)))
    return;
  throw std::logic_error(std::string(call_) + ": the vjp of " + tape_.describe(id) + " gave " +
                         std::string(name_of(result.dtype())) + " " + result.shape().to_string() +
                         " for an input of " + std::string(name_of(node.dtype)) + " " +
                         node.shape.to_string());
}

}  // namespace fp16lab::engine
