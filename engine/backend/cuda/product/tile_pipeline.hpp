// The pipeline that fills a block's shared memory with slices of both operands, some slices ahead of their
// use.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/tile_layout.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"

namespace fp16lab::engine::gpu {

/// One operand's part of a tile: copies slices of `outer` x tile::slice_bytes of k in ascending order, every
/// thread the same runs of each.
template <class Source, int outer, int threads>
class SliceCopier {
 public:
  using Layout = tile::SliceLayout<static_cast<int>(sizeof(typename Source::Element)), outer, Source::runs>;

  __device__ __forceinline__ SliceCopier(const Source& source, std::int64_t batch, int first_outer)
      : source_(source) {
    const int thread = static_cast<int>(threadIdx.x);
    row_ = thread / Layout::runs_per_row;
    run_ = thread % Layout::runs_per_row;
#pragma unroll
    for (int i = 0; i < cursors; ++i) {
      const int at = first_outer + (along_k ? row_ + i * rows_per_pass : run_ * Layout::run_elements);
      if constexpr (walks) {
        cursors_[i] = source.walker(batch, at, first_k());
      } else {
        cursors_[i] = source.cursor(batch, at);
      }
    }
  }

  /// The slice that begins at k, to `shared`.
  __device__ __forceinline__ void copy(int k, unsigned char* shared) {
    if constexpr (walks) {
      if (k + Layout::k <= source_.k_extent) {
        walk<true>(k, shared);
      } else {
        walk<false>(k, shared);
      }
#pragma unroll
      for (int i = 0; i < cursors; ++i) source_.advance(cursors_[i], Layout::k);
    } else {
#pragma unroll
      for (int i = 0; i < passes; ++i)
        source_.copy_run(cursors_[along_k ? i : 0], k + first_k() + k_of_pass(i), shared + offset_of_pass(i));
    }
  }

 private:
  static constexpr bool along_k = Source::runs == tile::Runs::along_k;
  static constexpr bool walks = requires(const Source& source) { source.walker(0, 0, 0); };
  static constexpr int passes = Layout::rows * Layout::runs_per_row / threads;
  static constexpr int rows_per_pass = threads / Layout::runs_per_row;
  static constexpr int cursors = along_k ? passes : 1;
  static_assert(passes * threads == Layout::rows * Layout::runs_per_row &&
                threads % Layout::runs_per_row == 0);

  template <class S, bool has_walker>
  struct CursorOf {
    using Type = typename S::Cursor;
  };
  template <class S>
  struct CursorOf<S, true> {
    using Type = typename S::Walker;
  };

  __device__ __forceinline__ int first_k() const { return along_k ? run_ * Layout::run_elements : row_; }
  static __device__ __forceinline__ int k_of_pass(int i) { return along_k ? 0 : i * rows_per_pass; }
  /// Rows that are a multiple of 8 apart permute their runs alike.
  __device__ __forceinline__ int offset_of_pass(int i) const {
    if constexpr (rows_per_pass % 8 == 0)
      return Layout::offset(row_, run_) + i * rows_per_pass * Layout::runs_per_row * tile::run_bytes;
    return Layout::offset(row_ + i * rows_per_pass, run_);
  }

  template <bool whole>
  __device__ __forceinline__ void walk(int k, unsigned char* shared) const {
#pragma unroll
    for (int i = 0; i < passes; ++i)
      source_.template copy_run<whole>(cursors_[along_k ? i : 0], k_of_pass(i), k + first_k() + k_of_pass(i),
                                       shared + offset_of_pass(i));
  }

  const Source& source_;
  int row_, run_;
  typename CursorOf<Source, walks>::Type cursors_[cursors];
};

/// Both operands of a tile, in a ring of `stages` slices in dynamic shared memory. Every thread of the block
/// makes the same calls:
///   start();
///   for each slice { arrive(); request(); use a() and b(); release(); }
/// where the last use of a slice may also come after the next arrive(), if by then it is in registers.
template <class SourceA, class SourceB, int m, int n, int threads, int stages>
class TilePipeline {
  using CopierA = SliceCopier<SourceA, m, threads>;
  using CopierB = SliceCopier<SourceB, n, threads>;

 public:
  using LayoutA = typename CopierA::Layout;
  using LayoutB = typename CopierB::Layout;
  static constexpr int stage_bytes = LayoutA::bytes + LayoutB::bytes;
  static constexpr int shared_bytes = stages * stage_bytes;

  __device__ __forceinline__ TilePipeline(const SourceA& a, const SourceB& b, std::int64_t batch, int first_m,
                                          int first_n, int slices)
      : a_(a, batch, first_m), b_(b, batch, first_n), slices_(slices) {}

  /// Asks for the first slices.
  __device__ __forceinline__ void start() {
#pragma unroll 1
    for (int stage = 0; stage < stages - 1; ++stage) request();
  }

  /// Requests one slice more, in the place of the one that was released last. One group of copies each time,
  /// an empty one after the end: so the newest stages - 2 groups are never the ones needed next.
  __device__ __forceinline__ void request() {
    if (requested_ < slices_) {
      unsigned char* const stage = dynamic_shared<unsigned char>() + write_ * stage_bytes;
      a_.copy(requested_ * LayoutA::k, stage);
      b_.copy(requested_ * LayoutA::k, stage + LayoutA::bytes);
    }
    ++requested_;
    write_ = write_ + 1 == stages ? 0 : write_ + 1;
    commit_copies();
  }

  /// Waits until the oldest unreleased slice is there for the whole block, and all threads are done with the
  /// one before it.
  __device__ __forceinline__ void arrive() const {
    wait_for_copies<stages - 2>();
    __syncthreads();
  }

  /// The slice in use.
  __device__ __forceinline__ const unsigned char* a() const {
    return dynamic_shared<unsigned char>() + read_ * stage_bytes;
  }
  __device__ __forceinline__ const unsigned char* b() const { return a() + LayoutA::bytes; }

  /// Goes on to the next slice.
  __device__ __forceinline__ void release() { read_ = read_ + 1 == stages ? 0 : read_ + 1; }

 private:
  CopierA a_;
  CopierB b_;
  int slices_;
  int requested_ = 0;
  int write_ = 0;
  int read_ = 0;
};

}  // namespace fp16lab::engine::gpu
