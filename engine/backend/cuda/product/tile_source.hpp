// Sources: where a product's blocks get their operands from. And the plain one, a matrix in memory.
//
// **The contract of a source**, for authors of other ones (gathered patches of a convolution, say). A source
// is a POD (a kernel parameter, at most about 1 KB) with
//
//   using Element = ...;                        // Float16, BFloat16 or float
//   static constexpr tile::Runs runs = ...;     // along which axis its runs go
//   struct Cursor { ... };                      // a few registers
//   __device__ Cursor cursor(std::int64_t batch, int outer) const;
//   __device__ void copy_run(const Cursor& cursor, int k, void* shared) const;
//
// `cursor` decodes what does not depend on k, once for each tile: `outer` is m for operand A, n for B, and
// the first of a run for runs along the outer axis. It may be at or after the operand's end (a tile sticks
// out); it is never negative. `copy_run` writes all 16 bytes at `shared` (16-byte aligned) with a run: for
// runs along k the elements (outer, k), (outer, k + 1), ...; for runs along the outer axis (outer, k), (outer
// + 1, k), .... `k` is a multiple of the run's length for runs along k, any number for the others. What the
// operand does not have, past the end of either axis or a hole within it, is +0: padding of k must be +0 in
// *both* operands, or Inf * 0 would leak in. `k` is the logical one: a source may gather from anywhere, but
// never permutes k. It writes with copy_16_bytes_async where 16 bytes are adjacent and aligned (zeros after
// `valid` are free), else with plain loads and store_run. Both are seen by the block after the pipeline's
// wait and barrier; it commits nothing and has no barrier itself, for it is called by threads in any
// combination.
//
// A source with evenly spaced runs along k may also have a Walker, which the pipeline takes instead: it costs
// a thread two additions for a run of a whole slice (see MatrixSource):
//
//   struct Walker { ... }; __device__ Walker walker(std::int64_t batch, int outer, int k) const;  // at a
//   thread's first run of the first slice template <bool whole> __device__ void copy_run(const Walker&
//   walker, int k_after, int k, void* shared) const;
//                                      // the run k_after further on; k as above; whole: the operand has the
//                                      whole slice
//   __device__ void advance(Walker& walker, int k) const;
//   std::int32_t k_extent;
//
// Callers query operand A of a product only for m < padded m, B likewise for n, and both for k < K rounded up
// to tile::slice_bytes.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/tile_layout.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"

namespace fp16lab::engine::gpu {

/// 16 bytes of elements, moved as one.
template <class T>
struct alignas(tile::run_bytes) Run {
  static constexpr int size = tile::run_bytes / static_cast<int>(sizeof(T));
  T elements[size];
};

/// The plain way to write a run.
template <class T>
__device__ __forceinline__ void store_run(void* shared, const Run<T>& run) {
  *static_cast<Run<T>*>(shared) = run;
}

/// The first `count` elements from `from`, then +0; count may be negative or more than a run. `aligned`:
/// `from` is at a multiple of 16 bytes (where count > 0).
template <class T>
__device__ __forceinline__ void copy_elements(const T* from, int count, bool aligned, void* shared) {
  constexpr int size = Run<T>::size;
  count = count < 0 ? 0 : count > size ? size : count;
  if (aligned) {
    copy_16_bytes_async(shared, from, count * static_cast<int>(sizeof(T)));
  } else {
    Run<T> run;
#pragma unroll
    for (int i = 0; i < size; ++i) run.elements[i] = i < count ? from[i] : T{};
    store_run(shared, run);
  }
}

/// Do all rows of a matrix begin at a multiple of 16 bytes? Kernels that know do not ask at every run.
enum class RowStart : std::uint8_t {
  flagged,   ///< MatrixSource::aligned says so
  aligned,   ///< yes
  anywhere,  ///< perhaps not
};

/// A matrix of a batch, stored row-major: rows are the outer axis (runs along k) or k (runs along the outer
/// axis).
template <class T, tile::Runs stored_runs, RowStart row_start = RowStart::flagged>
struct MatrixSource {
  using Element = T;
  static constexpr tile::Runs runs = stored_runs;

  const T* data;
  std::int64_t leading_dimension;  ///< elements between rows
  std::int64_t batch_stride;       ///< elements between products
  std::int32_t outer_extent;
  std::int32_t k_extent;
  bool aligned = false;  ///< data and strides are multiples of 16 bytes; for RowStart::flagged

  struct Cursor {
    const T* from;  ///< (outer, 0); null past the end
    int count;      ///< elements from there along the outer axis
  };

  __device__ __forceinline__ Cursor cursor(std::int64_t batch, int outer) const {
    if (outer >= outer_extent) return {nullptr, 0};
    return {data + batch * batch_stride + (runs == tile::Runs::along_k ? outer * leading_dimension : outer),
            outer_extent - outer};
  }

  __device__ __forceinline__ void copy_run(const Cursor& cursor, int k, void* shared) const {
    const bool there = cursor.from != nullptr && k < k_extent;
    const std::int64_t step = runs == tile::Runs::along_k ? k : k * leading_dimension;
    const int count = runs == tile::Runs::along_k ? k_extent - k : cursor.count;
    const bool in_runs = row_start == RowStart::aligned || (row_start == RowStart::flagged && aligned);
    copy_elements(there ? cursor.from + step : data, there ? count : 0, in_runs, shared);
  }

  /// At a run; if the operand has nothing of it, `from` may be anywhere, for nothing is read then.
  struct Walker {
    const T* from;
    int bytes;  ///< that the operand has of the run, as far as its outer axis goes
  };

  __device__ __forceinline__ Walker walker(std::int64_t batch, int outer, int k) const
      requires(row_start == RowStart::aligned) {
    const Cursor first = cursor(batch, outer);
    if (first.from == nullptr) return {data, 0};
    constexpr int size = Run<T>::size;
    const int count = runs == tile::Runs::along_k || first.count > size ? size : first.count;
    return {first.from + k * k_stride(), count * static_cast<int>(sizeof(T))};
  }

  template <bool whole>
  __device__ __forceinline__ void copy_run(const Walker& walker, int k_after, int k, void* shared) const {
    int bytes = walker.bytes;
    if (!whole) {
      const int left = k_extent - k < 0 ? 0 : k_extent - k;
      if (runs == tile::Runs::along_outer && left == 0) bytes = 0;
      if (runs == tile::Runs::along_k && left < Run<T>::size && bytes > 0)
        bytes = left * static_cast<int>(sizeof(T));
    }
    copy_16_bytes_async(shared, walker.from + k_after * k_stride(), bytes);
  }

  __device__ __forceinline__ void advance(Walker& walker, int k) const { walker.from += k * k_stride(); }

 private:
  __device__ __forceinline__ std::int64_t k_stride() const {
    return runs == tile::Runs::along_k ? 1 : leading_dimension;
  }
};

}  // namespace fp16lab::engine::gpu
