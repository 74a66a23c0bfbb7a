#include "engine/autograd/custom_op.hpp"

#include <memory>
#include <stdexcept>
#include <utility>

#include "engine/autograd/dispatch.hpp"

namespace fp16lab::engine {

namespace {

std::string title(const CustomOp& op) { return "custom op \"" + op.name + "\""; }

std::string describe_parts(DType dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + " " + shape.to_string();
}

/// One application: the user's functions, and the gradients of the backward call in progress. A node requests
/// the gradient of each input in turn; the user's backward gives all of them at once, and is called once.
class Application {
 public:
  Application(CustomOp op, std::vector<Variable> inputs) : op_(std::move(op)), inputs_(std::move(inputs)) {}

  Variable gradient(std::size_t which, const Variable& cotangent, const Variable& output) {
    if (!is_current(cotangent)) {
      gradients_ = op_.backward(cotangent, inputs_, output);
      check();
      cotangent_ = cotangent;
    }
    return gradients_[which];
  }

 private:
  /// Handles are unique (ids are used again under a new generation only), and temporaries of an earlier pass
  /// are not usable any more.
  bool is_current(const Variable& cotangent) const {
    if (!cotangent_.defined() || cotangent.id() != cotangent_.id() ||
        cotangent.generation() != cotangent_.generation())
      return false;
    const Tape& tape = cotangent.tape();
    for (const Variable& gradient : gradients_) {
      if (gradient.defined() && !tape.usable(gradient)) return false;
    }
    return true;
  }

  void check() const {
    if (gradients_.size() != inputs_.size()) {
      throw std::logic_error(title(op_) + ": backward gave " + std::to_string(gradients_.size()) +
                             " gradients for " + std::to_string(inputs_.size()) + " inputs");
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Variable& gradient = gradients_[i];
      if (!gradient.defined()) continue;
      inputs_[i].tape().check(gradient, title(op_));
      if (gradient.dtype() == inputs_[i].dtype() && gradient.shape() == inputs_[i].shape()) continue;
      throw std::logic_error(title(op_) + ": backward gave " +
                             describe_parts(gradient.dtype(), gradient.shape()) + " as gradient of input " +
                             std::to_string(i) + ", which is " +
                             describe_parts(inputs_[i].dtype(), inputs_[i].shape()));
    }
  }

  CustomOp op_;
  std::vector<Variable> inputs_;
  Variable cotangent_;
  std::vector<Variable> gradients_;
};

/// Under autocast: floating inputs in the op's compute dtype.
void cast_inputs(const CustomOp& op, CastPolicy& policy, std::vector<Variable>& inputs) {
  if (!op.autocast_dtype) {
    throw AutogradError(AutogradError::Kind::custom_op_under_autocast,
                        title(op) +
                            ": applied under autocast, but it does not state in which dtype it computes; set "
                            "CustomOp::autocast_dtype, or switch autocast off around it");
  }
  if (!is_tensor_float(*op.autocast_dtype)) {
    throw std::invalid_argument(title(op) + ": autocast_dtype is " +
                                std::string(name_of(*op.autocast_dtype)) + "; must be f32, f16 or bf16");
  }
  policy.on_custom_op({Op::custom, inputs.front().tape().scope()}, *op.autocast_dtype);
  for (Variable& input : inputs) {
    if (is_tensor_float(input.dtype()) && input.dtype() != *op.autocast_dtype)
      input = policy.cast(input, *op.autocast_dtype);
  }
}

}  // namespace

Variable ops::custom(const CustomOp& op, std::span<const Variable> arguments) {
  if (!op.forward || !op.backward)
    throw std::invalid_argument(title(op) + ": it needs a forward and a backward");
  if (arguments.empty()) throw std::invalid_argument(title(op) + ": it needs at least one input");
  if (!arguments.front().defined()) {
    throw AutogradError(AutogradError::Kind::undefined_variable,
                        title(op) + ": an input is an undefined Variable");
  }
  Tape& tape = arguments.front().tape();
  for (const Variable& argument : arguments) tape.check(argument, title(op));
  tape.note_asked(Op::custom);

  std::vector<Variable> inputs(arguments.begin(), arguments.end());
  if (CastPolicy* const policy = tape.cast_policy()) cast_inputs(op, *policy, inputs);
  std::vector<Tensor> values;
  values.reserve(inputs.size());
  for (const Variable& input : inputs) values.push_back(input.tensor());
  const Tensor value = op.forward(tape.backend(), values);
  if (!value.defined()) throw std::logic_error(title(op) + ": forward gave an undefined tensor");

  const auto application = std::make_shared<Application>(op, inputs);
  std::vector<Slot> slots;
  slots.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    slots.push_back({inputs[i], [application, i](const Variable& cotangent, const Variable& output) {
                       return application->gradient(i, cotangent, output);
                     }});
  }
  return tape.record(Op::custom, value, slots);
}

}  // namespace fp16lab::engine
