// TREE: the one order in which fp16lab reduces a sequence, on every back end.
//
// Floating-point addition is not associative, so "the sum" has bits only once an order is fixed. This one is
// cheap on a GPU warp and on CPU vectors alike. For the elements x[0], x[1], ... in logical row-major order
// along the reduced axis:
//   1. cut them into chunks of 1024;
//   2. inside a chunk, lane l of 32 takes x[l], x[l + 32], ... in ascending order;
//   3. the lanes fold: lane l takes lane l + 16, then l + 8, l + 4, l + 2, l + 1; lane 0 holds the chunk's
//   result;
//   4. the chunk results are a new sequence, reduced by the same rule until one value is left.
// A missing element is skipped, never added as zero, so a lone element passes through with its bits (-0 stays
// -0). A result that is NaN is stored as the canonical NaN. No result depends on the number of threads or on
// vector width.
#pragma once

#include <cstdint>

#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

inline constexpr int tree_chunk_size = 1024;
inline constexpr int tree_lane_count = 32;

/// Rounded addition in the accumulator's type.
struct TreeSum {
  template <class T>
  FP16LAB_HD constexpr T operator()(T earlier, T later) const {
    return earlier + later;
  }
};

/// The larger value. Truth table: a NaN on either side gives NaN; -0 and +0 are equal, and of equal values
/// the earlier one in TREE order stays.
struct TreeMax {
  template <class T>
  FP16LAB_HD constexpr T operator()(T earlier, T later) const {
    return (earlier >= later) | is_nan(earlier) ? earlier : later;
  }
};

namespace tree_detail {

/// Sequences long enough for 64-bit indices need no more recursion than this: 1024^7 > 2^63.
inline constexpr int max_levels = 7;

/// Step 3 for `Width` independent sequences side by side; lanes [used, 32) never had an element.
template <int Width, class T, class Op>
FP16LAB_HD constexpr void fold_lanes(T (&lanes)[tree_lane_count][Width], int used, int width, Op op) {
  for (int distance = tree_lane_count / 2; distance > 0; distance /= 2)
    for (int lane = 0; lane < distance && lane + distance < used; ++lane)
      for (int column = 0; column < width; ++column)
        // Every lane below `used` has been written; clang's analyser loses track of that through UpperLevels.
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
        lanes[lane][column] = op(lanes[lane][column], lanes[lane + distance][column]);
}

/// Steps 2 and 3 for elements [first, first + count), 1 <= count <= 1024, of one sequence.
template <class T, class Op, class Get>
FP16LAB_HD constexpr T reduce_chunk(std::int64_t first, int count, const Get& get, Op op) {
  T lanes[tree_lane_count][1] = {};
  const int used = count < tree_lane_count ? count : tree_lane_count;
  for (int lane = 0; lane < used; ++lane) lanes[lane][0] = static_cast<T>(get(first + lane));
  int done = tree_lane_count;
  for (; done + tree_lane_count <= count; done += tree_lane_count)  // whole rows of lanes: vectorised
    for (int lane = 0; lane < tree_lane_count; ++lane)
      lanes[lane][0] = op(lanes[lane][0], static_cast<T>(get(first + done + lane)));
  for (int lane = 0; done + lane < count; ++lane)
    lanes[lane][0] = op(lanes[lane][0], static_cast<T>(get(first + done + lane)));
  fold_lanes<1>(lanes, used, 1, op);
  return lanes[0][0];
}

/// Step 4 without storing the chunk results: every level of the recursion keeps only its 32 lanes and how
/// many elements of its current chunk it has seen, so no length needs memory from the heap.
template <class T, int Width>
class UpperLevels {
 public:
  /// Appends one chunk result (for each of `width` columns) to the sequence above the chunks.
  template <class Op>
  FP16LAB_HD constexpr void append(const T* values, int width, Op op) {
    int level = 0;
    put(level, values, width, op);
    while (seen_[level] == tree_chunk_size) {
      fold_lanes<Width>(lanes_[level], tree_lane_count, width, op);
      seen_[level] = 0;
      put(level + 1, lanes_[level][0], width, op);
      ++level;
    }
  }

  /// The result, in the returned row; at least one value must have been appended.
  template <class Op>
  FP16LAB_HD constexpr const T* finish(int width, Op op) {
    const T* carried = nullptr;
    for (int level = 0; level < max_levels; ++level) {
      if (carried != nullptr) put(level, carried, width, op);
      if (seen_[level] == 0) continue;
      const int used = seen_[level] < tree_lane_count ? seen_[level] : tree_lane_count;
      fold_lanes<Width>(lanes_[level], used, width, op);
      carried = lanes_[level][0];
    }
    return carried;
  }

 private:
  template <class Op>
  FP16LAB_HD constexpr void put(int level, const T* values, int width, Op op) {
    T* lane = lanes_[level][seen_[level] % tree_lane_count];
    const bool first = seen_[level] < tree_lane_count;
    for (int column = 0; column < width; ++column)
      lane[column] = first ? values[column] : op(lane[column], values[column]);
    ++seen_[level];
  }

  T lanes_[max_levels][tree_lane_count][Width];
  int seen_[max_levels] = {};
};

}  // namespace tree_detail

/// TREE of get(0), ..., get(n - 1), n >= 1, each converted to the accumulator type T (float or double).
/// `get` must be a pure function of the index. The result is not canonicalised: that of tree_sum is.
template <class T, class Op, class Get>
FP16LAB_HD constexpr T tree_reduce(std::int64_t n, const Get& get, Op op) {
  if (n <= tree_chunk_size) return tree_detail::reduce_chunk<T>(0, static_cast<int>(n), get, op);
  tree_detail::UpperLevels<T, 1> upper;
  for (std::int64_t first = 0; first < n; first += tree_chunk_size) {
    const std::int64_t left = n - first;
    const int count = left < tree_chunk_size ? static_cast<int>(left) : tree_chunk_size;
    const T chunk = tree_detail::reduce_chunk<T>(first, count, get, op);
    upper.append(&chunk, 1, op);
  }
  return *upper.finish(1, op);
}

/// Sum of get(0), ..., get(n - 1) in type T. An empty sum (n <= 0) is +0. NaN results are canonical.
template <class T, class Get>
FP16LAB_HD constexpr T tree_sum(std::int64_t n, const Get& get) {
  return n <= 0 ? T{0} : canonicalize(tree_reduce<T>(n, get, TreeSum{}));
}

/// One TREE per column, over the row index: store(column, op over row of get(row, column)) for each column,
/// NaN canonical. Equal bit for bit to tree_reduce of each column alone, but it walks memory along the rows,
/// so that row-major matrices stream (bias gradients, batch statistics). rows >= 1; columns may be zero.
template <class T, class Op, class Get, class Store>
FP16LAB_HD constexpr void tree_reduce_columns(std::int64_t rows, std::int64_t columns, const Get& get,
                                              const Store& store, Op op) {
  constexpr int width = 64;  // columns at a time: 32 lanes of 64 floats are 8 KiB, well inside L1
  for (std::int64_t left = 0; left < columns; left += width) {
    const int used_width = columns - left < width ? static_cast<int>(columns - left) : width;
    tree_detail::UpperLevels<T, width> upper;
    T lanes[tree_lane_count][width] = {};
    for (std::int64_t first = 0; first < rows; first += tree_chunk_size) {
      const int count = rows - first < tree_chunk_size ? static_cast<int>(rows - first) : tree_chunk_size;
      for (int row = 0; row < count; ++row) {
        T* lane = lanes[row % tree_lane_count];
        if (row < tree_lane_count) {
          for (int column = 0; column < used_width; ++column)
            lane[column] = static_cast<T>(get(first + row, left + column));
        } else if (used_width == width) {  // a constant trip count for the vectoriser
          for (int column = 0; column < width; ++column)
            lane[column] = op(lane[column], static_cast<T>(get(first + row, left + column)));
        } else {
          for (int column = 0; column < used_width; ++column)
            lane[column] = op(lane[column], static_cast<T>(get(first + row, left + column)));
        }
      }
      tree_detail::fold_lanes<width>(lanes, count < tree_lane_count ? count : tree_lane_count, used_width,
                                     op);
      upper.append(lanes[0], used_width, op);
    }
    const T* result = upper.finish(used_width, op);
    for (int column = 0; column < used_width; ++column) store(left + column, canonicalize(result[column]));
  }
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
