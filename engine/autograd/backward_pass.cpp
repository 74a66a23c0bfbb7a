#include "engine/autograd/backward_pass.hpp"

#include <fmt/format.h>

#include <iterator>
#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine {

namespace {

using Kind = AutogradError::Kind;

constexpr bool is_scaled(Op op) {
  return op == Op::linear || op == Op::matmul || op == Op::conv2d || op == Op::conv_transpose2d ||
         op == Op::lstm;
}

constexpr GradientKind kind_of(SlotLabel label) {
  return label == SlotLabel::weight || label == SlotLabel::bias ? GradientKind::weight
                                                                : GradientKind::activation;
}

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
  ValueWatcher* const watcher = tape_.value_watcher_;
  const ValueMark mark = watcher != nullptr ? watcher->on_seed(tape_, output, value) : ValueMark{};
  if (create_graph_) {
    const Variable recorded = tape_.constant(value);
    if (watcher != nullptr) watcher->adopt(recorded, mark);
    accumulate(output.id(), recorded);
  } else {
    accumulate(output.id(), value, 0, mark);
  }
}

void BackwardPass::find_paths() {
  for (std::uint32_t id = first_; id < start_; ++id) {
    bool reaches = entries_[id].wanted;
    for (const auto& slot : tape_.slots_of(tape_.nodes_[id]))
      reaches = reaches || (slot.vjp && entries_[slot.input].on_path);
    // A released node has no vjps left: whatever it may have reached, it is on the way.
    entries_[id].on_path = reaches || (tape_.nodes_[id].released && released_reaches(id));
  }
}

void BackwardPass::count_occurrences() {
  std::vector<std::uint32_t>& counts = scratch_.op_counts;
  counts.assign(tape_.scopes_.size() * op_count, 0);
  for (std::uint32_t id = 0; id < start_; ++id) {
    const Tape::Node& node = tape_.nodes_[id];
    entries_[id].occurrence = counts[node.scope * op_count + static_cast<std::size_t>(node.op)]++;
  }
}

BackwardPass::RoundedByChance::RoundedByChance(BackwardPass& pass, std::uint32_t id, std::uint32_t slot)
    : tape_(pass.tape_), outer_(pass.tape_.rounding_), rounding_{pass.scratch_.rounding_name, 0} {
  if (!tape_.context_.stochastic_gradients) return;
  const Tape::Node& node = tape_.nodes_[id];
  const std::string& path = tape_.scopes_[node.scope].path;
  std::string& name = rounding_.name;
  name.clear();
  fmt::format_to(std::back_inserter(name), "{}{}{}.{}.{}", path, path.empty() ? "" : ".", name_of(node.op),
                 pass.entries_[id].occurrence, slot);
  rounding_.place = name.size();
  if (const Tape::Node& input = tape_.nodes_[tape_.slots_[node.first_slot + slot].input];
      input.row_steps > 1 && input.shape.rank() > 0) {
    rounding_.rows = input.shape[0];
    rounding_.steps = input.row_steps;
  }
  tape_.rounding_ = &rounding_;
}

BackwardPass::RoundedByChance::RoundedByChance(BackwardPass& pass, const Parameter& parameter)
    : tape_(pass.tape_), outer_(pass.tape_.rounding_), rounding_{pass.scratch_.rounding_name, 0} {
  if (!tape_.context_.stochastic_gradients) return;
  rounding_.name = parameter.name;
  rounding_.place = rounding_.name.size();
  tape_.rounding_ = &rounding_;
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
    if (scales_ != nullptr && is_scaled(tape_.nodes_[id].op)) rescale(id);
    const Variable output = tape_.handle(id);
    const Variable cotangent = gradient(id);
    if (tape_.observer_ != nullptr) show_operand_rounding(id, cotangent);
    tape_.exponent_ = entries_[id].exponent;
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

template <class Compute>
Variable BackwardPass::probed(CastProbe& probe, const Compute& compute) {
  struct Restore {
    Tape& tape;
    CastProbe* outer;
    ~Restore() { tape.probe_ = outer; }
  } const restore{tape_, tape_.probe_};
  tape_.probe_ = &probe;
  return compute();
}

template <class Compute>
Variable BackwardPass::observed(std::uint32_t id, SlotLabel label, const Compute& compute) {
  if (tape_.observer_ == nullptr || label == SlotLabel::none) return compute();
  CastProbe probe;
  const Variable result = probed(probe, compute);
  if (!result.defined()) return result;
  if (probe.counted == 0) probe = taken_rounding(id);
  if (probe.counted == 0)  // nothing was narrowed on the way: count the values themselves
    tape_.backend().histogram(result.tensor(), probe);
  tape_.observer_->on_scaled_gradient(observed_name(id, name_of(label)), kind_of(label), result.dtype(),
                                      probe, entries_[id].exponent);
  return result;
}

void Tape::show_inner_gradient(std::uint32_t scope, SlotLabel label, DType dtype, const CastProbe& probe) {
  if (observer_ == nullptr || backward_depth_ == 0) return;
  std::string& name = scratch_[backward_depth_ - 1]->observed_name;
  name = scopes_[scope].path;
  name += '.';
  name += name_of(label);
  observer_->on_scaled_gradient(name, kind_of(label), dtype, probe, exponent_);
}

std::string_view BackwardPass::observed_name(std::uint32_t id, std::string_view own_name) {
  std::string& name = scratch_.observed_name;
  name = tape_.scopes_[tape_.nodes_[id].scope].path;
  if (!name.empty()) name += '.';
  return name += own_name;
}

void BackwardPass::show_rounding(std::uint32_t id, DType dtype, const CastProbe& probe, int exponent) {
  const Tape::Node* node = &tape_.nodes_[id];
  while ((node->op == Op::cast || node->op == Op::identity) && node->slot_count > 0)
    node = &tape_.nodes_[tape_.slots_of(*node).front().input];
  const auto source = static_cast<std::uint32_t>(node - tape_.nodes_.data());
  if (node->parameter == nullptr) {
    tape_.observer_->on_rounding(observed_name(source, name_of(node->op)), GradientKind::activation, dtype,
                                 probe, exponent);
    return;
  }
  std::string& name = scratch_.observed_name;  // not the parameter's own: its labelled slots have that
  name = node->parameter->name;
  name += ".gradient";
  tape_.observer_->on_rounding(name, GradientKind::weight, dtype, probe, exponent);
}

void BackwardPass::show_operand_rounding(std::uint32_t id, const Variable& cotangent) {
  for (const auto& slot : tape_.slots_of(tape_.nodes_[id])) {
    if (!slot.cotangent.has_value() || !slot.vjp || !entries_[slot.input].on_path) continue;
    CastProbe probe;
    tape_.backend().histogram(cotangent.tensor(), *slot.cotangent, probe);
    const bool layer = slot.label != SlotLabel::none;
    return tape_.observer_->on_rounding(observed_name(id, layer ? "output" : "matmul"),
                                        GradientKind::activation, *slot.cotangent, probe,
                                        entries_[id].exponent);
  }
}

void BackwardPass::hand_on(std::uint32_t id, std::uint32_t slot, const Variable& cotangent,
                           const Variable& output) {
  const std::size_t position = tape_.nodes_[id].first_slot + slot;
  const std::uint32_t input = tape_.slots_[position].input;
  if (!tape_.slots_[position].vjp || !entries_[input].on_path) return;
  if (narrows_into_parameter(id, position)) {
    accumulate(input, cotangent.tensor(), entries_[id].exponent, entries_[id].mark);
    return;
  }
  // A copy: vjps record nodes, and the pool of slots may move.
  const Vjp vjp = tape_.slots_[position].vjp;
  const SlotLabel label = tape_.slots_[position].label;
  const ShownSite shown(tape_, id, label, input, cotangent);
  const RoundedByChance rounded(*this, id, slot);
  const bool looked_at = tape_.observer_ != nullptr;
  CastProbe rounding;
  const auto compute = [&] { return applied(id, vjp, cotangent, output); };
  const Variable result =
      looked_at && label == SlotLabel::none ? probed(rounding, compute) : observed(id, label, compute);
  if (!result.defined()) return;
  check_result(id, input, result);
  if (looked_at) keep_rounding(input, result, rounding, entries_[id].exponent);
  ValueWatcher* const watcher = tape_.value_watcher_;
  const ValueMark mark =
      watcher != nullptr ? watcher->on_gradient(tape_, cotangent, output, result) : ValueMark{};
  if (create_graph_) {
    accumulate(input, result);
  } else {
    accumulate(input, result.tensor(), entries_[id].exponent, mark);
  }
}

Variable BackwardPass::applied(std::uint32_t id, const Vjp& vjp, const Variable& cotangent,
                               const Variable& output) {
  const Tape::Node& node = tape_.nodes_[id];
  // A copy that only changes the dtype takes stacks as it takes anything.
  const bool elementwise = node.op == Op::cast || node.op == Op::identity;
  if (elementwise || !is_stack(tape_, cotangent, node.shape)) return vjp(cotangent, output);
  return stack_of(
      [&](const Variable& of_shard) { return vjp(ops::reshape(of_shard, tape_.nodes_[id].shape), output); },
      cotangent);
}

void BackwardPass::rescale(std::uint32_t id) {
  const Tape::Node& node = tape_.nodes_[id];
  const auto slots = tape_.slots_of(node);
  Entry& entry = entries_[id];
  const Parameter* weight = nullptr;
  for (std::size_t slot = 2; slot-- > 0 && weight == nullptr;)
    weight = tape_.cast_parameter_of(tape_.handle(slots[slot].input));
  const int exponent = scales_->exponent_at({.scope = tape_.scopes_[node.scope].path,
                                             .op = node.op,
                                             .weight = weight,
                                             .cotangent = entry.cotangent,
                                             .operand = tape_.nodes_[slots[1].input].value,
                                             .exponent = entry.exponent});
  const int change = exponent - entry.exponent;
  if (change == 0) return;
  const Tensor cotangent_scaled = scaled(id, entry.cotangent, change, exponent);
  if (ValueWatcher* const watcher = tape_.value_watcher_; watcher != nullptr) {  // it may have overflowed
    const Variable cotangent = gradient(id);
    const ShownSite shown(tape_, id, SlotLabel::none, id, cotangent);
    tape_.offer_wide(cotangent_scaled, [&] {
      return times_power_of_two(tape_.backend(), converted(cotangent.tensor(), DType::f32), change);
    });
    entry.mark = watcher->mark_of(tape_, tape_.record(Op::scale, cotangent_scaled, {{cotangent, {}}}));
  }
  entry.cotangent = cotangent_scaled;
  entry.exponent = exponent;
}

Tensor BackwardPass::scaled(std::uint32_t id, const Tensor& gradient, int change, int exponent) {
  Backend& backend = tape_.backend();
  Tensor result = times_power_of_two(backend, gradient, change);
  if (tape_.observer_ != nullptr && gradient.dtype() != DType::f32) {
    CastProbe probe;
    Tensor narrowed = backend.empty(gradient.shape(), gradient.dtype());
    backend.cast(times_power_of_two(backend, converted(gradient, DType::f32), change), narrowed, &probe);
    show_rounding(id, gradient.dtype(), probe, exponent);
  }
  return result;
}

void BackwardPass::meet(std::uint32_t id, Tensor& contribution, int exponent) {
  Entry& entry = entries_[id];
  Backend& backend = tape_.backend();
  const int joined =
      joined_exponent(largest_magnitude(backend, entry.cotangent), entry.exponent,
                      largest_magnitude(backend, contribution), exponent, contribution.dtype());
  if (joined != entry.exponent)
    entry.cotangent = scaled(id, entry.cotangent, joined - entry.exponent, joined);
  if (joined != exponent) contribution = scaled(id, contribution, joined - exponent, joined);
  entry.exponent = joined;
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

void BackwardPass::accumulate(std::uint32_t id, Tensor contribution, int exponent, ValueMark mark) {
  Tensor& cotangent = entries_[id].cotangent;
  if (!cotangent.defined()) {
    cotangent = std::move(contribution);
    entries_[id].exponent = exponent;
    entries_[id].mark = mark;
    return;
  }
  ValueWatcher* const watcher = tape_.value_watcher_;  // who looks at both addends after the addition
  cotangent = converted(std::move(cotangent), contribution.dtype());  // see narrows_into_parameter
  if (exponent != entries_[id].exponent) meet(id, contribution, exponent);
  // Vjps may hand the same memory to several inputs, or give back what they were given.
  if (watcher == nullptr && cotangent.owns_memory_alone()) {
    tape_.backend().binary(BinaryOp::add, cotangent, contribution, cotangent);
    return;
  }
  Tensor sum = tape_.backend().empty(contribution.shape(), contribution.dtype());
  tape_.backend().binary(BinaryOp::add, cotangent, contribution, sum);
  if (watcher != nullptr)
    entries_[id].mark = watcher->on_sum(tape_, cotangent, entries_[id].mark, contribution, mark, sum);
  cotangent = std::move(sum);
}

void BackwardPass::add_to_parameter(std::uint32_t id) {
  Backend& backend = tape_.backend();
  Parameter& parameter = *tape_.nodes_[id].parameter;
  DType dtype = parameter.dtypes.gradient;
  ValueWatcher* const watcher = tape_.value_watcher_;
  const Tensor shown = watcher != nullptr ? entries_[id].cotangent : Tensor();
  Tensor before;
  if (watcher != nullptr && parameter.has_gradient) {
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
  if (watcher != nullptr)
    watcher->on_parameter(tape_, parameter, entries_[id].mark, shown, before, parameter.gradient);
  if (final_gradients_ != nullptr && !has_leaf_below(id)) final_gradients_->on_final(parameter);
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
  const bool looked_at = tape_.observer_ != nullptr;
  Tensor narrowed = tape_.backend().empty(x.shape(), dtype);
  if (const RoundedByChance rounded(*this, parameter); tape_.rounds_stochastically())
    tape_.round_stochastically(x, narrowed, looked_at ? &probe : nullptr);
  else
    tape_.backend().cast(x, narrowed, looked_at ? &probe : nullptr);
  if (looked_at) show_rounding(id, dtype, probe, entries_[id].exponent);
  return narrowed;
}

Tensor BackwardPass::unscaled(const Parameter& parameter, const Tensor& gradient, int exponent) const {
  if (gradient.dtype() != DType::f32) {
    throw std::logic_error(
        "Tape::backward: the gradient of " + parameter.name + " is kept in " +
        std::string(name_of(gradient.dtype())) + " and carries a layer's scale of 2^" +
        std::to_string(exponent) +
        ": dividing by it would round. Let gradients add up in f32 (ParameterDTypes::gradient; "
        "amp.master_gradients = true, or level O1)");
  }
  return times_power_of_two(tape_.backend(), gradient, -exponent);
}

void BackwardPass::keep_rounding(std::uint32_t input, const Variable& gradient, const CastProbe& probe,
                                 int exponent) {
  const DType dtype = gradient.dtype();
  if (dtype == DType::f32) return;
  if (is_watch(input)) {
    auto& kept = scratch_.watched;
    if (!entries_[input].has_cotangent()) {
      if (probe.counted == static_cast<std::uint64_t>(gradient.shape().element_count())) {
        kept.push_back({input, exponent, probe});
        return;
      }
    } else if (const auto first = std::find_if(kept.begin(), kept.end(),
                                               [input](const auto& entry) { return entry.watch == input; });
               first != kept.end()) {  // the watch will show the sum as stored
      show_rounding(input, dtype, first->probe, first->exponent);
      kept.erase(first);
    }
  }
  if (probe.counted > 0) show_rounding(input, dtype, probe, exponent);
}

CastProbe BackwardPass::taken_rounding(std::uint32_t watch) {
  auto& kept = scratch_.watched;
  const auto found =
      std::find_if(kept.begin(), kept.end(), [watch](const auto& entry) { return entry.watch == watch; });
  if (found == kept.end()) return {};
  CastProbe probe = found->probe;
  kept.erase(found);
  return probe;
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
