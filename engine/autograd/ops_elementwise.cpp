#include <array>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

Tensor binary_value(Op op, BinaryOp verb, const Variable& a, const Variable& b) {
  Backend& backend = a.tape().backend();
  Tensor out = backend.empty(broadcast_shape(op, a.shape(), b.shape()), a.dtype());
  backend.binary(verb, a.tensor(), b.tensor(), out);
  return out;
}

Tensor unary_value(UnaryOp verb, const Variable& x) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(x.shape(), x.dtype());
  backend.unary(verb, x.tensor(), out);
  return out;
}

}  // namespace

Variable add(const Variable& left, const Variable& right) {
  const auto [a, b] = dispatched<2>(Op::add, {left, right});
  return a.tape().record(
      Op::add, binary_value(Op::add, BinaryOp::add, a, b),
      {{a, [shape = a.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }},
       {b, [shape = b.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }}});
}

Variable subtract(const Variable& left, const Variable& right) {
  const auto [a, b] = dispatched<2>(Op::subtract, {left, right});
  return a.tape().record(
      Op::subtract, binary_value(Op::subtract, BinaryOp::subtract, a, b),
      {{a, [shape = a.shape()](const Variable& g, const Variable&) { return sum_to(g, shape); }},
       {b, [shape = b.shape()](const Variable& g, const Variable&) { return negate(sum_to(g, shape)); }}});
}

Variable multiply(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::multiply, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  return a.tape().record(
      Op::multiply, binary_value(Op::multiply, BinaryOp::multiply, a, b),
      {{a, [a, b](const Variable& g, const Variable&) { return sum_to(multiply(g, b), a.shape()); }},
       {b, [a, b](const Variable& g, const Variable&) { return sum_to(multiply(g, a), b.shape()); }}});
}

Variable divide(const Variable& left, const Variable& right) {
  const auto inputs = dispatched<2>(Op::divide, {left, right});
  const Variable a = inputs[0], b = inputs[1];
  // d(a/b)/db = -(a/b)/b, from the quotient that is there already.
  return a.tape().record(
      Op::divide, binary_value(Op::divide, BinaryOp::divide, a, b),
      {{a, [a, b](const Variable& g, const Variable&) { return sum_to(divide(g, b), a.shape()); }},
       {b, [b](const Variable& g, const Variable& quotient) {
          return sum_to(negate(divide(multiply(g, quotient), b)), b.shape());
        }}});
}

Variable select_positive(const Variable& condition, const Variable& value) {
  const auto inputs = dispatched<2>(Op::select_positive, {condition, value});
  const Variable a = inputs[0], b = inputs[1];
  return a.tape().record(
      Op::select_positive, binary_value(Op::select_positive, BinaryOp::select_positive, a, b),
      {{a, {}},
       {b, [a, b](const Variable& g, const Variable&) { return sum_to(select_positive(a, g), b.shape()); }}});
}

Variable scale(const Variable& input, float factor) {
  const auto [x] = dispatched<1>(Op::scale, {input});
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(x.shape(), x.dtype());
  backend.scale(x.tensor(), factor, out);
  return x.tape().record(Op::scale, out,
                         {{x, [factor](const Variable& g, const Variable&) { return scale(g, factor); }}});
}

Variable divide_constant(const Variable& input, float divisor) {
  const auto [x] = dispatched<1>(Op::divide_constant, {input});
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(x.shape(), x.dtype());
  backend.divide(x.tensor(), divisor, out);
  return x.tape().record(
      Op::divide_constant, out,
      {{x, [divisor](const Variable& g, const Variable&) { return divide_constant(g, divisor); }}});
}

Variable negate(const Variable& input) {
  const auto [x] = dispatched<1>(Op::negate, {input});
  return x.tape().record(Op::negate, unary_value(UnaryOp::negate, x),
                         {{x, [](const Variable& g, const Variable&) { return negate(g); }}});
}

Variable relu(const Variable& input) {
  const auto inputs = dispatched<1>(Op::relu, {input});
  const Variable x = inputs[0];
  return x.tape().record(Op::relu, unary_value(UnaryOp::relu, x),
                         {{x, [x](const Variable& g, const Variable&) { return select_positive(x, g); }}});
}

Variable exp(const Variable& input) {
  const auto [x] = dispatched<1>(Op::exp, {input});
  return x.tape().record(Op::exp, unary_value(UnaryOp::exp, x),
                         {{x, [](const Variable& g, const Variable& y) { return multiply(g, y); }}});
}

Variable log(const Variable& input) {
  const auto inputs = dispatched<1>(Op::log, {input});
  const Variable x = inputs[0];
  return x.tape().record(Op::log, unary_value(UnaryOp::log, x),
                         {{x, [x](const Variable& g, const Variable&) { return divide(g, x); }}});
}

Variable square_root(const Variable& input) {
  const auto [x] = dispatched<1>(Op::square_root, {input});
  // Doubling is exact, so the derivative g / (2 sqrt(x)) has one rounding.
  return x.tape().record(
      Op::square_root, unary_value(UnaryOp::square_root, x),
      {{x, [](const Variable& g, const Variable& y) { return divide(g, scale(y, 2.0f)); }}});
}

Variable cast(const Variable& x, DType dtype) {
  x.tape().check(x, name_of(Op::cast));
  if (x.dtype() == dtype) return x;
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(x.shape(), dtype);
  backend.cast(x.tensor(), out, x.tape().probe());
  return cast_as(x, out);
}

Variable cast_as(const Variable& x, const Tensor& value) {
  x.tape().check(x, name_of(Op::cast));
  if (!(value.shape() == x.shape())) reject(Op::cast, value.describe() + " is no cast of " + describe(x));
  return x.tape().record(
      Op::cast, value,
      {{x, [dtype = x.dtype()](const Variable& g, const Variable&) { return cast(g, dtype); }}});
}

Variable detach(const Variable& x) {
  x.tape().check(x, "detach");
  return x.tape().constant(x.tensor());
}

}  // namespace fp16lab::engine::ops
