#include <array>
#include <vector>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

Tensor reduce_value(ReduceOp verb, const Variable& x, int axis, const Shape& out_shape) {
  Tape& tape = x.tape();
  Tensor out = tape.backend().empty(out_shape, x.dtype());
  tape.backend().reduce(verb, x.tensor(), axis, out, tape.probe());
  return out;
}

Variable constant_of(const Variable& like, const Shape& shape, double value) {
  Backend& backend = like.tape().backend();
  Tensor out = backend.empty(shape, like.dtype());
  backend.fill(out, value);
  return like.tape().constant(out);
}

/// 1 where x equals its maximum, else 0; a constant. With d = maximum - x >= 0 (zero exactly where they are
/// equal, because subnormals are kept), select_positive(d, 1) is 1 where x is smaller.
Variable maximum_mask(const Variable& x, const Variable& maximum) {
  const GradModeGuard off(x.tape(), false);
  const Variable one = constant_of(x, Shape{}, 1.0);
  return subtract(one, select_positive(subtract(maximum, x), one));
}

Variable flatten(const Variable& x) { return reshape(x, Shape{x.shape().element_count()}); }

}  // namespace

Variable sum(const Variable& x) { return sum(flatten(x), 0); }

Variable sum(const Variable& input, int axis, bool keep_axis) {
  const auto inputs = dispatched<1>(Op::sum, {input});
  const Variable x = inputs[0];
  const int at = normalized_axis(Op::sum, x, axis);
  const Shape kept = reduced_shape(x.shape(), at, true);
  return x.tape().record(Op::sum, reduce_value(ReduceOp::sum, x, at, reduced_shape(x.shape(), at, keep_axis)),
                         {{x, [kept, shape = x.shape()](const Variable& g, const Variable&) {
                             return broadcast_to(reshape(g, kept), shape);
                           }}});
}

Variable max(const Variable& x) { return max(flatten(x), 0); }

Variable max(const Variable& input, int axis, bool keep_axis) {
  const auto inputs = dispatched<1>(Op::max, {input});
  const Variable x = inputs[0];
  const int at = normalized_axis(Op::max, x, axis);
  const Shape kept = reduced_shape(x.shape(), at, true);
  return x.tape().record(Op::max, reduce_value(ReduceOp::max, x, at, reduced_shape(x.shape(), at, keep_axis)),
                         {{x, [x, at, kept](const Variable& g, const Variable& y) {
                             const Variable mask = maximum_mask(x, reshape(detach(y), kept));
                             const Variable share = divide(mask, sum(mask, at, true));
                             return multiply(reshape(g, kept), share);
                           }}});
}

Variable mean(const Variable& x) { return mean(flatten(x), 0); }

Variable mean(const Variable& input, int axis, bool keep_axis) {
  const auto inputs = dispatched<1>(Op::mean, {input});
  const Variable x = inputs[0];
  const int at = normalized_axis(Op::mean, x, axis);
  return divide_constant(sum(x, at, keep_axis), static_cast<float>(x.shape()[at]));
}

Variable reshape(const Variable& x, const Shape& shape) {
  x.tape().check(x, name_of(Op::reshape));
  if (x.shape() == shape) return x;
  if (x.shape().element_count() != shape.element_count()) {
    reject(Op::reshape, describe(x) + " has no shape " + shape.to_string());
  }
  return x.tape().record(
      Op::reshape, x.tensor().reshaped(shape),
      {{x, [old = x.shape()](const Variable& g, const Variable&) { return reshape(g, old); }}});
}

Variable broadcast_to(const Variable& x, const Shape& shape) {
  x.tape().check(x, name_of(Op::broadcast_to));
  if (x.shape() == shape) return x;
  if (!(broadcast_shape(Op::broadcast_to, x.shape(), shape) == shape)) {
    reject(Op::broadcast_to, describe(x) + " does not broadcast to " + shape.to_string());
  }
  // Multiplication by one keeps every value and the sign of zero (adding +0 would not).
  Backend& backend = x.tape().backend();
  Tensor one = backend.empty(Shape{}, x.dtype());
  backend.fill(one, 1.0);
  Tensor out = backend.empty(shape, x.dtype());
  backend.binary(BinaryOp::multiply, x.tensor(), one, out);
  return x.tape().record(
      Op::broadcast_to, out,
      {{x, [old = x.shape()](const Variable& g, const Variable&) { return sum_to(g, old); }}});
}

Variable sum_to(const Variable& x, const Shape& shape) {
  x.tape().check(x, name_of(Op::sum));
  if (x.shape() == shape) return x;
  if (!(broadcast_shape(Op::sum, shape, x.shape()) == x.shape())) {
    reject(Op::sum, "cannot reduce " + describe(x) + " to " + shape.to_string());
  }
  // Leading axes that `shape` lacks are adjacent in memory: one reduction. Stretched axes follow, innermost
  // first.
  const int extra = x.shape().rank() - shape.rank();
  std::vector<int> stretched;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1 && x.shape()[axis + extra] != 1) stretched.push_back(axis);
  }
  const std::size_t reductions = stretched.size() + (extra > 0 ? 1 : 0);
  Variable result = reductions > 1 ? cast(x, DType::f32) : x;  // one rounding to 16 bits, at the end
  if (extra > 0) {
    std::vector<std::int64_t> extents{1};
    for (int axis = 0; axis < x.shape().rank(); ++axis) {
      if (axis < extra) {
        extents[0] *= x.shape()[axis];
      } else {
        extents.push_back(x.shape()[axis]);
      }
    }
    result = sum(reshape(result, Shape(std::span<const std::int64_t>(extents))), 0);
  }
  for (auto axis = stretched.rbegin(); axis != stretched.rend(); ++axis) result = sum(result, *axis, true);
  return cast(reshape(result, shape), x.dtype());
}

Variable pick(const Variable& input, const Tensor& index) {
  const auto inputs = dispatched<1>(Op::pick, {input});
  const Variable x = inputs[0];
  if (x.shape().rank() != 2 || index.dtype() != DType::i32 || !(index.shape() == Shape{x.shape()[0]})) {
    reject(Op::pick,
           "x (rows, columns) and index i32 (rows) do not fit: " + describe(x) + " and " + index.describe());
  }
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty({x.shape()[0]}, x.dtype());
  backend.pick(x.tensor(), index, out);
  return x.tape().record(Op::pick, out,
                         {{x, [index, columns = x.shape()[1]](const Variable& g, const Variable&) {
                             return place(g, index, columns);
                           }}});
}

Variable place(const Variable& input, const Tensor& index, std::int64_t columns) {
  const auto inputs = dispatched<1>(Op::place, {input});
  const Variable x = inputs[0];
  if (x.shape().rank() != 1 || index.dtype() != DType::i32 || !(index.shape() == x.shape())) {
    reject(Op::place,
           "x (rows) and index i32 (rows) do not fit: " + describe(x) + " and " + index.describe());
  }
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty({x.shape()[0], columns}, x.dtype());
  backend.place(x.tensor(), index, out);
  return x.tape().record(Op::place, out,
                         {{x, [index](const Variable& g, const Variable&) { return pick(g, index); }}});
}

}  // namespace fp16lab::engine::ops
