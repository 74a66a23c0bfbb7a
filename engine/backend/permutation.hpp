// A permutation of axes as a small table of strides, for every back end.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/tensor/shape.hpp"

namespace fp16lab::engine {

/// Loops over the output: extents, and the strides of x in elements. Axes of extent 1 are gone, and axes that
/// are neighbours in x as well are one: a permutation that moves nothing has rank 0 or 1.
struct Permutation {
  int rank = 0;
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::array<std::int64_t, Shape::max_rank> strides{};
};

/// Axis i of the output is axis axes[i] of `shape`.
Permutation simplified(const Shape& shape, std::span<const int> axes);

}  // namespace fp16lab::engine
