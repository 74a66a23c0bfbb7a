// Moving elements: reshapes, permutations, slices, concatenations. No arithmetic; any dtype but for concat.
// It still asks a cast policy about floating ones: the frameworks' lists cover these ops too.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

/// Axes of a permutation, and its inverse. A value type, so that a vjp can hold it.
struct Permutation {
  std::array<int, Shape::max_rank> axes{};
  std::size_t rank = 0;

  std::span<const int> span() const { return {axes.data(), rank}; }
  Permutation inverse() const {
    Permutation result{.rank = rank};
    for (std::size_t i = 0; i < rank; ++i)
      result.axes[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
    return result;
  }
};

std::string list_of(std::span<const int> axes) {
  std::string text = "(";
  for (const int axis : axes) text += (text.size() > 1 ? ", " : "") + std::to_string(axis);
  return text + ")";
}

Permutation permutation(const Variable& x, std::span<const int> axes) {
  const auto rank = static_cast<std::size_t>(x.shape().rank());
  Permutation result{.rank = rank};
  std::array<bool, Shape::max_rank> seen{};
  bool fits = axes.size() == rank;
  for (std::size_t i = 0; fits && i < rank; ++i) {
    const int axis = axes[i] < 0 ? axes[i] + static_cast<int>(rank) : axes[i];
    fits = axis >= 0 && axis < static_cast<int>(rank) && !seen[static_cast<std::size_t>(axis)];
    if (!fits) break;
    seen[static_cast<std::size_t>(axis)] = true;
    result.axes[i] = axis;
  }
  if (!fits) reject(Op::permute, list_of(axes) + " is no permutation of the axes of " + describe(x));
  return result;
}

Variable permute_by(const Variable& x, const Permutation& permutation) {
  Tape& tape = x.tape();
  const Shape from = x.shape();
  ShapeBuilder extents;
  for (const int axis : permutation.span()) extents.push(from[axis]);
  Tensor out = tape.backend().empty(extents.shape(), x.dtype());
  tape.backend().permute(x.tensor(), permutation.span(), out);
  return recorded(Op::permute, out,
                  {{x, [inverse = permutation.inverse()](const Variable& g, const Variable&) {
                      return permute_by(g, inverse);
                    }}});
}

void require_range(Op op, const Variable& x, int axis, std::int64_t begin, std::int64_t extent,
                   std::int64_t whole) {
  if (begin >= 0 && extent >= 0 && begin <= whole - extent) return;
  reject(op, std::to_string(extent) + " from " + std::to_string(begin) + " on does not lie within [0, " +
                 std::to_string(whole) + ") along axis " + std::to_string(axis) + "; x is " + describe(x));
}

}  // namespace

Variable reshape(const Variable& input, const Shape& shape) {
  const Variable x = dispatched_move(Op::reshape, input);
  if (x.shape() == shape) return x;
  if (x.shape().element_count() != shape.element_count()) {
    reject(Op::reshape, describe(x) + " has no shape " + shape.to_string());
  }
  return recorded(Op::reshape, x.tensor().reshaped(shape),
                  {{x, [old = x.shape()](const Variable& g, const Variable&) { return reshape(g, old); }}});
}

Variable broadcast_to(const Variable& input, const Shape& shape) {
  const Variable x = dispatched_move(Op::broadcast_to, input);
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
  return recorded(Op::broadcast_to, out,
                  {{x, [old = x.shape()](const Variable& g, const Variable&) { return sum_to(g, old); }}});
}

Variable permute(const Variable& input, std::span<const int> axes) {
  const Variable x = dispatched_move(Op::permute, input);
  const Permutation order = permutation(x, axes);
  if (std::is_sorted(order.span().begin(), order.span().end())) return x;
  return permute_by(x, order);
}

Variable transpose(const Variable& input, int axis_a, int axis_b) {
  const Variable x = dispatched_move(Op::permute, input);
  Permutation order{.rank = static_cast<std::size_t>(x.shape().rank())};
  for (std::size_t i = 0; i < order.rank; ++i) order.axes[i] = static_cast<int>(i);
  const auto a = static_cast<std::size_t>(normalized_axis(Op::permute, x, axis_a));
  const auto b = static_cast<std::size_t>(normalized_axis(Op::permute, x, axis_b));
  if (a == b) return x;
  std::swap(order.axes[a], order.axes[b]);
  return permute_by(x, order);
}

Variable slice(const Variable& input, int axis, std::int64_t begin, std::int64_t extent) {
  const Variable x = dispatched_move(Op::slice, input);
  const int at = normalized_axis(Op::slice, x, axis);
  const std::int64_t whole = x.shape()[at];
  require_range(Op::slice, x, at, begin, extent, whole);
  if (extent == whole) return x;
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(with_extent(x.shape(), at, extent), x.dtype());
  backend.slice(x.tensor(), at, begin, out);
  return recorded(Op::slice, out, {{x, [at, begin, whole](const Variable& g, const Variable&) {
                                      return place_slice(g, at, begin, whole);
                                    }}});
}

Variable place_slice(const Variable& input, int axis, std::int64_t begin, std::int64_t extent) {
  const Variable x = dispatched_move(Op::place_slice, input);
  const int at = normalized_axis(Op::place_slice, x, axis);
  const std::int64_t part = x.shape()[at];
  require_range(Op::place_slice, x, at, begin, part, extent);
  if (extent == part) return x;
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(with_extent(x.shape(), at, extent), x.dtype());
  backend.fill(out, 0.0);
  backend.insert(x.tensor(), at, begin, out);
  return recorded(
      Op::place_slice, out,
      {{x, [at, begin, part](const Variable& g, const Variable&) { return slice(g, at, begin, part); }}});
}

Variable concat(std::span<const Variable> parts, int axis) {
  if (parts.empty()) reject(Op::concat, "there is nothing to concatenate");
  const DType dtype = dispatched_dtype(Op::concat, parts);
  const Variable& first = parts.front();
  const int at = normalized_axis(Op::concat, first, axis);
  Extent extent = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Shape shape = parts[i].shape();
    if (shape.rank() != first.shape().rank() ||
        !(with_extent(shape, at, 0) == with_extent(first.shape(), at, 0))) {
      reject(Op::concat, "part " + std::to_string(i) + " is " + describe(parts[i]) + ", part 0 is " +
                             describe(first) + ": they may differ along axis " + std::to_string(at) +
                             " only");
    }
    extent = extent + shape[at];
  }
  Tape& tape = first.tape();
  Tensor out = tape.backend().empty(with_extent(first.shape(), at, extent.value()), dtype);
  std::vector<Slot> slots = tape.take_slots();
  std::int64_t begin = 0;
  for (const Variable& given : parts) {
    const Variable part = dispatched_to(dtype, given);
    const std::int64_t length = part.shape()[at];
    tape.backend().insert(part.tensor(), at, begin, out);
    slots.push_back({part, [at, begin, length](const Variable& g, const Variable&) {
                       return slice(g, at, begin, length);
                     }});
    begin += length;
  }
  return handed_on(Op::concat, tape.record(Op::concat, out, std::move(slots)));
}

namespace {

void split_into(const Variable& x, int axis, std::int64_t extent, std::span<Variable> parts) {
  if (parts.size() == 1) {
    parts.front() = x;
    return;
  }
  const std::size_t half = parts.size() / 2;
  const std::int64_t left = static_cast<std::int64_t>(half) * extent;
  split_into(slice(x, axis, 0, left), axis, extent, parts.first(half));
  split_into(slice(x, axis, left, x.shape()[axis] - left), axis, extent, parts.subspan(half));
}

}  // namespace

void split(const Variable& x, int axis, std::span<Variable> parts) {
  tape_of(Op::slice, x);
  const int at = normalized_axis(Op::slice, x, axis);
  const std::int64_t extent = x.shape()[at];
  const auto count = static_cast<std::int64_t>(parts.size());
  if (count < 1 || extent % count != 0) {
    reject(Op::slice, "axis " + std::to_string(at) + " of " + describe(x) + " has no " +
                          std::to_string(count) + " equal parts");
  }
  const Variable whole = x;  // which may be one of the parts
  split_into(whole, at, extent / count, parts);
}

}  // namespace fp16lab::engine::ops
