#include <array>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

Variable matmul(const Variable& left, const Variable& right, Transpose transpose) {
  const auto inputs = dispatched<2>(Op::matmul, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  if (a.shape().rank() != 2 || b.shape().rank() != 2) {
    reject(Op::matmul, "needs two matrices, got " + describe(a) + " and " + describe(b));
  }
  const std::int64_t m = a.shape()[transpose.a ? 1 : 0], k = a.shape()[transpose.a ? 0 : 1];
  const std::int64_t k_of_b = b.shape()[transpose.b ? 1 : 0], n = b.shape()[transpose.b ? 0 : 1];
  if (k != k_of_b) {
    reject(Op::matmul, "inner extents differ: a " + describe(a) + (transpose.a ? " transposed" : "") +
                           ", b " + describe(b) + (transpose.b ? " transposed" : ""));
  }
  Tape& tape = a.tape();
  Tensor out = tape.backend().empty({m, n}, a.dtype());
  tape.backend().gemm({.a = a.tensor(),
                       .b = b.tensor(),
                       .out = out,
                       .transpose_a = transpose.a,
                       .transpose_b = transpose.b,
                       .probe = tape.probe()});
  // With A' = op(a), B' = op(b) and C = A'B': dA' = G B'^T, dB' = A'^T G. A stored transpose is undone by
  // swapping the factors, (XY)^T = Y^T X^T, so that no transposed copy is ever made.
  const auto gradient_a = [b, transpose](const Variable& g, const Variable&) {
    return transpose.a ? matmul(b, g, {.a = transpose.b, .b = true})
                       : matmul(g, b, {.a = false, .b = !transpose.b});
  };
  const auto gradient_b = [a, transpose](const Variable& g, const Variable&) {
    return transpose.b ? matmul(g, a, {.a = true, .b = transpose.a})
                       : matmul(a, g, {.a = !transpose.a, .b = false});
  };
  return tape.record(Op::matmul, out, {{a, gradient_a}, {b, gradient_b}});
}

Variable linear(const Variable& input, const Variable& weight, const Variable& bias) {
  Variable x, w, b;
  if (bias.defined()) {
    const auto inputs = dispatched<3>(Op::linear, {input, weight, bias});
    x = inputs[0], w = inputs[1], b = inputs[2];
  } else {
    const auto inputs = dispatched<2>(Op::linear, {input, weight});
    x = inputs[0], w = inputs[1];
  }
  if (x.shape().rank() != 2 || w.shape().rank() != 2 || x.shape()[1] != w.shape()[1]) {
    reject(Op::linear,
           "x (batch, in) and weight (out, in) do not fit: " + describe(x) + " and " + describe(w));
  }
  const std::int64_t outputs = w.shape()[0];
  if (b.defined() && !(b.shape() == Shape{outputs})) {
    reject(Op::linear, "bias " + describe(b) + " for weight " + describe(w));
  }
  Tape& tape = x.tape();
  Tensor out = tape.backend().empty({x.shape()[0], outputs}, x.dtype());
  const Tensor bias_value = b.defined() ? b.tensor() : Tensor();
  tape.backend().gemm({.a = x.tensor(),
                       .b = w.tensor(),
                       .out = out,
                       .transpose_b = true,
                       .bias = b.defined() ? &bias_value : nullptr,
                       .probe = tape.probe()});
  const Slot slot_x = {x, [w](const Variable& g, const Variable&) { return matmul(g, w); }, SlotLabel::input};
  const Slot slot_w = {
      w, [x](const Variable& g, const Variable&) { return matmul(g, x, {.a = true, .b = false}); },
      SlotLabel::weight};
  if (!b.defined()) return tape.record(Op::linear, out, {slot_x, slot_w});
  const Slot slot_b = {b, [](const Variable& g, const Variable&) { return sum(g, 0); }, SlotLabel::bias};
  return tape.record(Op::linear, out, {slot_x, slot_w, slot_b});
}

}  // namespace fp16lab::engine::ops
