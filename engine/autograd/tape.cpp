#include "engine/autograd/tape.hpp"

#include <stdexcept>
#include <utility>

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
  const auto found = parameter_leaves_.find(&parameter);
  if (found != parameter_leaves_.end() && found->second.first == parameter.version &&
      usable(found->second.second)) {
    return found->second.second;
  }
  if (parameter.value.dtype() != DType::f32) {
    throw std::invalid_argument("Tape::parameter: " + parameter.name + " is " + parameter.value.describe() +
                                "; master values are f32");
  }
  Node leaf;
  leaf.value = parameter.value;
  leaf.requires_gradient = true;
  leaf.parameter = &parameter;
  const Variable variable = push(std::move(leaf));
  parameter_leaves_.insert_or_assign(&parameter, std::pair(parameter.version, variable));
  return variable;
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
  parameter_leaves_.clear();
  ++generation_;
}

Variable Tape::record(Op op, Tensor value, std::initializer_list<Slot> slots) {
  Node node;
  node.op = op;
  node.value = std::move(value);
  if (grad_mode_) {
    for (const Slot& slot : slots) {
      node.requires_gradient =
          node.requires_gradient || (slot.vjp && this->node(slot.input, name_of(op)).requires_gradient);
    }
  }
  if (node.requires_gradient) {
    for (const Slot& slot : slots) {
      const std::size_t position = node.input_count++;
      node.inputs[position] = slot.input.id();
      if (this->node(slot.input, name_of(op)).requires_gradient) node.vjps[position] = slot.vjp;
      node.labels[position] = slot.label;
    }
  }
  return push(std::move(node));
}

Variable Tape::push(Node node) {
  if (!node.value.defined()) throw std::invalid_argument("Tape: a node without a value");
  node.scope = scope_;
  node.generation = generation_;
  node.shape = node.value.shape();
  node.dtype = node.value.dtype();
  nodes_.push_back(std::move(node));
  return handle(static_cast<std::uint32_t>(nodes_.size() - 1));
}

Variable Tape::handle(std::uint32_t id) { return {this, nodes_[id].generation, id}; }

void Tape::truncate(std::size_t size) {
  if (size == nodes_.size()) return;
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(size), nodes_.end());
  ++generation_;  // ids from `size` on will be used again, under a new generation
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
  if (node.scope != 0) text += " in " + scope_names_[node.scope];
  return text + ")";
}

ScopeGuard::ScopeGuard(Tape& tape, std::string_view name) : tape_(&tape), outer_(tape.scope_) {
  std::string path = tape.scope_names_[tape.scope_];
  if (!path.empty()) path += '.';
  path += name;
  const auto [found, inserted] =
      tape.scope_ids_.try_emplace(path, static_cast<std::uint32_t>(tape.scope_names_.size()));
  if (inserted) tape.scope_names_.push_back(path);
  tape.scope_ = found->second;
}

}  // namespace fp16lab::engine
