// Matrix products: matmul, and linear as one verb (torch, MindSpore) or as matmul and add (Paddle).
#include <array>
#include <cstdint>
#include <utility>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/autograd/ops/product.hpp"

namespace fp16lab::engine::ops {

namespace {

/// Of a layer's three products.
struct LayerFormats {
  Formats forward{}, dx{}, dw{};
};

LayerFormats announced_as(Op op, const Variable& x, const ProductShape& shape, bool of_layer) {
  const Tape& tape = x.tape();
  CastPolicy* const policy = tape.cast_policy();
  if (policy == nullptr) return {};
  const OpSite site{op, tape.scope()};
  policy->on_product(site, shape, x.dtype());
  const ProductFormats formats = policy->product_formats(site, of_layer);
  if (x.dtype() == DType::f32) {
    const Formats tf32{{}, {}, formats.tf32};
    return {tf32, tf32, tf32};
  }
  const std::optional<DType> gradient = formats.dx.a.fp8;
  if (formats.dx.a.quantizer != nullptr && tape.context().shards.total > 1)
    reject(op, "operands with scales for blocks have no rule for parallel.shards above 1");
  return {{formats.forward, gradient}, {formats.dx, gradient}, {formats.dw, gradient}};
}

}  // namespace

Formats announced(Op op, const Variable& a, const ProductShape& shape) {
  return announced_as(op, a, shape, false).forward;
}

namespace {

/// What the quantizer of an operand takes in its next product.
QuantizerCall quantizer_call(Tape& tape, const OperandRounding& rounding, OperandRecord* record) {
  QuantizerCall call;
  if (rounding.stochastic) {
    call.random = tape.next_rounding("operand");
    call.step = &tape.context().step;
  }
  if (record == nullptr) return call;
  if (record->history != nullptr) call.scale = record->history->scale();
  if (tape.context().training) call.loss = &record->loss;
  return call;
}

/// (rows, columns) of op(x), without the batch axis.
struct Extents {
  std::int64_t rows, columns;
};
Extents extents_of(const Variable& x, bool transposed) {
  const Shape shape = x.shape();
  return transposed ? Extents{shape[-1], shape[-2]} : Extents{shape[-2], shape[-1]};
}

/// The gemm of 16-bit or FP32 matrices, into a new tensor of their dtype. `bias` may be undefined.
Tensor multiplied(Tape& tape, const Tensor& a, const Tensor& b, const Tensor& bias, Transpose transpose,
                  const Formats& formats, const Shape& extents) {
  QuantizerCall of_a = quantizer_call(tape, formats.a, formats.a_record);
  QuantizerCall of_b = quantizer_call(tape, formats.b, formats.b_record);
  const auto with = [&](const QuantizerCall& left, const QuantizerCall& right) {
    return [&backend = tape.backend(), a, b, bias, transpose, formats, left, right](Tensor& out,
                                                                                    CastProbe* probe) {
      backend.gemm({.a = a,
                    .b = b,
                    .out = out,
                    .transpose_a = transpose.a,
                    .transpose_b = transpose.b,
                    .bias = bias.defined() ? &bias : nullptr,
                    .probe = probe,
                    .a_format = formats.a,
                    .b_format = formats.b,
                    .a_quantizer = left,
                    .b_quantizer = right,
                    .tf32 = formats.tf32});
    };
  };
  Tensor out = rounded_result(tape, extents, a.dtype(), with(of_a, of_b));
  of_a.loss = of_b.loss = nullptr;  // counted once
  offer_unrounded(tape, out, with(of_a, of_b));
  return out;
}

}  // namespace

Variable product(const Variable& a, const Variable& b, Transpose transpose, const Formats& formats,
                 std::int64_t shared_over_steps) {
  Tape& tape = a.tape();
  const Shape shape = a.shape();
  const std::int64_t m = extents_of(a, transpose.a).rows, n = extents_of(b, transpose.b).columns;
  const Tensor out = multiplied(tape, a.tensor(), b.tensor(), {}, transpose, formats,
                                shape.rank() == 2 ? Shape{m, n} : Shape{shape[0], m, n});
  // With A' = op(a), B' = op(b) and C = A'B': dA' = G B'^T, dB' = A'^T G. A stored transpose is undone by
  // swapping the factors, (XY)^T = Y^T X^T, so that no transposed copy is ever made. Batches go the same way,
  // matrix by matrix.
  const auto gradient_a = [b, transpose, formats, shared_over_steps](const Variable& g, const Variable&) {
    return transpose.a
               ? product(b, g, {.a = transpose.b, .b = true}, formats.with(formats.b, formats.of_gradient()))
               : product(g, b, {.a = false, .b = !transpose.b},
                         formats.with(formats.of_gradient(), formats.b), shared_over_steps);
  };
  const auto gradient_b = [a, transpose, formats, shared_over_steps](const Variable& g, const Variable&) {
    const Variable of_a = shared_over_steps > 0 ? by_shard(a, shared_over_steps) : a;
    const Variable of_g = shared_over_steps > 0 ? by_shard(g, shared_over_steps) : g;
    return transpose.b ? product(of_g, of_a, {.a = true, .b = transpose.a},
                                 formats.with(formats.of_gradient(), formats.a))
                       : product(of_a, of_g, {.a = !transpose.a, .b = false},
                                 formats.with(formats.a, formats.of_gradient()));
  };
  return tape.record(Op::matmul, out,
                     {{a, gradient_a, SlotLabel::none, formats.gradient},
                      {b, gradient_b, SlotLabel::none, formats.gradient}});
}

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
  const Extents of_a = extents_of(a, transpose.a), of_b = extents_of(b, transpose.b);
  if (of_a.columns != of_b.rows) {
    reject(Op::matmul, "inner extents differ: a " + describe(a) + (transpose.a ? " transposed" : "") +
                           ", b " + describe(b) + (transpose.b ? " transposed" : ""));
  }
  const Formats formats = announced(Op::matmul, a, {.m = of_a.rows, .n = of_b.columns, .k = of_a.columns});
  return handed_on(Op::matmul, product(a, b, transpose, formats));
}

namespace {

/// All leading axes as one: (..., columns) -> (rows, columns). A matrix is returned unchanged.
Shape as_rows(const Shape& shape) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return {rows, shape[-1]};
}

Variable in_rows(const Variable& x) { return reshape(x, as_rows(x.shape())); }

}  // namespace

Variable linear_product(Op op, const Variable& x, const Variable& w, const Variable& b,
                        std::optional<Formats> given) {
  const Shape shape = x.shape();
  if (shape.rank() < 1 || w.shape().rank() != 2 || shape[-1] != w.shape()[1]) {
    reject(Op::linear, "x (..., in) and weight (out, in) do not fit: " + describe(x) + " and " + describe(w));
  }
  const std::int64_t outputs = w.shape()[0];
  if (b.defined() && !(b.shape() == Shape{outputs})) {
    reject(Op::linear, "bias " + describe(b) + " for weight " + describe(w));
  }
  Tape& tape = x.tape();
  const std::int64_t steps = tape.row_steps();
  const Shape rows = as_rows(shape);
  const LayerFormats formats = given.has_value()
                                   ? LayerFormats{*given, given->with(given->of_gradient(), given->b),
                                                  given->with(given->of_gradient(), given->a)}
                                   : announced_as(op, x, {.m = rows[0], .n = outputs, .k = rows[1]}, true);
  const Tensor out =
      multiplied(tape, x.tensor().reshaped(rows), w.tensor(), b.defined() ? b.tensor() : Tensor(),
                 {.a = false, .b = true}, formats.forward, {rows[0], outputs});
  const std::optional<DType> fp8 = formats.forward.gradient;
  const Slot slot_x = {x,
                       [w, shape, dx = formats.dx, steps](const Variable& g, const Variable&) {
                         return reshape(product(in_rows(g), w, {}, dx, steps), shape);
                       },
                       SlotLabel::input, fp8};
  const Slot slot_w = {w,
                       [x, dw = formats.dw, steps](const Variable& g, const Variable&) {
                         return product(by_shard(in_rows(g), steps), by_shard(in_rows(x), steps),
                                        {.a = true, .b = false}, dw);
                       },
                       SlotLabel::weight, fp8};
  const Tensor value = out.reshaped(with_extent(shape, shape.rank() - 1, outputs));
  if (!b.defined()) return recorded(op, value, {slot_x, slot_w});
  const Slot slot_b = {b,
                       [steps](const Variable& g, const Variable&) { return sum_of_rows(in_rows(g), steps); },
                       SlotLabel::bias};
  return recorded(op, value, {slot_x, slot_w, slot_b});
}

Variable add_bias(const Variable& product, const Variable& bias, const Shape& as, Vjp of_bias) {
  const auto inputs = dispatched<2>(Op::add, {product, bias});
  const Variable y = inputs[0], b = inputs[1];
  Tape& tape = y.tape();
  const Tensor bias_value = b.tensor().reshaped(as);
  Tensor out = y.tensor();
  tape.drop_value(y);
  tape.drop_value(product);  // y, or what a policy has cast to y
  if (out.owns_memory_alone()) {
    tape.backend().binary(BinaryOp::add, out, bias_value, out);
  } else {
    Tensor sum = tape.backend().empty(out.shape(), out.dtype());
    tape.backend().binary(BinaryOp::add, out, bias_value, sum);
    out = std::move(sum);
  }
  const Slot slot_y = {y, [](const Variable& g, const Variable&) { return g; }};
  const Slot slot_b = {b, std::move(of_bias), SlotLabel::bias};
  return recorded(Op::add, out, {slot_y, slot_b});
}

namespace {

/// A list may name only one of these two ops: Paddle's matmul_v2 and elementwise_add; MindSpore's MatMul and
/// BiasAdd.
Variable unfused_linear(const Variable& input, const Variable& weight, const Variable& bias) {
  const auto inputs = dispatched<2>(Op::matmul, {input, weight});
  const Variable y = linear_product(Op::matmul, inputs[0], inputs[1], {});
  if (!bias.defined()) return y;
  if (!(bias.shape() == Shape{y.shape()[-1]}))
    reject(Op::linear, "bias " + describe(bias) + " for weight " + describe(weight));
  return add_bias(y, bias, bias.shape(), [steps = y.tape().row_steps()](const Variable& g, const Variable&) {
    return sum_of_rows(in_rows(g), steps);
  });
}

}  // namespace

Variable linear(const Variable& input, const Variable& weight, const Variable& bias) {
  const CastPolicy* const policy = tape_of(Op::linear, input).cast_policy();
  if (policy != nullptr && !policy->fuses_bias()) return unfused_linear(input, weight, bias);
  if (!bias.defined()) {
    const auto inputs = dispatched<2>(Op::linear, {input, weight});
    return linear_product(Op::linear, inputs[0], inputs[1], {});
  }
  const auto inputs = dispatched<3>(Op::linear, {input, weight, bias});
  return linear_product(Op::linear, inputs[0], inputs[1], inputs[2]);
}

}  // namespace fp16lab::engine::ops
