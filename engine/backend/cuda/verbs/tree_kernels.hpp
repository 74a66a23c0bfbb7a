// TREE (numerics/arithmetic/tree_reduce.hpp) on a GPU: the steps of a warp and of a block.
//
// TREE's 32 lanes are a warp's lanes: lane l takes the elements l, l + 32, ... of a chunk of 1024, in
// ascending order, so that a warp reads whole lines of memory, and the fold is five shuffles. Op is TreeSum
// or TreeMax, T float or double. Results are TREE's own: not canonical, so they may go on to the next level;
// canonicalize() at the end.
//
// `get(i)` gives element i as T (or something that converts to it without rounding), and must be a pure
// function.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "numerics/arithmetic/tree_reduce.hpp"

namespace fp16lab::engine::gpu {

constexpr std::int64_t tree_chunks_of(std::int64_t n) { return (n + tree_chunk_size - 1) / tree_chunk_size; }

/// Step 3. Lanes [0, used) have a value, used >= 1; the result is lane 0's. All lanes of the warp, the same
/// `used`.
template <class T, class Op>
__device__ __forceinline__ T fold_warp(T value, int used, Op op) {
  const int lane = static_cast<int>(threadIdx.x) % tree_lane_count;
  for (int distance = tree_lane_count / 2; distance > 0; distance /= 2) {
    const T later = __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(distance));
    if (lane < distance && lane + distance < used) value = op(value, later);
  }
  return value;
}

/// Step 3 by one thread, which has the lanes [0, used) in its registers.
template <int distance = tree_lane_count / 2, class T, class Op>
__device__ __forceinline__ void fold_registers(T (&lanes)[tree_lane_count], int used, Op op) {
#pragma unroll
  for (int lane = 0; lane < distance; ++lane)
    if (lane + distance < used) lanes[lane] = op(lanes[lane], lanes[lane + distance]);
  if constexpr (distance > 1) fold_registers<distance / 2>(lanes, used, op);
}

/// Steps 2 and 3 for the elements 0 .. count - 1, 1 <= count <= 1024. The result is lane 0's. All lanes of
/// the warp, with the same count.
template <class T, class Op, class Get>
__device__ __forceinline__ T reduce_chunk_by_warp(int count, const Get& get, Op op) {
  const int lane = static_cast<int>(threadIdx.x) % tree_lane_count;
  T value{};
  if (count == tree_chunk_size) {  // a whole chunk: all loads are independent of each other
    value = static_cast<T>(get(lane));
#pragma unroll 8
    for (int i = tree_lane_count; i < tree_chunk_size; i += tree_lane_count)
      value = op(value, static_cast<T>(get(i + lane)));
  } else if (lane < count) {
    value = static_cast<T>(get(lane));
#pragma unroll 4
    for (int i = lane + tree_lane_count; i < count; i += tree_lane_count)
      value = op(value, static_cast<T>(get(i)));
  }
  return fold_warp(value, count < tree_lane_count ? count : tree_lane_count, op);
}

/// Chunk `chunk` of a sequence of n elements, 0 <= chunk < tree_chunks_of(n), by a warp; lane 0 has its
/// result. These are the elements of the next level's sequence.
template <class T, class Op, class Get>
__device__ __forceinline__ T reduce_chunk_by_warp(std::int64_t n, std::int64_t chunk, const Get& get, Op op) {
  const std::int64_t first = chunk * tree_chunk_size, left = n - first;
  return reduce_chunk_by_warp<T>(
      left < tree_chunk_size ? static_cast<int>(left) : tree_chunk_size,
      [&](int i) { return get(first + i); }, op);
}

/// TREE above the chunks, for a warp that gets chunk results one after the other: every level keeps its 32
/// lanes in a register of the warp's lanes. All lanes of the warp take part in all calls.
template <class T, class Op>
class UpperTreeLevels {
 public:
  /// The next chunk's result, which lane 0 has.
  __device__ __forceinline__ void append(T result) {
    put(0, result);
#pragma unroll
    for (int level = 0; level < levels - 1 && seen_[level] == tree_chunk_size; ++level) {
      seen_[level] = 0;
      put(level + 1, fold_warp(lanes_[level], tree_lane_count, Op{}));
    }
  }
  /// The result, in lane 0; at least one chunk result must have been appended.
  __device__ __forceinline__ T finish() {
    bool carries = false;
    T carried{};
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      if (carries) put(level, carried);
      if (seen_[level] == 0) continue;
      carried =
          fold_warp(lanes_[level], seen_[level] < tree_lane_count ? seen_[level] : tree_lane_count, Op{});
      carries = true;
    }
    return carried;
  }

 private:
  static constexpr int levels = 4;  // 2^50 elements

  __device__ __forceinline__ void put(int level, T value) {
    const T result = __shfl_sync(0xffffffffu, value, 0);
    if (static_cast<int>(threadIdx.x) % tree_lane_count == seen_[level] % tree_lane_count)
      lanes_[level] = seen_[level] < tree_lane_count ? result : Op{}(lanes_[level], result);
    ++seen_[level];
  }

  T lanes_[levels] = {};
  int seen_[levels] = {};
};

/// What reduce_by_block needs of shared memory.
template <class T>
struct TreeScratch {
  T chunks[tree_chunk_size];
  T groups[tree_chunk_size];
};
/// 1024^3: more elements than that need a level of chunk results in global memory first.
inline constexpr std::int64_t tree_block_limit = std::int64_t{1} << 30;

/// All of TREE for the elements 0 .. n - 1, 1 <= n <= tree_block_limit, by a block of whole warps; thread 0
/// has the result. All threads of the block, with the same arguments. The next call may use `scratch` at
/// once: other warps than the first leave after the last read of `chunks`, and `groups` is the first warp's
/// alone, read between two barriers.
template <class T, class Op, class Get>
__device__ __forceinline__ T reduce_by_block(std::int64_t n, const Get& get, Op op, TreeScratch<T>& scratch) {
  constexpr std::int64_t group_size = std::int64_t{tree_chunk_size} * tree_chunk_size;
  const int lane = static_cast<int>(threadIdx.x) % tree_lane_count;
  const int warp = static_cast<int>(threadIdx.x) / tree_lane_count;
  const int warps = static_cast<int>(blockDim.x) / tree_lane_count;
  const int groups = static_cast<int>((n + group_size - 1) / group_size);
  for (int group = 0; group < groups; ++group) {
    const std::int64_t first = group * group_size;
    const int in_group = static_cast<int>(n - first < group_size ? n - first : group_size);
    const int chunks = (in_group + tree_chunk_size - 1) / tree_chunk_size;
    for (int chunk = warp; chunk < chunks; chunk += warps) {
      const int skipped = chunk * tree_chunk_size, left = in_group - skipped;
      const T result = reduce_chunk_by_warp<T>(
          left < tree_chunk_size ? left : tree_chunk_size, [&](int i) { return get(first + skipped + i); },
          op);
      if (lane == 0) scratch.chunks[chunk] = result;
    }
    __syncthreads();
    if (warp == 0) {
      const T result = reduce_chunk_by_warp<T>(
          chunks, [&](int i) { return scratch.chunks[i]; }, op);
      if (lane == 0) scratch.groups[group] = result;
    }
    __syncthreads();
  }
  T result{};
  if (warp == 0)
    result = reduce_chunk_by_warp<T>(
        groups, [&](int i) { return scratch.groups[i]; }, op);
  return result;
}

}  // namespace fp16lab::engine::gpu
