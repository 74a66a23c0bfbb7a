#include "engine/backend/strides.hpp"

#include <cstddef>

namespace fp16lab::engine {

namespace {

/// Element strides of a contiguous tensor of shape `from`, seen with the axes of `rank`; 0 where it may be
/// stretched.
AxisTable strides_of(const Shape& from, int rank) {
  AxisTable strides{};
  std::int64_t step = 1;
  for (int axis = 1; axis <= from.rank(); ++axis) {
    strides[static_cast<std::size_t>(rank - axis)] = from[-axis] == 1 ? 0 : step;
    step *= from[-axis];
  }
  return strides;
}

/// Drops axes of extent 1, and merges an axis with the one before where one step of that is `extent` steps of
/// it in all operands; returns how many are left.
template <std::size_t operands>
int merge_axes(int rank, AxisTable& extents, const std::array<AxisTable*, operands>& strides) {
  std::size_t used = 0;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    const std::int64_t extent = extents[axis];
    if (extent == 1) continue;
    bool continues = used > 0;
    for (const AxisTable* const its : strides)
      continues = continues && (*its)[used - 1] == (*its)[axis] * extent;
    const std::size_t to = continues ? used - 1 : used++;
    extents[to] = continues ? extents[to] * extent : extent;
    for (AxisTable* const its : strides) (*its)[to] = (*its)[axis];
  }
  return static_cast<int>(used);
}

}  // namespace

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int axis = 1; axis <= from.rank(); ++axis)
    if (from[-axis] != 1 && from[-axis] != to[-axis]) return false;
  return true;
}

BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out) {
  BroadcastPlan plan{.strides_a = strides_of(a, out.rank()), .strides_b = strides_of(b, out.rank())};
  for (int axis = 0; axis < out.rank(); ++axis) plan.extents[static_cast<std::size_t>(axis)] = out[axis];
  plan.rank = merge_axes<2>(out.rank(), plan.extents, {&plan.strides_a, &plan.strides_b});
  if (plan.rank == 0) plan = {};
  return plan;
}

Permutation simplified(const Shape& shape, std::span<const int> axes) {
  const AxisTable strides = strides_of(shape, shape.rank());
  Permutation p;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    p.extents[i] = shape[axes[i]];
    p.strides[i] = strides[static_cast<std::size_t>(axes[i])];
  }
  p.rank = merge_axes<1>(shape.rank(), p.extents, {&p.strides});
  return p;
}

}  // namespace fp16lab::engine
