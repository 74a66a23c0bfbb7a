// Arithmetic with NumPy broadcasting, and casts.
//
// 16-bit derivatives: one operation is one rounding already (16-bit elementwise verbs compute in FP32 and
// round once); where a derivative takes more, it starts by widening the cotangent (`wide`), on which
// promotion keeps everything in FP32, and ends with one cast.
#include <array>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

Tensor binary_value(Op op, BinaryOp verb, const Variable& a, const Variable& b) {
  return computed(
      a.tape(), broadcast_shape(op, a.shape(), b.shape()), a.dtype(),
      [verb](Backend& backend, Tensor& out, const Tensor& left, const Tensor& right) {
        backend.binary(verb, left, right, out);
      },
      a.tensor(), b.tensor());
}

/// x and a number, which is FP32 whatever x is.
Tensor binary_value(BinaryOp verb, const Variable& x, float number) {
  return computed(
      x.tape(), x.shape(), x.dtype(),
      [verb, number](Backend& backend, Tensor& out, const Tensor& value) {
        backend.binary(verb, value, number, out);
      },
      x.tensor());
}

/// g, widened also if its reduction to the shape of `x` would be a second operation.
Variable before_reduction(const Variable& g, const Variable& x) {
  return g.shape() == x.shape() ? countable(g) : wide(g);
}

/// The end of a derivative with respect to x: summed over stretched axes, rounded to x's dtype.
Variable gradient_of(const Variable& x, const Variable& g) { return cast(sum_to(g, x.shape()), x.dtype()); }

/// 1 where a > b, 1/2 where they are equal, 0 where a < b, 1/2 where either is NaN; a constant. The verb
/// select_positive(c, 1) is 0 where c <= 0 and else (NaN too) 1. The difference of unequal numbers is never
/// zero, because subnormals are kept; that of equal infinities is NaN and gives 1/2 as well.
Variable share_of_greater(const Variable& a, const Variable& b) {
  const GradModeGuard off(a.tape(), false);
  const Variable one = scalar_like(a, 1.0f);
  const Variable difference = subtract(a, b);
  const Variable above = select_positive(difference, one);
  const Variable below = select_positive(negate(difference), one);
  return scale(add(above, subtract(one, below)), 0.5f);
}

Variable share_of_less(const Variable& a, const Variable& b) { return share_of_greater(b, a); }

/// The greater or the lesser of two: each gets its share of the cotangent.
Variable extremum(Op op, BinaryOp verb, const Variable& left, const Variable& right,
                  Variable (*share)(const Variable& of, const Variable& against)) {
  const auto inputs = dispatched<2>(op, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  return recorded(op, binary_value(op, verb, a, b),
                  {{a,
                    [a, b, share](const Variable& g, const Variable&) {
                      return gradient_of(a, multiply(before_reduction(g, a), share(a, b)));
                    }},
                   {b, [a, b, share](const Variable& g, const Variable&) {
                      return gradient_of(b, multiply(before_reduction(g, b), share(b, a)));
                    }}});
}

}  // namespace

Variable add(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::add, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  return recorded(
      Op::add, binary_value(Op::add, BinaryOp::add, a, b),
      {{a, [shape = a.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }},
       {b, [shape = b.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }}});
}

Variable subtract(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::subtract, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  return recorded(
      Op::subtract, binary_value(Op::subtract, BinaryOp::subtract, a, b),
      {{a, [shape = a.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }},
       {b, [shape = b.shape()](const Variable& g, const Variable&) { return negate(sum_to(g, shape)); }}});
}

Variable multiply(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::multiply, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  return recorded(
      Op::multiply, binary_value(Op::multiply, BinaryOp::multiply, a, b),
      {{a, [a, b](const Variable& g,
                  const Variable&) { return gradient_of(a, multiply(before_reduction(g, a), b)); }},
       {b, [a, b](const Variable& g, const Variable&) {
          return gradient_of(b, multiply(before_reduction(g, b), a));
        }}});
}

Variable divide(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::divide, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  // d(a/b)/db = -(a/b)/b, from the quotient that is there already.
  return recorded(Op::divide, binary_value(Op::divide, BinaryOp::divide, a, b),
                  {{a, [a, b](const Variable& g,
                              const Variable&) { return gradient_of(a, divide(before_reduction(g, a), b)); }},
                   {b, [b](const Variable& g, const Variable& quotient) {
                      return gradient_of(b, negate(divide(multiply(wide(g), quotient), b)));
                    }}});
}

Variable maximum(const Variable& left, const Variable& right) {
  return extremum(Op::maximum, BinaryOp::maximum, left, right, share_of_greater);
}

Variable minimum(const Variable& left, const Variable& right) {
  return extremum(Op::minimum, BinaryOp::minimum, left, right, share_of_less);
}

Variable select_positive(const Variable& condition, const Variable& value) {
  const auto inputs = dispatched<2>(Op::select_positive, {condition, value});
  const Variable a = inputs[0], b = inputs[1];
  return recorded(Op::select_positive, binary_value(Op::select_positive, BinaryOp::select_positive, a, b),
                  {{a, {}}, {b, [a, b](const Variable& g, const Variable&) {
                               return gradient_of(b, select_positive(a, before_reduction(g, b)));
                             }}});
}

Variable scale(const Variable& input, float factor) {
  const auto [x] = dispatched<1>(Op::scale, {input});
  return recorded(Op::scale, binary_value(BinaryOp::multiply, x, factor),
                  {{x, [factor](const Variable& g, const Variable&) {
                      return cast(scale(countable(g), factor), g.dtype());
                    }}});
}

Variable divide_constant(const Variable& input, float divisor) {
  const auto [x] = dispatched<1>(Op::divide_constant, {input});
  return recorded(Op::divide_constant, binary_value(BinaryOp::divide, x, divisor),
                  {{x, [divisor](const Variable& g, const Variable&) {
                      return cast(divide_constant(countable(g), divisor), g.dtype());
                    }}});
}

Variable negate(const Variable& input) {
  const auto [x] = dispatched<1>(Op::negate, {input});
  return recorded(Op::negate, unary_value(UnaryOp::negate, x),
                  {{x, [](const Variable& g, const Variable&) { return negate(g); }}});
}

Variable exp(const Variable& input) {
  const auto [x] = dispatched<1>(Op::exp, {input});
  return recorded(
      Op::exp, unary_value(UnaryOp::exp, x),
      {{x, [](const Variable& g, const Variable& y) { return cast(multiply(countable(g), y), g.dtype()); }}});
}

Variable log(const Variable& input) {
  const auto inputs = dispatched<1>(Op::log, {input});
  const Variable x = inputs[0];
  return recorded(
      Op::log, unary_value(UnaryOp::log, x),
      {{x, [x](const Variable& g, const Variable&) { return cast(divide(countable(g), x), g.dtype()); }}});
}

Variable square_root(const Variable& input) {
  const auto [x] = dispatched<1>(Op::square_root, {input});
  // Doubling is exact (a 16-bit root is at most 256), so the derivative g / (2 sqrt(x)) has one rounding.
  return recorded(Op::square_root, unary_value(UnaryOp::square_root, x),
                  {{x, [](const Variable& g, const Variable& y) {
                      return cast(divide(countable(g), scale(y, 2.0f)), g.dtype());
                    }}});
}

Variable cast(const Variable& x, DType dtype) {
  Tape& tape = tape_of(Op::cast, x);
  if (x.dtype() == dtype) return x;
  Tensor out = tape.backend().empty(x.shape(), dtype);
  const bool narrows = size_of(dtype) < size_of(x.dtype());
  if (narrows && tape.rounds_stochastically())
    tape.round_stochastically(x.tensor(), out, tape.probe());
  else
    tape.backend().cast(x.tensor(), out, narrows ? tape.probe() : nullptr);
  return cast_as(x, out);
}

Variable cast_as(const Variable& x, const Tensor& value) {
  Tape& tape = tape_of(Op::cast, x);
  if (!(value.shape() == x.shape())) reject(Op::cast, value.describe() + " is no cast of " + describe(x));
  return tape.record(
      Op::cast, value,
      {{x, [dtype = x.dtype()](const Variable& g, const Variable&) { return cast(g, dtype); }}});
}

Variable detach(const Variable& x) { return tape_of(Op::identity, x).constant(x.tensor()); }

Variable watch(const Variable& x, SlotLabel label) {
  return tape_of(Op::identity, x)
      .record(Op::identity, x.tensor(), {{x, [](const Variable& g, const Variable&) { return g; }, label}});
}

}  // namespace fp16lab::engine::ops
