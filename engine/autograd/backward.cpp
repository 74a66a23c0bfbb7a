// The driver of backward passes.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

namespace {

using Kind = AutogradError::Kind;

constexpr std::string_view slot_name(SlotLabel label) {
  switch (label) {
    case SlotLabel::none:
      return "";
    case SlotLabel::input:
      return "input";
    case SlotLabel::weight:
      return "weight";
    case SlotLabel::bias:
      return "bias";
    case SlotLabel::prediction:
      return "prediction";
  }
  return "?";
}

constexpr GradientKind kind_of(SlotLabel label) {
  return label == SlotLabel::weight || label == SlotLabel::bias ? GradientKind::weight
                                                                : GradientKind::activation;
}

}  // namespace

/// One pass over a tape. Cotangents are Tensors when the pass is not recorded (temporaries of each node are
/// dropped at once), and Variables of the tape when it is.
class BackwardPass {
 public:
  BackwardPass(Tape& tape, std::string_view call, bool create_graph, bool retain_graph)
      : tape_(tape),
        call_(call),
        create_graph_(create_graph),
        retain_graph_(retain_graph || create_graph),
        grad_mode_(tape, create_graph),
        autocast_off_(tape, nullptr),
        cotangents_(tape.nodes_.size()),
        wanted_(tape.nodes_.size(), false),
        is_output_(tape.nodes_.size(), false) {}

  void add_output(const Variable& output, const Tensor* seed) {
    const Tape::Node& node = tape_.node(output, call_);
    Tensor value;
    if (seed == nullptr) {
      if (node.shape.element_count() != 1) {
        throw AutogradError(Kind::missing_seed, call_ + ": the output " + tape_.describe(output.id()) +
                                                    " has shape " + node.shape.to_string() +
                                                    "; only a scalar may go without a seed");
      }
      value = tape_.backend().empty(node.shape, node.dtype);
      tape_.backend().fill(value, 1.0);
    } else {
      if (seed->dtype() != node.dtype ||
          !(seed->shape() == node.shape || (seed->element_count() == 1 && node.shape.element_count() == 1))) {
        throw AutogradError(Kind::bad_seed, call_ + ": the seed is " + seed->describe() +
                                                ", but the output " + tape_.describe(output.id()) + " is " +
                                                std::string(name_of(node.dtype)) + " " +
                                                node.shape.to_string());
      }
      value = seed->reshaped(node.shape);
    }
    is_output_[output.id()] = true;
    start_ = std::max(start_, output.id() + 1);
    accumulate(output.id(), value);
  }

  /// Gradients stop at, and are kept for, these nodes.
  void add_target(std::uint32_t id) {
    wanted_[id] = true;
    first_ = std::min(first_, id);
  }
  bool has_target() const { return first_ < wanted_.size(); }

  void run() {
    const std::vector<bool> on_path = paths();
    for (std::uint32_t id = start_; id-- > first_;) {
      if (!on_path[id] || !cotangents_[id].defined()) continue;
      propagate(id, on_path);
    }
  }

  bool reached(std::uint32_t id) const { return cotangents_[id].defined(); }
  const Tensor& tensor_of(std::uint32_t id) const { return cotangents_[id].value; }
  Variable variable_of(std::uint32_t id) {
    return create_graph_ ? cotangents_[id].variable : tape_.constant(cotangents_[id].value);
  }

 private:
  struct Cotangent {
    Tensor value;       ///< when the pass is not recorded
    Variable variable;  ///< when it is
    bool defined() const { return value.defined() || variable.defined(); }
  };

  /// Nodes through which a target is reached. Throws if such a node's values were released, before anything
  /// changes.
  std::vector<bool> paths() const {
    std::vector<bool> on_path(wanted_.size(), false);
    for (std::uint32_t id = first_; id < start_; ++id) {
      const Tape::Node& node = tape_.nodes_[id];
      bool reaches = wanted_[id];
      for (std::size_t slot = 0; slot < node.input_count; ++slot)
        reaches = reaches || on_path[node.inputs[slot]];
      on_path[id] = reaches;
    }
    check_released(on_path);
    return on_path;
  }

  /// Only nodes that a cotangent can reach matter: a released sub-graph beside the path is no error.
  void check_released(const std::vector<bool>& on_path) const {
    std::vector<bool> reached(wanted_.size(), false);
    for (std::uint32_t id = start_; id-- > first_;) {
      if (!on_path[id] || !(reached[id] || cotangents_[id].defined())) continue;
      const Tape::Node& node = tape_.nodes_[id];
      if (node.released) {
        throw AutogradError(
            Kind::graph_released,
            call_ + ": the values of " + tape_.describe(id) +
                " were released by an earlier backward pass; pass retain_graph = true to that one");
      }
      for (std::size_t slot = 0; slot < node.input_count; ++slot) reached[node.inputs[slot]] = true;
    }
  }

  void propagate(std::uint32_t id, const std::vector<bool>& on_path) {
    const std::size_t mark = tape_.nodes_.size();
    const Variable output = tape_.handle(id);
    const Variable cotangent =
        create_graph_ ? cotangents_[id].variable : tape_.constant(cotangents_[id].value);
    for (std::size_t slot = 0; slot < tape_.nodes_[id].input_count; ++slot) {
      // A copy: vjps push nodes, and the vector of nodes may move.
      const Vjp vjp = tape_.nodes_[id].vjps[slot];
      const std::uint32_t input = tape_.nodes_[id].inputs[slot];
      if (!vjp || !on_path[input]) continue;
      const Variable result = observed(id, slot, [&] { return vjp(cotangent, output); });
      check_result(id, input, result);
      if (create_graph_) {
        Variable& sum = cotangents_[input].variable;
        sum = sum.defined() ? ops::add(sum, result) : result;
      } else {
        accumulate(input, result.tensor());
      }
    }
    if (!create_graph_) tape_.truncate(mark);
    if (!wanted_[id]) cotangents_[id] = {};
    Tape::Node& node = tape_.nodes_[id];
    if (!retain_graph_ && node.op != Op::leaf) {
      node.vjps = {};
      node.released = true;
      if (!is_output_[id]) node.value = {};
    }
  }

  void accumulate(std::uint32_t id, const Tensor& value) {
    Cotangent& cotangent = cotangents_[id];
    if (create_graph_) {
      const Variable variable = tape_.constant(value);
      cotangent.variable = cotangent.variable.defined() ? ops::add(cotangent.variable, variable) : variable;
    } else if (!cotangent.value.defined()) {
      cotangent.value = value;
    } else {
      // A new tensor: vjps may hand the same memory to several inputs.
      Tensor sum = tape_.backend().empty(value.shape(), value.dtype());
      tape_.backend().binary(BinaryOp::add, cotangent.value, value, sum);
      cotangent.value = std::move(sum);
    }
  }

  template <class Compute>
  Variable observed(std::uint32_t id, std::size_t slot, const Compute& compute) {
    const SlotLabel label = tape_.nodes_[id].labels[slot];
    if (tape_.observer_ == nullptr || label == SlotLabel::none) return compute();
    CastProbe probe;
    tape_.probe_ = &probe;
    struct Restore {
      Tape& tape;
      ~Restore() { tape.probe_ = nullptr; }
    };
    Variable result;
    {
      const Restore restore{tape_};
      result = compute();
    }
    if (probe.before.total() == 0) {  // nothing was narrowed on the way: count the values themselves
      tape_.backend().histogram(result.tensor(), probe.before);
      probe.after = probe.before;
    }
    std::string name = tape_.scope_names_[tape_.nodes_[id].scope];
    if (!name.empty()) name += '.';
    name += slot_name(label);
    tape_.observer_->on_gradient(name, kind_of(label), result.dtype(), probe);
    return result;
  }

  void check_result(std::uint32_t id, std::uint32_t input, const Variable& result) const {
    const Tape::Node& node = tape_.nodes_[input];
    if (result.dtype() == node.dtype && result.shape() == node.shape) return;
    throw std::logic_error(call_ + ": the vjp of " + tape_.describe(id) + " gave " +
                           std::string(name_of(result.dtype())) + " " + result.shape().to_string() +
                           " for an input of " + std::string(name_of(node.dtype)) + " " +
                           node.shape.to_string());
  }

  Tape& tape_;
  std::string call_;
  bool create_graph_;
  bool retain_graph_;
  GradModeGuard grad_mode_;
  CastPolicyGuard autocast_off_;
  std::vector<Cotangent> cotangents_;
  std::vector<bool> wanted_;
  std::vector<bool> is_output_;
  std::uint32_t start_ = 0;           ///< one above the highest output
  std::uint32_t first_ = UINT32_MAX;  ///< the lowest target
};

void Tape::backward(const Variable& output, BackwardOptions options) {
  run_backward(output, nullptr, options);
}

void Tape::backward(const Variable& output, const Tensor& seed, BackwardOptions options) {
  run_backward(output, &seed, options);
}

void Tape::run_backward(const Variable& output, const Tensor* seed, BackwardOptions options) {
  BackwardPass pass(*this, "Tape::backward", false, options.retain_graph);
  pass.add_output(output, seed);
  std::vector<std::uint32_t> leaves;
  for (std::uint32_t id = 0; id <= output.id(); ++id) {
    if (nodes_[id].parameter == nullptr) continue;
    pass.add_target(id);
    leaves.push_back(id);
  }
  if (!node(output, "Tape::backward").requires_gradient || !pass.has_target()) {
    throw AutogradError(Kind::no_gradient_path, "Tape::backward: the output " + describe(output.id()) +
                                                    " does not depend on any parameter");
  }
  pass.run();
  for (const std::uint32_t id : leaves) {
    if (!pass.reached(id)) continue;
    Parameter& parameter = *nodes_[id].parameter;
    // The buffer is the parameter's own: cotangents may share memory with each other.
    if (!parameter.gradient.defined())
      parameter.gradient = backend_->empty(parameter.value.shape(), DType::f32);
    if (parameter.has_gradient) {
      backend_->binary(BinaryOp::add, parameter.gradient, pass.tensor_of(id), parameter.gradient);
    } else {
      backend_->copy(pass.tensor_of(id), parameter.gradient);
    }
    parameter.has_gradient = true;
  }
}

std::vector<Variable> Tape::gradients(std::span<const Variable> outputs, std::span<const Tensor> seeds,
                                      std::span<const Variable> inputs, GradientsOptions options) {
  if (!seeds.empty() && seeds.size() != outputs.size()) {
    throw AutogradError(Kind::bad_seed, "Tape::gradients: " + std::to_string(seeds.size()) + " seeds for " +
                                            std::to_string(outputs.size()) + " outputs");
  }
  std::vector<Variable> results(inputs.size());
  BackwardPass pass(*this, "Tape::gradients", options.create_graph, options.retain_graph);
  for (const Variable& input : inputs) {
    check(input, "Tape::gradients");
    pass.add_target(input.id());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    pass.add_output(outputs[i], seeds.empty() ? nullptr : &seeds[i]);
  pass.run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (pass.reached(inputs[i].id())) {
      results[i] = pass.variable_of(inputs[i].id());
    } else if (options.allow_unused) {
      Tensor zeros = backend_->empty(inputs[i].shape(), inputs[i].dtype());
      backend_->fill(zeros, 0.0);
      results[i] = constant(zeros);
    } else {
      throw AutogradError(Kind::unused_input, "Tape::gradients: the outputs do not depend on input " +
                                                  std::to_string(i) + ", " + describe(inputs[i].id()) +
                                                  "; allow_unused = true gives it zeros");
    }
  }
  return results;
}

}  // namespace fp16lab::engine
