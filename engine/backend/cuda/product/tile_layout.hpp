// Where the elements of a product's tiles are: pure index maps, the same on host and device, so that a unit
// test can walk all of them (tests/engine/backend/cuda/gemm_plan_test.cpp).
//
// Words of the products: A (m x k) and B (k x n) are the logical operands. The *outer* index of an
// operand is the one that the product keeps: m of A, n of B. A *run* is 16 bytes of neighbours along one of
// the two axes: 8 elements of 16 bits, 4 of FP32. A *slice* is what a block holds of an operand for
// tile::slice_bytes bytes of k.
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::tile {

/// Along which axis neighbours in memory go.
enum class Runs : std::uint8_t {
  along_k,      ///< stored (outer x k): A as it is, B transposed
  along_outer,  ///< stored (k x outer): A transposed, B as it is
};

inline constexpr int run_bytes = 16;
inline constexpr int slice_bytes = 64;  ///< k in a slice: 32 elements of 16 bits, 16 of FP32

/// A slice in shared memory, `outer` x (64 bytes of k) elements of so many bytes, in rows of runs as they
/// were stored. The runs of a row are permuted so that the 8 rows that ldmatrix reads at a time, and the 8
/// runs that 8 neighbouring threads write, are in 8 different groups of 4 banks.
template <int element_bytes, int outer, Runs stored_runs>
struct SliceLayout {
  static constexpr Runs runs = stored_runs;
  static constexpr int k = slice_bytes / element_bytes;
  static constexpr int run_elements = run_bytes / element_bytes;
  static constexpr int rows = runs == Runs::along_k ? outer : k;
  static constexpr int runs_per_row = (runs == Runs::along_k ? k : outer) / run_elements;
  static constexpr int bytes = rows * runs_per_row * run_bytes;
  static_assert(runs_per_row == 4 || runs_per_row % 8 == 0);

  /// Offset in bytes of a run. Rows of 64 bytes: two of them fill the 32 banks, so pairs of rows permute
  /// alike.
  FP16LAB_HD static constexpr int offset(int row, int run) {
    const int swizzle = runs_per_row == 4 ? (row >> 1) & 3 : row & 7;
    return (row * runs_per_row + (run ^ swizzle)) * run_bytes;
  }
  /// Offset of the run that holds element (outer, k); the element is (outer or k) % run_elements within it.
  FP16LAB_HD static constexpr int offset_of(int outer_index, int k_index) {
    return runs == Runs::along_k ? offset(outer_index, k_index / run_elements)
                                 : offset(k_index, outer_index / run_elements);
  }
};

/// An element's place within a block of an operand.
struct BlockIndex {
  int outer = 0;
  int k = 0;
};

// The first element of the run that a lane names to ldmatrix.x4, so that the four registers it gets are the
// fragments of engine/backend/cuda/runtime/instructions.hpp. For runs along k the plain form, for runs along
// the outer axis the transposed one.

/// The 16 x 16 block of A of one m16n8k16: registers a[0..3] are (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows
/// 0-7, k 8-15), (rows 8-15, k 8-15).
FP16LAB_HD constexpr BlockIndex a_run_of_lane(int lane, Runs runs) {
  const int in_matrix = lane % 8, upper_rows = lane / 8 % 2, upper_k = lane / 16;
  if (runs == Runs::along_k) return {in_matrix + 8 * upper_rows, 8 * upper_k};
  return {8 * upper_rows, in_matrix + 8 * upper_k};
}

/// The 16 columns x 16 block of B of two m16n8k16 side by side: registers 0 and 1 are b[0..1] of columns 0-7,
/// registers 2 and 3 those of columns 8-15.
FP16LAB_HD constexpr BlockIndex b_run_of_lane(int lane, Runs runs) {
  const int in_matrix = lane % 8, upper_k = lane / 8 % 2, upper_columns = lane / 16;
  if (runs == Runs::along_k) return {in_matrix + 8 * upper_columns, 8 * upper_k};
  return {8 * upper_columns, in_matrix + 8 * upper_k};
}

/// The outer indices, within the 8 lanes x 8 (B) or 4 lanes x 8 (A) of a warp of the FP32 kernel, that a
/// lane's 8 accumulators have. Runs along the outer axis are read 4 neighbours at a time; runs along k one
/// row at a time, and then neighbouring lanes must read neighbouring rows to meet in no bank.
FP16LAB_HD constexpr int fma_outer_of(int lane, int lanes, int i, Runs runs) {
  if (runs == Runs::along_k) return lane + lanes * i;
  return 4 * lane + 4 * lanes * (i / 4) + i % 4;
}

/// Output tiles of one product after the other, in the order in which blocks take them: within a product,
/// columns of `group` tile rows, so that blocks that run together share operands in the L2 cache.
struct Raster {
  std::int32_t tiles_m = 0;
  std::int32_t tiles_n = 0;
  std::int32_t batch = 1;
  std::int32_t group = 8;

  struct Tile {
    std::int32_t batch;
    std::int32_t m, n;  ///< in tiles
  };

  FP16LAB_HD constexpr std::int64_t tiles() const { return std::int64_t{tiles_m} * tiles_n * batch; }
  FP16LAB_HD constexpr Tile at(std::int64_t index) const {
    const std::int64_t per_product = std::int64_t{tiles_m} * tiles_n;
    const std::int64_t product = index / per_product;
    const std::int64_t within = index - product * per_product;
    const std::int64_t per_group = std::int64_t{group} * tiles_n;
    const auto first_m = static_cast<std::int32_t>(within / per_group) * group;
    const auto in_group = static_cast<std::int32_t>(within % per_group);
    const std::int32_t rows = tiles_m - first_m < group ? tiles_m - first_m : group;
    return {static_cast<std::int32_t>(product), first_m + in_group % rows, in_group / rows};
  }
};

}  // namespace fp16lab::engine::tile
