#include "engine/backend/permutation.hpp"

#include <cstddef>

namespace fp16lab::engine {

Permutation simplified(const Shape& shape, std::span<const int> axes) {
  std::array<std::int64_t, Shape::max_rank> strides_of_x{};
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides_of_x[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  Permutation p;
  std::size_t used = 0;
  for (const int axis : axes) {
    const std::int64_t extent = shape[axis];
    const std::int64_t own_stride = strides_of_x[static_cast<std::size_t>(axis)];
    if (extent == 1) continue;
    // The previous axis continues into this one if one step of it is `extent` steps of this one.
    if (used > 0 && p.strides[used - 1] == own_stride * extent) {
      p.extents[used - 1] *= extent;
      p.strides[used - 1] = own_stride;
      continue;
    }
    p.extents[used] = extent;
    p.strides[used] = own_stride;
    ++used;
  }
  p.rank = static_cast<int>(used);
  return p;
}

}  // namespace fp16lab::engine
