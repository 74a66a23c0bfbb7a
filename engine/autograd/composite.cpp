#include "engine/autograd/composite.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::composite {

namespace {

/// The node through which `input` enters: `value` is what the op was dispatched to.
Variable entered(const Variable& input, const Tensor& value, SlotLabel label) {
  Tape& tape = input.tape();
  // A policy has rounded the input on the way: its gradient takes the same way back.
  if (value.dtype() != DType::f32 && value.dtype() != input.dtype())
    return entered(ops::cast_as(input, value), value, label);
  const bool same = input.dtype() == DType::f32;
  if (same && label == SlotLabel::none) return input;
  Tensor wide = value;
  if (value.dtype() != DType::f32) {
    wide = tape.backend().empty(value.shape(), DType::f32);
    tape.backend().cast(value, wide);
  }
  return tape.record(
      same ? Op::identity : Op::cast, wide,
      {{input, [dtype = input.dtype()](const Variable& g, const Variable&) { return ops::cast(g, dtype); },
        label}});
}

}  // namespace

DType enter(Op op, std::span<Variable> inputs, std::span<const SlotLabel> labels) {
  std::array<Variable, 3> dispatched{};  // x, weight and bias: no composite has more
  if (inputs.empty() || inputs.size() > dispatched.size() || inputs.size() != labels.size()) {
    throw std::logic_error(std::string(name_of(op)) + ": " + std::to_string(inputs.size()) + " inputs with " +
                           std::to_string(labels.size()) + " labels");
  }
  std::copy(inputs.begin(), inputs.end(), dispatched.begin());
  const std::span<Variable> values(dispatched.data(), inputs.size());
  {
    // Off the graph: the nodes recorded below take the place of the casts.
    const GradModeGuard off(tape_of(op, inputs.front()), false);
    dispatch(op, values);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = entered(inputs[i], values[i].tensor(), labels[i]);
  return values.front().dtype();
}

Variable enter_parameter(Op op, const Variable& input, SlotLabel label) {
  tape_of(op, input);
  if (!is_tensor_float(input.dtype()))
    reject(op, "a parameter is " + describe(input) + "; f32, f16 or bf16 is needed");
  return entered(input, input.tensor(), label);
}

Tensor unary(Backend& backend, UnaryOp op, const Tensor& x) {
  Tensor out = backend.empty(x.shape(), DType::f32);
  backend.unary(op, x, out);
  return out;
}

Tensor binary(Backend& backend, BinaryOp op, const Tensor& a, const Tensor& b) {
  Tensor out = backend.empty(a.element_count() < b.element_count() ? b.shape() : a.shape(), DType::f32);
  backend.binary(op, a, b, out);
  return out;
}

Tensor scalar(Backend& backend, float value) {
  Tensor out = backend.empty(Shape{}, DType::f32);
  backend.fill(out, static_cast<double>(value));
  return out;
}

Tensor divide(Backend& backend, const Tensor& x, float divisor) {
  Tensor out = backend.empty(x.shape(), DType::f32);
  backend.divide(x, divisor, out);
  return out;
}

Tensor reduce(Backend& backend, ReduceOp op, const Tensor& x, int axis) {
  Tensor out = backend.empty(reduced_shape(x.shape(), axis, true), DType::f32);
  backend.reduce(op, x, axis, out);
  return out;
}

}  // namespace fp16lab::engine::composite
