#include "engine/backend/broadcast.hpp"

#include <cstddef>

namespace fp16lab::engine {

namespace {

using Strides = std::array<std::int64_t, Shape::max_rank>;

/// Element strides of a contiguous tensor of shape `from`, seen with the axes of `to`; 0 where it is
/// stretched.
Strides strides_of(const Shape& from, const Shape& to) {
  Strides strides{};
  const auto offset = static_cast<std::size_t>(to.rank() - from.rank());
  std::int64_t step = 1;
  for (int axis = from.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis) + offset] = from[axis] == 1 ? 0 : step;
    step *= from[axis];
  }
  return strides;
}

}  // namespace

bool broadcasts_to(const Shape& from, const Shape& to) {
  const int offset = to.rank() - from.rank();
  if (offset < 0) return false;
  for (int axis = 0; axis < from.rank(); ++axis)
    if (from[axis] != 1 && from[axis] != to[axis + offset]) return false;
  return true;
}

BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out) {
  const Strides strides_a = strides_of(a, out);
  const Strides strides_b = strides_of(b, out);
  BroadcastPlan plan;
  std::size_t used = 0;
  for (int axis = 0; axis < out.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t extent = out[axis];
    if (extent == 1) continue;
    // The previous axis continues into this one if one step of it is `extent` steps of this one, in both
    // operands.
    if (used > 0 && plan.strides_a[used - 1] == strides_a[at] * extent &&
        plan.strides_b[used - 1] == strides_b[at] * extent) {
      plan.extents[used - 1] *= extent;
      plan.strides_a[used - 1] = strides_a[at];
      plan.strides_b[used - 1] = strides_b[at];
      continue;
    }
    plan.extents[used] = extent;
    plan.strides_a[used] = strides_a[at];
    plan.strides_b[used] = strides_b[at];
    ++used;
  }
  plan.rank = used == 0 ? 1 : static_cast<int>(used);
  return plan;
}

}  // namespace fp16lab::engine
