// Sums, means and maxima. A reduction over several axes is one TREE (numerics/arithmetic/tree_reduce.hpp)
// over the elements in row-major order of those axes, never a sum of sums: axes that are not adjacent in
// memory are permuted to the end first.
#include <algorithm>
#include <array>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

/// A set of axes of one shape.
using AxisSet = std::array<bool, Shape::max_rank>;

Shape without(const Shape& shape, const AxisSet& axes, bool keep_axes) {
  ShapeBuilder extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!axes[static_cast<std::size_t>(axis)]) {
      extents.push(shape[axis]);
    } else if (keep_axes) {
      extents.push(1);
    }
  }
  return extents.shape();
}

std::int64_t count_of(const Shape& shape, const AxisSet& axes) {
  std::int64_t count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axes[static_cast<std::size_t>(axis)]) count *= shape[axis];
  }
  return count;
}

AxisSet all_axes(const Shape& shape) {
  AxisSet axes{};
  std::fill_n(axes.begin(), shape.rank(), true);
  return axes;
}

/// Joins adjacent axes of the same kind: (kept, reduced, kept) if the reduced ones are adjacent (axes of
/// extent 1 never separate), else more.
struct Runs {
  std::int64_t outer = 1, reduced = 1, inner = 1;
  bool together = true;
};
Runs runs_of(const Shape& shape, const AxisSet& axes) {
  Runs runs;
  bool entered = false, left = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t extent = shape[axis];
    if (extent == 1) continue;
    if (axes[static_cast<std::size_t>(axis)]) {
      if (left) runs.together = false;
      entered = true;
      runs.reduced *= extent;
    } else if (entered) {
      left = true;
      runs.inner *= extent;
    } else {
      runs.outer *= extent;
    }
  }
  return runs;
}

/// x with the reduced axes at the end, in their order.
Tensor reduced_axes_last(Backend& backend, const Tensor& x, const AxisSet& axes) {
  std::array<int, Shape::max_rank> order{};
  std::size_t count = 0;
  for (const bool reduced : {false, true}) {
    for (int axis = 0; axis < x.shape().rank(); ++axis) {
      if (axes[static_cast<std::size_t>(axis)] == reduced) order[count++] = axis;
    }
  }
  ShapeBuilder extents;
  for (std::size_t i = 0; i < count; ++i) extents.push(x.shape()[order[i]]);
  Tensor out = backend.empty(extents.shape(), x.dtype());
  backend.permute(x, std::span<const int>(order.data(), count), out);
  return out;
}

Tensor reduce_value(ReduceOp verb, const Variable& x, const AxisSet& axes, const Shape& out_shape) {
  Tape& tape = x.tape();
  Tensor value = x.tensor();
  Runs runs = runs_of(value.shape(), axes);
  if (!runs.together) {
    value = reduced_axes_last(tape.backend(), value, axes);
    runs.outer *= runs.inner;
    runs.inner = 1;
  }
  value = value.reshaped({runs.outer, runs.reduced, runs.inner});
  const Tensor out =
      rounded_result(tape, {runs.outer, runs.inner}, x.dtype(), [&](Tensor& result, CastProbe* probe) {
        // Sums in FP32 on the way to a 16-bit gradient narrow nothing.
        const bool wide = result.dtype() == DType::f32;
        tape.backend().reduce(verb, wide ? widened(tape.backend(), value) : value, 1, result,
                              wide ? nullptr : probe);
      });
  offer_wide_of(
      tape, out,
      [verb](Backend& backend, Tensor& result, const Tensor& of) { backend.reduce(verb, of, 1, result); },
      value);
  return out.reshaped(out_shape);
}

/// `x` is dispatched already.
Variable sum_over(const Variable& x, const AxisSet& axes, const Shape& out_shape) {
  return x.tape().record(
      Op::sum, reduce_value(ReduceOp::sum, x, axes, out_shape),
      {{x, [kept = without(x.shape(), axes, true), shape = x.shape()](const Variable& g, const Variable&) {
          return broadcast_to(reshape(g, kept), shape);
        }}});
}

/// In FP32, 16-bit x too, and rounded once: a mean does not overflow because its sum would. One op to a cast
/// policy.
Variable mean_over(const Variable& x, const AxisSet& axes, const Shape& out_shape) {
  const CastPolicyGuard off(x.tape(), nullptr);
  const Variable total = sum_over(wide(x), axes, out_shape);
  return cast(divide_constant(total, static_cast<float>(count_of(x.shape(), axes))), x.dtype());
}

/// 1 where x equals its maximum, else 0; a constant. With d = maximum - x >= 0 (zero exactly where they are
/// equal, because subnormals are kept), select_positive(d, 1) is 1 where x is smaller.
Variable maximum_mask(const Variable& x, const Variable& maximum) {
  const GradModeGuard off(x.tape(), false);
  const Variable one = scalar_like(x, 1.0f);
  return subtract(one, select_positive(subtract(maximum, x), one));
}

Variable max_over(const Variable& x, const AxisSet& axes, const Shape& out_shape) {
  return x.tape().record(Op::max, reduce_value(ReduceOp::max, x, axes, out_shape),
                         {{x, [x, axes](const Variable& g, const Variable& y) {
                             const Shape kept = without(x.shape(), axes, true);
                             const Variable mask = maximum_mask(x, reshape(detach(y), kept));
                             // Counted in FP32: FP16 counts to 2048 only.
                             const Variable count =
                                 detach(sum_over(cast(detach(mask), DType::f32), axes, kept));
                             return cast(divide(multiply(reshape(g, kept), mask), count), x.dtype());
                           }}});
}

AxisSet one_axis(Op op, const Variable& x, int axis) {
  AxisSet axes{};
  axes[static_cast<std::size_t>(normalized_axis(op, x, axis))] = true;
  return axes;
}

AxisSet several_axes(Op op, const Variable& x, std::span<const int> list) {
  AxisSet axes{};
  for (const int axis : list) {
    bool& reduced = axes[static_cast<std::size_t>(normalized_axis(op, x, axis))];
    if (reduced) reject(op, "axis " + std::to_string(axis) + " of " + describe(x) + " is named twice");
    reduced = true;
  }
  return axes;
}

}  // namespace

Variable sum(const Variable& input) {
  const auto [x] = dispatched<1>(Op::sum, {input});
  return handed_on(Op::sum, sum_over(x, all_axes(x.shape()), Shape{}));
}

Variable sum(const Variable& input, int axis, bool keep_axis) {
  const auto [x] = dispatched<1>(Op::sum, {input});
  const AxisSet axes = one_axis(Op::sum, x, axis);
  return handed_on(Op::sum, sum_over(x, axes, without(x.shape(), axes, keep_axis)));
}

Variable sum(const Variable& input, std::span<const int> list, bool keep_axes) {
  const auto [x] = dispatched<1>(Op::sum, {input});
  const AxisSet axes = several_axes(Op::sum, x, list);
  return handed_on(Op::sum, sum_over(x, axes, without(x.shape(), axes, keep_axes)));
}

Variable mean(const Variable& input) {
  const auto [x] = dispatched<1>(Op::mean, {input});
  return handed_on(Op::mean, mean_over(x, all_axes(x.shape()), Shape{}));
}

Variable mean(const Variable& input, int axis, bool keep_axis) {
  const auto [x] = dispatched<1>(Op::mean, {input});
  const AxisSet axes = one_axis(Op::mean, x, axis);
  return handed_on(Op::mean, mean_over(x, axes, without(x.shape(), axes, keep_axis)));
}

Variable mean(const Variable& input, std::span<const int> list, bool keep_axes) {
  const auto [x] = dispatched<1>(Op::mean, {input});
  const AxisSet axes = several_axes(Op::mean, x, list);
  return handed_on(Op::mean, mean_over(x, axes, without(x.shape(), axes, keep_axes)));
}

Variable max(const Variable& input) {
  const auto [x] = dispatched<1>(Op::max, {input});
  return handed_on(Op::max, max_over(x, all_axes(x.shape()), Shape{}));
}

Variable max(const Variable& input, int axis, bool keep_axis) {
  const auto [x] = dispatched<1>(Op::max, {input});
  const AxisSet axes = one_axis(Op::max, x, axis);
  return handed_on(Op::max, max_over(x, axes, without(x.shape(), axes, keep_axis)));
}

namespace {

/// sum_to of rows that are those of several shards: a stack of `shape`.
Variable stack_of_sums(const Variable& x, const Shape& shape) {
  const Variable apart = by_shard(x);
  ShapeBuilder kept;  // (shards, 1, ...): as `shape` broadcasts to a shard's rows
  kept.push(apart.shape()[0]);
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const int own = axis - (x.shape().rank() - shape.rank());
    kept.push(own < 0 ? 1 : shape[own]);
  }
  return reshape(sum_to(apart, kept.shape()), stacked(x.tape(), shape));
}

}  // namespace

Variable sum_to(const Variable& x, const Shape& shape) {
  Tape& tape = tape_of(Op::sum, x);
  const Shape from = x.shape();
  if (from == shape) return x;
  if (!(broadcast_shape(Op::sum, shape, from) == from)) {
    reject(Op::sum, "cannot reduce " + describe(x) + " to " + shape.to_string());
  }
  // Leading axes that `shape` lacks, and those that broadcasting stretched. Only what adds is a sum: an axis
  // of extent 1 that merely disappears is a reshape.
  const int extra = from.rank() - shape.rank();
  if (stack_height(tape) > 1 && from[0] > 1 && (extra > 0 || shape[0] == 1)) return stack_of_sums(x, shape);
  AxisSet axes{};
  bool adds = false;
  for (int axis = 0; axis < from.rank(); ++axis) {
    const bool reduced = axis < extra || (shape[axis - extra] == 1 && from[axis] != 1);
    axes[static_cast<std::size_t>(axis)] = reduced;
    adds = adds || (reduced && from[axis] != 1);
  }
  if (!adds) return reshape(x, shape);
  return tape.record(Op::sum, reduce_value(ReduceOp::sum, x, axes, shape),
                     {{x, [from](const Variable& g, const Variable&) { return broadcast_to(g, from); }}});
}

}  // namespace fp16lab::engine::ops
