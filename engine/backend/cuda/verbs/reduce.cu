// Reductions in TREE order.
//
// Rows (the reduced axis is the last one) are read along the lanes of warps; columns by blocks whose threads
// are as many columns as a line of memory holds, times TREE's 32 lanes. A longer one leaves chunk results in
// scratch memory, which are reduced by the same rule, level by level; or stays with one block, where there
// are rows enough.
#include <type_traits>

#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/tree_kernels.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t row_threads = 128;       // 4 warps: even few chunks spread over many multiprocessors
constexpr std::uint32_t long_row_threads = 512;  // 16 warps for the up to 1024 chunks of a row
constexpr std::int64_t chunks_for_a_block = 32;  // rows of so few chunks need no second launch

template <class To>
__device__ __forceinline__ To stored_result(float result) {
  return stored<To>(canonicalize(result));
}

/// out[row] = op over x[row, 0 .. extent), extent <= width, a power of two up to 32. `width` lanes of a warp
/// for each row: lanes that have no element take no part in TREE's fold, so the first folds of wider
/// distances do nothing.
template <class From, class To, class Op>
__global__ void __launch_bounds__(row_threads)
    reduce_short_rows(const From* x, std::int64_t rows, int extent, int width, To* out) {
  const int lane = static_cast<int>(threadIdx.x) & (width - 1);
  const std::int64_t rows_per_block = static_cast<int>(row_threads) / width;
  for (std::int64_t first = blockIdx.x * rows_per_block; first < rows; first += gridDim.x * rows_per_block) {
    const std::int64_t row = first + static_cast<int>(threadIdx.x) / width;
    float result = row < rows && lane < extent ? loaded(x[row * extent + lane]) : 0.0f;
    for (int distance = width / 2; distance > 0; distance /= 2) {
      const float later = __shfl_down_sync(0xffffffffu, result, static_cast<unsigned>(distance), width);
      if (lane < distance && lane + distance < extent) result = Op{}(result, later);
    }
    if (row < rows && lane == 0) out[row] = stored_result<To>(result);
  }
}

/// out[row, chunk] = op over chunk `chunk` of x[row, 0 .. extent). A warp for each.
template <class From, class To, class Op>
__global__ void __launch_bounds__(row_threads)
    reduce_chunks(const From* x, std::int64_t rows, std::int64_t extent, std::int64_t chunks, To* out) {
  const std::int64_t tasks = rows * chunks, warps = std::int64_t{gridDim.x} * (row_threads / 32);
  for (std::int64_t task = std::int64_t{blockIdx.x} * (row_threads / 32) + threadIdx.x / 32; task < tasks;
       task += warps) {
    const std::int64_t row = chunks == 1 ? task : task / chunks;
    const From* const values = x + row * extent;
    const float result = reduce_chunk_by_warp<float>(
        extent, task - row * chunks, [=](std::int64_t i) { return loaded(values[i]); }, Op{});
    if (threadIdx.x % 32 == 0) out[task] = stored_result<To>(result);
  }
}

/// out[row] = op over x[row, 0 .. extent). A block for each.
template <class From, class To, class Op>
__global__ void __launch_bounds__(long_row_threads)
    reduce_long_rows(const From* x, std::int64_t rows, std::int64_t extent, To* out) {
  __shared__ TreeScratch<float> scratch;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const From* const values = x + row * extent;
    const float result = reduce_by_block<float>(
        extent, [=](std::int64_t i) { return loaded(values[i]); }, Op{}, scratch);
    if (threadIdx.x == 0) out[row] = stored_result<To>(result);
  }
}

/// x (outer, extent, inner): tasks of `width` columns of one chunk.
struct ColumnPlan {
  std::int64_t outer, extent, inner;
  std::int64_t chunks, column_blocks;
};

/// out[outer, chunk, column] = op over chunk `chunk` of x[outer, 0 .. extent, column]. Blocks of 32 x width
/// threads, width a power of two up to 32: thread (lane, column) is TREE's lane of that column, so that a
/// warp reads along the rows.
template <class From, class To, class Op>
__global__ void __launch_bounds__(1024) reduce_columns(const From* x, ColumnPlan plan, To* out) {
  __shared__ float lanes[tree_lane_count][33];  // 33: the lanes of a column are in different banks
  const int width = static_cast<int>(blockDim.x) / tree_lane_count;
  const int column = static_cast<int>(threadIdx.x) & (width - 1),
            lane = static_cast<int>(threadIdx.x) / width;
  const int warp = static_cast<int>(threadIdx.x) / 32, warp_lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t tasks = plan.outer * plan.chunks * plan.column_blocks;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t run = task / plan.column_blocks;  // outer * chunks + chunk
    const std::int64_t left = (task - run * plan.column_blocks) * width;
    const std::int64_t outer = run / plan.chunks;
    const std::int64_t first = (run - outer * plan.chunks) * tree_chunk_size;
    const int count =
        plan.extent - first < tree_chunk_size ? static_cast<int>(plan.extent - first) : tree_chunk_size;
    if (left + column < plan.inner && lane < count) {
      const From* const values = x + (outer * plan.extent + first) * plan.inner + left + column;
      float result = loaded(values[lane * plan.inner]);
#pragma unroll 8
      for (int row = lane + tree_lane_count; row < count; row += tree_lane_count)
        result = Op{}(result, loaded(values[row * plan.inner]));
      lanes[lane][column] = result;
    }
    __syncthreads();
    // As many warps as columns: each folds one.
    const float result =
        fold_warp(lanes[warp_lane][warp], count < tree_lane_count ? count : tree_lane_count, Op{});
    if (warp_lane == 0 && left + warp < plan.inner)
      out[run * plan.inner + left + warp] = stored_result<To>(result);
    __syncthreads();
  }
}

/// Reduces as far as one launch goes: `write` to the output, or to chunk results that `next` takes on.
template <class Op>
class Reduction {
 public:
  explicit Reduction(CudaBackend& backend) : backend_(&backend) {}

  /// out[row] = op over x[row, 0 .. extent).
  template <class From, class To>
  void rows(const From* x, std::int64_t count, std::int64_t extent, To* out) const {
    Runtime& runtime = backend_->runtime();
    const std::int64_t chunks = tree_chunks_of(extent);
    if (extent <= tree_lane_count) return launch_short_rows(x, count, static_cast<int>(extent), out);
    if (chunks == 1) return launch_chunks(x, count, extent, out);
    const bool many_rows = count >= 2 * runtime.device().multiprocessors;
    if ((many_rows || chunks <= chunks_for_a_block) && extent <= tree_block_limit) {
      launch(runtime, "reduce, long rows", &reduce_long_rows<From, To, Op>,
             {.x = blocks_for(count, 1), .threads = long_row_threads}, x, count, extent, out);
      return;
    }
    const Tensor results = backend_->empty({count * chunks}, DType::f32);
    launch_chunks(x, count, extent, elements<float>(results));
    rows<float>(elements<float>(results), count, chunks, out);
  }

  /// out[outer, column] = op over x[outer, 0 .. extent, column].
  template <class From, class To>
  void columns(const From* x, std::int64_t outer, std::int64_t extent, std::int64_t inner, To* out) const {
    const std::int64_t chunks = tree_chunks_of(extent);
    if (chunks == 1) return launch_columns(x, outer, extent, inner, out);
    const Tensor results = backend_->empty({outer * chunks * inner}, DType::f32);
    launch_columns(x, outer, extent, inner, elements<float>(results));
    columns<float>(elements<float>(results), outer, chunks, inner, out);
  }

 private:
  template <class From, class To>
  void launch_short_rows(const From* x, std::int64_t count, int extent, To* out) const {
    int width = tree_lane_count;
    while (width / 2 >= extent) width /= 2;
    launch(backend_->runtime(), "reduce, short rows", &reduce_short_rows<From, To, Op>,
           {.x = blocks_for(count, static_cast<int>(row_threads) / width), .threads = row_threads}, x, count,
           extent, width, out);
  }
  template <class From, class To>
  void launch_chunks(const From* x, std::int64_t count, std::int64_t extent, To* out) const {
    const std::int64_t chunks = tree_chunks_of(extent);
    launch(backend_->runtime(), "reduce, rows", &reduce_chunks<From, To, Op>,
           {.x = blocks_for(count * chunks, row_threads / 32), .threads = row_threads}, x, count, extent,
           chunks, out);
  }
  template <class From, class To>
  void launch_columns(const From* x, std::int64_t outer, std::int64_t extent, std::int64_t inner,
                      To* out) const {
    std::uint32_t width = 32;
    while (width / 2 >= inner) width /= 2;
    const ColumnPlan plan{outer, extent, inner, tree_chunks_of(extent), (inner + width - 1) / width};
    launch(backend_->runtime(), "reduce, columns", &reduce_columns<From, To, Op>,
           {.x = blocks_for(outer * plan.chunks * plan.column_blocks, 1), .threads = 32 * width}, x, plan,
           out);
  }

  CudaBackend* backend_;
};

template <class From, class To>
void reduce_to(CudaBackend& backend, ReduceOp op, const Tensor& x, const checks::ReducePlan& plan,
               const Tensor& out) {
  const auto with = [&](auto operation) {
    const Reduction<decltype(operation)> reduction(backend);
    const From* const from = elements<const From>(x);
    if (plan.inner == 1) {
      reduction.rows(from, plan.outer, plan.extent, elements<To>(out));
    } else {
      reduction.columns(from, plan.outer, plan.extent, plan.inner, elements<To>(out));
    }
  };
  switch (op) {
    case ReduceOp::sum:
      return with(TreeSum{});
    case ReduceOp::max:
      return with(TreeMax{});
  }
}

}  // namespace

void CudaBackend::do_reduce(ReduceOp op, const Tensor& x, int, Tensor& out, CastProbe* probe,
                            const checks::ReducePlan& plan) {
  if (plan.extent == 0) {
    fill(out, 0.0);
    if (probe != nullptr) histogram(out, *probe);
    return;
  }
  const bool rounds_apart = probe != nullptr && out.dtype() != DType::f32;
  const Tensor result = rounds_apart ? empty(out.shape(), DType::f32) : out;
  if (out.element_count() > 0)
    with_element_type(x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      if (rounds_apart)
        reduce_to<T, float>(*this, op, x, plan, result);
      else
        reduce_to<T, T>(*this, op, x, plan, result);
    });
  if (probe != nullptr) store(result, out, probe);
}

}  // namespace fp16lab::engine::gpu
