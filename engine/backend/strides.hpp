// How verbs walk over operands that are not in the order of the output, as small tables of strides, for every
// back end. Axes of extent 1 are dropped, and neighbours that all operands walk alike are merged, so plain
// tensors have one axis.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/tensor/shape.hpp"

namespace fp16lab::engine {

/// An offset or a stride for each axis, in elements.
using AxisTable = std::array<std::int64_t, Shape::max_rank>;

/// How out[i0, i1, ...] finds two operands: element offset = sum of index * stride, stride 0 on a stretched
/// axis.
struct BroadcastPlan {
  int rank = 1;  ///< at least 1
  AxisTable extents{1};
  AxisTable strides_a{};
  AxisTable strides_b{};

  std::int64_t inner_extent() const { return extents[static_cast<std::size_t>(rank - 1)]; }
  /// 0 or 1: the operand stays or advances along the innermost axis.
  std::int64_t inner_stride_a() const { return strides_a[static_cast<std::size_t>(rank - 1)]; }
  std::int64_t inner_stride_b() const { return strides_b[static_cast<std::size_t>(rank - 1)]; }
};

/// Does `from` broadcast to `to` by NumPy's rule? (Extents agree or are 1, aligned at the innermost axis.)
bool broadcasts_to(const Shape& from, const Shape& to);

/// Both `a` and `b` must broadcast to `out`.
BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out);

/// Loops over the output of a permutation, and the strides of x. One that moves nothing has rank 0 or 1.
struct Permutation {
  int rank = 0;
  AxisTable extents{};
  AxisTable strides{};
};

/// Axis i of the output is axis axes[i] of `shape`.
Permutation simplified(const Shape& shape, std::span<const int> axes);

}  // namespace fp16lab::engine
