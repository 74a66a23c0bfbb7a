// Elements and rows by index: pick and place, gather and scatter.
//
// Indices are checked where they are used. One that is out of range reads and writes nothing, is noted in
// device memory, and thrown after the next wait.
//
// scatter_rows sorts (id, position) stably, by CUB's radix sort, so that the positions of an id are adjacent
// in ascending order; then every id's segment is one TREE for each column. Most segments are short: a thread
// keeps TREE's 32 lanes of a column in its registers. The others are put on a list, and a block of 32 lanes x
// 32 columns takes each.
#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/index_fault.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/tree_kernels.hpp"
// fp16lab::cub: a namespace of ours, so that no kernel's name holds the list of architectures and nvcc's PTX
// for one of them has the names of the library for several (CUB, util_namespace.cuh).
#define THRUST_CUB_WRAPPED_NAMESPACE fp16lab
#include <cub/device/device_radix_sort.cuh>

namespace fp16lab::engine::gpu {

namespace {

std::string_view name_of(IndexVerb verb) {
  switch (verb) {
    case IndexVerb::pick:
      return "pick";
    case IndexVerb::place:
      return "place";
    case IndexVerb::gather_rows:
      return "gather_rows";
    case IndexVerb::scatter_rows:
      return "scatter_rows";
    case IndexVerb::pool_pick:
      return "pool_pick";
    default:
      return "pool_place";
  }
}

constexpr std::uint32_t block_threads = 256;
constexpr std::int64_t warps_per_block = block_threads / 32;

/// x with a NaN made canonical.
template <class T>
__device__ __forceinline__ T canonical_element(T x) {
  return stored<T>(canonicalize(loaded(x)));
}

/// out[row] = x[row, index[row]].
template <class T>
__global__ void pick_elements(const T* x, const std::int32_t* index, std::int64_t rows, std::int64_t columns,
                              T* out, IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const std::int32_t column = index[row];
    if (index_in_range(check, row, column)) out[row] = canonical_element(x[row * columns + column]);
  }
}

/// out[row, index[row]] = x[row].
template <class T>
__global__ void place_elements(const T* x, const std::int32_t* index, std::int64_t rows, std::int64_t columns,
                               T* out, IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const std::int32_t column = index[row];
    if (index_in_range(check, row, column)) out[row * columns + column] = canonical_element(x[row]);
  }
}

/// out[i] = row index[i] of the table, by a warp; rows of `packs` packs of `width` elements.
template <int width, class T>
__global__ void gather(const T* table, const std::int32_t* index, std::int64_t count, std::int64_t packs,
                       T* out, IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * warps_per_block;
  const std::int64_t lane = threadIdx.x % 32;
  for (std::int64_t i = std::int64_t{blockIdx.x} * warps_per_block + threadIdx.x / 32; i < count;
       i += stride) {
    const std::int32_t row = index[i];
    if (!index_in_range(check, i, row)) continue;
    const T* const from = table + row * packs * width;
    T* const to = out + i * packs * width;
    for (std::int64_t j = lane; j < packs; j += 32) {
      if constexpr (width == 1) {
        to[j] = canonical_element(from[j]);
      } else {
        Pack<T, width> pack = load_pack<width>(from + j * width);
        for (T& value : pack.values) value = canonical_element(value);
        store_pack<width>(to + j * width, pack);
      }
    }
  }
}

// ---- scatter: sorting ----

/// Where an id's entries are in the sorted order; both 0 where it has none.
struct Segment {
  std::uint32_t first, end;
};

/// keys[i] = index[i], or `rows`, after all others, if it is out of range; positions[i] = i.
__global__ void number_entries(const std::int32_t* index, std::uint32_t count, std::uint32_t rows,
                               std::uint32_t* keys, std::uint32_t* positions, IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const std::int32_t id = index[i];
    keys[i] = index_in_range(check, i, id) ? static_cast<std::uint32_t>(id) : rows;
    positions[i] = static_cast<std::uint32_t>(i);
  }
}

struct Entries {
  std::uint32_t *keys, *positions;
};

/// Stable, by the lowest `bits` bits of the keys. Ordered on the stream.
void sort_entries(Runtime& runtime, CudaBackend& backend, const Entries& from, const Entries& to,
                  std::uint32_t count, int bits) {
  const auto sort = [&](void* temporary, std::size_t& bytes) {
    const cudaError_t error =
        cub::DeviceRadixSort::SortPairs(temporary, bytes, from.keys, to.keys, from.positions, to.positions,
                                        count, 0, bits, static_cast<cudaStream_t>(runtime.stream()));
    if (error != cudaSuccess) throw DeviceFailure(std::string("scatter_rows: ") + cudaGetErrorString(error));
  };
  std::size_t bytes = 0;
  sort(nullptr, bytes);
  const Tensor temporary = backend.empty({static_cast<std::int64_t>(bytes)}, DType::u8);
  sort(temporary.data(), bytes);
}

/// segments[id] for the ids below `rows` that have entries.
__global__ void find_segments(const std::uint32_t* sorted, std::uint32_t count, std::uint32_t rows,
                              Segment* segments) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const std::uint32_t id = sorted[i];
    if (id == rows) continue;
    if (i == 0 || sorted[i - 1] != id) segments[id].first = static_cast<std::uint32_t>(i);
    if (i + 1 == count || sorted[i + 1] != id) segments[id].end = static_cast<std::uint32_t>(i + 1);
  }
}

// ---- scatter: sums ----

constexpr std::uint32_t longest_short_segment = 128;

/// x (n, columns), in sorted order.
template <class T>
struct SortedRows {
  const T* x;
  const std::uint32_t* positions;
  std::int64_t columns;
  __device__ __forceinline__ float at(std::int64_t i, std::int64_t column) const {
    return loaded(x[positions[i] * columns + column]);
  }
};

/// Rows of at most 128 entries, a warp for 32 columns of each, all of TREE's lanes in the registers of a
/// column's thread; the others go on the list.
template <class From, class To>
__global__ void sum_short_segments(SortedRows<From> sorted, const Segment* segments, std::int64_t rows,
                                   std::int64_t column_blocks, To* out, std::uint32_t* long_count,
                                   std::uint32_t* long_rows) {
  const std::int64_t stride = std::int64_t{gridDim.x} * warps_per_block, tasks = rows * column_blocks;
  for (std::int64_t task = std::int64_t{blockIdx.x} * warps_per_block + threadIdx.x / 32; task < tasks;
       task += stride) {
    const std::int64_t row = task / column_blocks, column_block = task - row * column_blocks;
    const std::int64_t column = column_block * 32 + threadIdx.x % 32;
    const Segment segment = segments[row];
    const int count = static_cast<int>(std::min(segment.end - segment.first, longest_short_segment + 1));
    if (count > static_cast<int>(longest_short_segment)) {
      if (column == 0) long_rows[atomicAdd(long_count, 1u)] = static_cast<std::uint32_t>(row);
      continue;
    }
    if (column >= sorted.columns) continue;
    float sum = 0.0f;
    if (count == 1) {
      sum = sorted.at(segment.first, column);
    } else if (count > 1) {
      float lanes[tree_lane_count];
#pragma unroll
      for (int lane = 0; lane < tree_lane_count; ++lane)
        lanes[lane] = lane < count ? sorted.at(std::int64_t{segment.first} + lane, column) : 0.0f;
      for (int done = tree_lane_count; done < count; done += tree_lane_count)
#pragma unroll
        for (int lane = 0; lane < tree_lane_count; ++lane)
          if (done + lane < count)
            lanes[lane] =
                TreeSum{}(lanes[lane], sorted.at(std::int64_t{segment.first} + done + lane, column));
      fold_registers(lanes, count, TreeSum{});
      sum = lanes[0];
    }
    out[row * sorted.columns + column] = stored<To>(canonicalize(sum));
  }
}

/// Rows of more entries: blocks of 32 x width threads, width a power of two up to 32, for `width` columns of
/// a row. The chunks of a row follow each other; the warp that folds a column keeps TREE's upper levels of
/// it.
template <class From, class To>
__global__ void __launch_bounds__(1024)
    sum_long_segments(SortedRows<From> sorted, const Segment* segments, const std::uint32_t* long_count,
                      const std::uint32_t* long_rows, std::int64_t column_blocks, To* out) {
  __shared__ float lanes[tree_lane_count][33];  // 33: the lanes of a column are in different banks
  const int width = static_cast<int>(blockDim.x) / tree_lane_count;
  const int column = static_cast<int>(threadIdx.x) & (width - 1),
            lane = static_cast<int>(threadIdx.x) / width;
  const int warp = static_cast<int>(threadIdx.x) / 32, warp_lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t tasks = *long_count * column_blocks;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t row = long_rows[task / column_blocks], left = task % column_blocks * width;
    const Segment segment = segments[row];
    const bool single_chunk = segment.end - segment.first <= tree_chunk_size;
    UpperTreeLevels<float, TreeSum> upper;
    float sum = 0.0f;
    for (std::uint32_t first = segment.first; first < segment.end;) {
      const std::uint32_t left_over = segment.end - first;
      const int count = left_over < tree_chunk_size ? static_cast<int>(left_over) : tree_chunk_size;
      if (left + column < sorted.columns && lane < count) {
        float partial = sorted.at(std::int64_t{first} + lane, left + column);
#pragma unroll 4
        for (int i = lane + tree_lane_count; i < count; i += tree_lane_count)
          partial = TreeSum{}(partial, sorted.at(std::int64_t{first} + i, left + column));
        lanes[lane][column] = partial;
      }
      __syncthreads();
      sum = fold_warp(lanes[warp_lane][warp], count < tree_lane_count ? count : tree_lane_count, TreeSum{});
      if (!single_chunk) upper.append(sum);
      __syncthreads();
      first += static_cast<std::uint32_t>(count);
    }
    if (!single_chunk) sum = upper.finish();
    if (warp_lane == 0 && left + warp < sorted.columns)
      out[row * sorted.columns + left + warp] = stored<To>(canonicalize(sum));
  }
}

}  // namespace

IndexCheck CudaBackend::index_check(IndexVerb verb, const Tensor& index, std::int64_t limit) {
  // A fault keeps its row in 32 bits.
  if (index.element_count() > std::int64_t{0xffffffff})
    throw std::invalid_argument(std::string(name_of(verb)) + ": index is " + index.describe() +
                                "; the CUDA back end takes at most 4294967295 indices");
  if (++index_checks_ == 0) ++index_checks_;  // 0 means no check
  (runtime_.recording() ? fault_recorded_ : fault_possible_) = true;
  return {reinterpret_cast<IndexFault*>(fault_.data()), index_checks_, verb, limit};
}

void CudaBackend::raise_noted_fault() {
  if (!fault_possible_ && !fault_recorded_) return;
  fault_possible_ = false;
  IndexFault fault{};
  runtime_.copy_to_host(reinterpret_cast<std::byte*>(&fault), fault_.data(), sizeof(fault));
  if (fault.owner == 0) return;
  runtime_.set_bytes(fault_.data(), 0, sizeof(fault));
  const std::uint64_t packed = ~fault.inverse;
  checks::index_out_of_range(name_of(fault.verb), packed >> 32, static_cast<std::int32_t>(packed),
                             fault.limit);
}

void CudaBackend::do_pick(const Tensor& x, const Tensor& index, Tensor& out,
                          const checks::MatrixExtents& extents) {
  const IndexCheck check = index_check(IndexVerb::pick, index, extents.columns);
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(runtime_, "pick", &pick_elements<T>,
           {.x = blocks_for(extents.rows, block_threads), .threads = block_threads}, elements<const T>(x),
           elements<const std::int32_t>(index), extents.rows, extents.columns, elements<T>(out), check);
  });
}

void CudaBackend::do_place(const Tensor& x, const Tensor& index, Tensor& out,
                           const checks::MatrixExtents& extents) {
  const IndexCheck check = index_check(IndexVerb::place, index, extents.columns);
  if (out.byte_count() > 0) runtime_.set_bytes(out.data(), 0, out.byte_count());
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(runtime_, "place", &place_elements<T>,
           {.x = blocks_for(extents.rows, block_threads), .threads = block_threads}, elements<const T>(x),
           elements<const std::int32_t>(index), extents.rows, extents.columns, elements<T>(out), check);
  });
}

void CudaBackend::do_gather_rows(const Tensor& table, const Tensor& index, Tensor& out,
                                 const checks::MatrixExtents& extents) {
  const IndexCheck check = index_check(IndexVerb::gather_rows, index, extents.rows);
  const std::int64_t count = index.element_count();
  with_element_type(table.dtype(), [&](auto tag) {
    using T = decltype(tag);
    constexpr int widest = widest_pack<T>;
    const bool packs =
        extents.columns % widest == 0;  // tensors begin at multiples of 16 bytes, so do these rows
    launch(runtime_, "gather_rows", packs ? &gather<widest, T> : &gather<1, T>,
           {.x = blocks_for(count, warps_per_block), .threads = block_threads}, elements<const T>(table),
           elements<const std::int32_t>(index), count, packs ? extents.columns / widest : extents.columns,
           elements<T>(out), check);
  });
}

void CudaBackend::do_scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe,
                                  const checks::MatrixExtents& extents) {
  const IndexCheck check = index_check(IndexVerb::scatter_rows, index, extents.rows);
  const auto count = static_cast<std::uint32_t>(index.element_count());
  // i32 reaches no further, so the id after all others needs at most 32 bits.
  const auto rows = static_cast<std::uint32_t>(std::min(extents.rows, std::int64_t{1} << 31));
  const LaunchShape per_entry{.x = blocks_for(count, block_threads), .threads = block_threads};

  Tensor entries_holder, segments_holder;
  auto* const words = scratch<std::uint32_t>(std::int64_t{5} * count, entries_holder);
  const Entries unsorted{words, words + count},
      sorted{words + 2 * std::size_t{count}, words + 3 * std::size_t{count}};
  std::uint32_t* const long_rows = words + 4 * std::size_t{count};
  auto* const segments = scratch<Segment>(extents.rows + 1, segments_holder);  // then the count of long ones
  auto* const long_count = &segments[extents.rows].first;
  runtime_.set_bytes(segments_holder.data(), 0, segments_holder.byte_count());
  if (count > 0) {
    launch(runtime_, "scatter_rows, entries", &number_entries, per_entry, elements<const std::int32_t>(index),
           count, rows, unsorted.keys, unsorted.positions, check);
    sort_entries(runtime_, *this, unsorted, sorted, count, std::bit_width(rows));
    launch(runtime_, "scatter_rows, segments", &find_segments, per_entry, sorted.keys, count, rows, segments);
  }

  const bool rounds_apart = probe != nullptr && out.dtype() != DType::f32;
  const Tensor result = rounds_apart ? empty(out.shape(), DType::f32) : out;
  with_element_type(x.dtype(), [&](auto tag) {
    using From = decltype(tag);
    const SortedRows<From> rows_of_x{elements<const From>(x), sorted.positions, extents.columns};
    const auto sum_into = [&](auto* to) {
      using To = std::remove_pointer_t<decltype(to)>;
      const std::int64_t groups = (extents.columns + 31) / 32;
      launch(runtime_, "scatter_rows", &sum_short_segments<From, To>,
             {.x = blocks_for(extents.rows * groups, warps_per_block), .threads = block_threads}, rows_of_x,
             segments, extents.rows, groups, to, long_count, long_rows);
      if (count <= longest_short_segment || extents.columns == 0) return;  // there can be no long ones
      std::uint32_t width = 32;
      while (width > 1 && width / 2 >= extents.columns) width /= 2;
      const std::int64_t column_blocks = (extents.columns + width - 1) / width;
      launch(runtime_, "scatter_rows, long", &sum_long_segments<From, To>,
             {.x = blocks_for(count / (longest_short_segment + 1) * column_blocks, 1, 1024),
              .threads = 32 * width},
             rows_of_x, segments, long_count, long_rows, column_blocks, to);
    };
    if (rounds_apart)
      sum_into(elements<float>(result));
    else
      sum_into(elements<From>(result));
  });
  if (probe != nullptr) store(result, out, probe);
}

}  // namespace fp16lab::engine::gpu
