// NumPy broadcasting of two operands as a small table of strides, for every back end.
#pragma once

#include <array>
#include <cstdint>

#include "engine/tensor/shape.hpp"

namespace fp16lab::engine {

/// How out[i0, i1, ...] finds its operands: element offset = sum of index * stride, stride 0 on a stretched
/// axis. Axes of extent 1 are dropped and axes that both operands walk alike are merged, so plain tensors
/// have one axis.
struct BroadcastPlan {
  int rank = 1;  ///< at least 1
  std::array<std::int64_t, Shape::max_rank> extents{1};
  std::array<std::int64_t, Shape::max_rank> strides_a{};
  std::array<std::int64_t, Shape::max_rank> strides_b{};

  std::int64_t inner_extent() const { return extents[static_cast<std::size_t>(rank - 1)]; }
  /// 0 or 1: the operand stays or advances along the innermost axis.
  std::int64_t inner_stride_a() const { return strides_a[static_cast<std::size_t>(rank - 1)]; }
  std::int64_t inner_stride_b() const { return strides_b[static_cast<std::size_t>(rank - 1)]; }
};

/// Does `from` broadcast to `to`? (Extents agree or are 1, aligned at the innermost axis.)
bool broadcasts_to(const Shape& from, const Shape& to);

/// Both `a` and `b` must broadcast to `out`.
BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out);

}  // namespace fp16lab::engine
