#include "engine/autograd/tape.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine {

Tape& Variable::tape() const {
  if (tape_ == nullptr)
    throw AutogradError(AutogradError::Kind::undefined_variable, "Variable: used before it was assigned");
  return *tape_;
}
Shape Variable::shape() const { return tape().node(*this, "Variable::shape").shape; }
DType Variable::dtype() const { return tape().node(*this, "Variable::dtype").dtype; }
bool Variable::requires_gradient() const {
  return tape().node(*this, "Variable::requires_gradient").requires_gradient;
}
Tensor Variable::tensor() const {
  const Tape::Node& node = tape().node(*this, "Variable::tensor");
  if (!node.value.defined()) {
    throw AutogradError(AutogradError::Kind::graph_released,
                        "Variable::tensor: the value of " + tape_->describe(id_) +
                            " was released by a backward pass; pass retain_graph = true");
  }
  return node.value;
}

Variable Tape::parameter(Parameter& parameter) {
  const auto key = reinterpret_cast<std::uintptr_t>(&parameter);
  std::size_t place = leaf_of_.find(key, [](std::size_t) { return true; });
  if (place == PositionTable::nowhere) {
    place = parameter_leaves_.size();
    leaf_of_.put(key, place);
    parameter_leaves_.push_back({.parameter = &parameter, .leaf = {}, .view = {}});
  }
  ParameterLeaf* const found = &parameter_leaves_[place];
  if (found->version != parameter.version || !usable(found->leaf) ||
      found->leaf.requires_gradient() == parameter.frozen) {
    if (!is_tensor_float(parameter.value.dtype())) {
      throw std::invalid_argument("Tape::parameter: " + parameter.name + " is " + parameter.value.describe() +
                                  "; f32, f16 or bf16 is needed");
    }
    Node leaf;
    leaf.value = parameter.value;
    leaf.requires_gradient = !parameter.frozen;
    leaf.parameter = &parameter;
    leaf.of_parameters = true;
    const Variable variable = push(std::move(leaf));
    *found = {&parameter, parameter.version, variable, variable};
  }
  if (parameter.dtypes.model == parameter.value.dtype()) return found->leaf;
  // A view that was made in no-grad mode has no way back to the leaf.
  const bool reusable = usable(found->view) && found->view.dtype() == parameter.dtypes.model &&
                        (found->view.requires_gradient() == !parameter.frozen || !grad_mode_);
  if (!reusable) found->view = model_view(parameter, found->leaf);
  return found->view;
}

Variable Tape::model_view(Parameter& parameter, const Variable& leaf) {
  const DType dtype = parameter.dtypes.model;
  const bool current = parameter.model_value.defined() && parameter.model_value.dtype() == dtype &&
                       parameter.model_version == parameter.version;
  if (!current) {
    // New memory: graphs of an earlier version keep theirs.
    Tensor cast = backend_->empty(parameter.value.shape(), dtype);
    backend_->cast(parameter.value, cast, backward_depth_ == 0 ? probe_ : nullptr);
    parameter.model_value = std::move(cast);
    parameter.model_version = parameter.version;
  }
  return ops::cast_as(leaf, parameter.model_value);
}

Variable Tape::input(const Tensor& value) {
  Node leaf;
  leaf.value = value;
  leaf.requires_gradient = true;
  return push(std::move(leaf));
}

Variable Tape::constant(const Tensor& value) {
  Node leaf;
  leaf.value = value;
  return push(std::move(leaf));
}

void Tape::reset() {
  nodes_.clear();
  slots_.clear();
  parameter_leaves_.clear();
  leaf_of_.clear();
  tell(TapeReset{});
  ++generation_;
}

Variable Tape::record(Op op, Tensor value, std::span<const Slot> slots) {
  Node node;
  node.op = op;
  node.value = std::move(value);
  if (grad_mode_) {
    for (const Slot& slot : slots) {
      const bool differentiable = this->node(slot.input, name_of(op)).requires_gradient;
      node.requires_gradient = node.requires_gradient || (slot.vjp && differentiable);
    }
  }
  // A scalar does not change the dtype of the other operand.
  node.of_parameters = !slots.empty() && std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) {
    const Node& input = nodes_[slot.input.id()];
    return input.of_parameters || (input.slot_count == 0 && input.shape.element_count() == 1);
  });
  if (node.requires_gradient) {
    node.first_slot = static_cast<std::uint32_t>(slots_.size());
    node.slot_count = static_cast<std::uint32_t>(slots.size());
    for (const Slot& slot : slots) {
      InputSlot& kept = slots_.emplace_back();
      kept.input = slot.input.id();
      kept.label = slot.label;
      kept.cotangent = slot.cotangent;
      if (nodes_[slot.input.id()].requires_gradient) kept.vjp = slot.vjp;
    }
  }
  const Variable result = push(std::move(node));
  tell(Recorded{*this, op, result, slots});
  if (follows_values_) {
    wide_of_ = {};
    wide_value_ = nullptr;
  }
  return result;
}

Tensor Recorded::unrounded() const {
  const Tensor value = tape.value_of(result);
  const bool offered = tape.wide_value_ && tape.wide_of_.defined() && tape.wide_of_.data() == value.data();
  return offered ? tape.wide_value_().reshaped(value.shape()) : Tensor();
}

const Parameter* Tape::cast_parameter_of(const Variable& variable) const {
  const Node& node = this->node(variable, "Tape::cast_parameter_of");
  if (node.parameter != nullptr || node.op != Op::cast || node.slot_count == 0) return node.parameter;
  return nodes_[slots_of(node).front().input].parameter;
}

Variable Tape::origin_of(Variable variable) {
  for (;;) {
    const Node& node = this->node(variable, "Tape::origin_of");
    if ((node.op != Op::cast && node.op != Op::identity) || node.slot_count == 0) return variable;
    variable = handle(slots_of(node).front().input);
  }
}

bool Tape::is_watch(const Variable& variable) const {
  const Node& node = this->node(variable, "Tape::is_watch");
  return node.op == Op::identity && node.slot_count == 1 && slots_of(node).front().label != SlotLabel::none;
}

Variable Tape::record(Op op, Tensor value, std::vector<Slot>&& slots) {
  const Variable result = record(op, std::move(value), std::span<const Slot>(slots));
  slots.clear();
  spare_slots_ = std::move(slots);
  return result;
}

Variable Tape::push(Node&& node) {
  if (!node.value.defined()) throw std::invalid_argument("Tape: a node without a value");
  node.scope = scope_;
  node.generation = generation_;
  node.shape = node.value.shape();
  node.dtype = node.value.dtype();
  if (!node.of_parameters) node.row_steps = static_cast<std::int32_t>(row_steps_);
  nodes_.push_back(std::move(node));
  return handle(static_cast<std::uint32_t>(nodes_.size() - 1));
}

void Tape::truncate(std::size_t size) {
  if (size == nodes_.size()) return;
  // Slots are in the order of their nodes.
  for (std::size_t id = size; id < nodes_.size(); ++id) {
    if (nodes_[id].slot_count == 0) continue;
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(nodes_[id].first_slot), slots_.end());
    break;
  }
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(size), nodes_.end());
  ++generation_;  // ids from `size` on will be used again, under a new generation
}

void Tape::drop_value(const Variable& variable) {
  check(variable, "Tape::drop_value");
  const Tensor& value = nodes_[variable.id()].value;  // undefined where it was dropped already
  if (value.defined()) tell(ValueDropped{value});
  nodes_[variable.id()].value = {};
}

void Tape::check(const Variable& variable, std::string_view user) const { node(variable, user); }

const Tape::Node& Tape::node(const Variable& variable, std::string_view user) const {
  if (!variable.defined()) {
    throw AutogradError(AutogradError::Kind::undefined_variable,
                        std::string(user) + ": an input is an undefined Variable");
  }
  if (variable.tape_ != this) {
    throw AutogradError(AutogradError::Kind::foreign_variable,
                        std::string(user) + ": inputs live on different tapes");
  }
  if (variable.id_ >= nodes_.size() || nodes_[variable.id_].generation != variable.generation_) {
    throw AutogradError(AutogradError::Kind::stale_variable,
                        std::string(user) + ": stale Variable (id " + std::to_string(variable.id_) +
                            ", generation " + std::to_string(variable.generation_) +
                            "); its tape was reset, or it was a temporary of a backward pass");
  }
  return nodes_[variable.id_];
}

bool Tape::usable(const Variable& variable) const {
  return variable.tape_ == this && variable.id_ < nodes_.size() &&
         nodes_[variable.id_].generation == variable.generation_ && !nodes_[variable.id_].released;
}

Parameter* Tape::parameter_of(const Variable& variable) const {
  return node(variable, "Tape::parameter_of").parameter;
}

std::string Tape::describe(std::uint32_t id) const {
  const Node& node = nodes_[id];
  std::string text = "node " + std::to_string(id) + " (" + std::string(name_of(node.op));
  if (node.scope != 0) text += " in " + scopes_[node.scope].path;
  return text + ")";
}

std::uint32_t Tape::inner_scope(std::string_view name) {
  const std::uint64_t key = std::hash<std::string_view>()(name) + scope_;
  const std::size_t place = inner_scopes_.find(key, [&](std::size_t id) {
    const Scope& known = scopes_[id];
    return known.outer == scope_ && std::string_view(known.path).substr(known.name_offset) == name;
  });
  if (place != PositionTable::nowhere) return static_cast<std::uint32_t>(place);
  Scope inner;
  inner.outer = scope_;
  inner.path = scopes_[scope_].path;
  if (!inner.path.empty()) inner.path += '.';
  inner.name_offset = inner.path.size();
  inner.path += name;
  const auto id = static_cast<std::uint32_t>(scopes_.size());
  inner_scopes_.put(key, id);
  scopes_.push_back(std::move(inner));
  return id;
}

}  // namespace fp16lab::engine
