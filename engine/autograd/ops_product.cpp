#include <array>
#include <cstdint>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

Variable matmul(const Variable& left, const Variable& right, Transpose transpose) {
  const auto inputs = dispatched<2>(Op::matmul, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  const Shape shape_a = a.shape(), shape_b = b.shape();
  const int rank = shape_a.rank();
  if ((rank != 2 && rank != 3) || shape_b.rank() != rank) {
    reject(Op::matmul,
           "needs two matrices, or two batches of matrices, got " + describe(a) + " and " + describe(b));
  }
  if (rank == 3 && shape_a[0] != shape_b[0])
    reject(Op::matmul, "batch extents differ: a " + describe(a) + ", b " + describe(b));
  const std::int64_t m = shape_a[transpose.a ? -1 : -2], k = shape_a[transpose.a ? -2 : -1];
  const std::int64_t k_of_b = shape_b[transpose.b ? -1 : -2], n = shape_b[transpose.b ? -2 : -1];
  if (k != k_of_b) {
    reject(Op::matmul, "inner extents differ: a " + describe(a) + (transpose.a ? " transposed" : "") +
                           ", b " + describe(b) + (transpose.b ? " transposed" : ""));
  }
  Tape& tape = a.tape();
  Tensor out = tape.backend().empty(rank == 2 ? Shape{m, n} : Shape{shape_a[0], m, n}, a.dtype());
  tape.backend().gemm({.a = a.tensor(),
                       .b = b.tensor(),
                       .out = out,
                       .transpose_a = transpose.a,
                       .transpose_b = transpose.b,
                       .probe = tape.probe()});
  // With A' = op(a), B' = op(b) and C = A'B': dA' = G B'^T, dB' = A'^T G. A stored transpose is undone by
  // swapping the factors, (XY)^T = Y^T X^T, so that no transposed copy is ever made. Batches go the same way,
  // matrix by matrix.
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

namespace {

/// All leading axes as one: (..., columns) -> (rows, columns). A matrix stays what it is.
Shape as_rows(const Shape& shape) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return {rows, shape[-1]};
}

Variable in_rows(const Variable& x) { return reshape(x, as_rows(x.shape())); }

}  // namespace

Variable linear(const Variable& input, const Variable& weight, const Variable& bias) {
  Variable x, w, b;
  if (bias.defined()) {
    const auto inputs = dispatched<3>(Op::linear, {input, weight, bias});
    x = inputs[0], w = inputs[1], b = inputs[2];
  } else {
    const auto inputs = dispatched<2>(Op::linear, {input, weight});
    x = inputs[0], w = inputs[1];
  }
  const Shape shape = x.shape();
  if (shape.rank() < 1 || w.shape().rank() != 2 || shape[-1] != w.shape()[1]) {
    reject(Op::linear, "x (..., in) and weight (out, in) do not fit: " + describe(x) + " and " + describe(w));
  }
  const std::int64_t outputs = w.shape()[0];
  if (b.defined() && !(b.shape() == Shape{outputs})) {
    reject(Op::linear, "bias " + describe(b) + " for weight " + describe(w));
  }
  Tape& tape = x.tape();
  const Shape rows = as_rows(shape);
  Tensor out = tape.backend().empty({rows[0], outputs}, x.dtype());
  const Tensor bias_value = b.defined() ? b.tensor() : Tensor();
  tape.backend().gemm({.a = x.tensor().reshaped(rows),
                       .b = w.tensor(),
                       .out = out,
                       .transpose_b = true,
                       .bias = b.defined() ? &bias_value : nullptr,
                       .probe = tape.probe()});
  const Slot slot_x = {
      x, [w, shape](const Variable& g, const Variable&) { return reshape(matmul(in_rows(g), w), shape); },
      SlotLabel::input};
  const Slot slot_w = {w,
                       [x](const Variable& g, const Variable&) {
                         return matmul(in_rows(g), in_rows(x), {.a = true, .b = false});
                       },
                       SlotLabel::weight};
  const Tensor value = out.reshaped(with_extent(shape, shape.rank() - 1, outputs));
  if (!b.defined()) return tape.record(Op::linear, value, {slot_x, slot_w});
  const Slot slot_b = {b, [](const Variable& g, const Variable&) { return sum(in_rows(g), 0); },
                       SlotLabel::bias};
  return tape.record(Op::linear, value, {slot_x, slot_w, slot_b});
}

}  // namespace fp16lab::engine::ops
