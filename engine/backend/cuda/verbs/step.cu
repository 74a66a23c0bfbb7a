// The scalars of a step, and the passes over all gradients: unscale and check, norm, clip. Nothing here waits
// but read_step_state: factors, norms and decisions stay in device memory.
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/gradient_table.hpp"
#include "engine/backend/cuda/verbs/tree_kernels.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/gradient_passes.hpp"

namespace fp16lab::engine::gpu {

namespace {

StepState* state_in(const Tensor& step) { return reinterpret_cast<StepState*>(step.data()); }

__global__ void write_scale(const StepState* state, float* out) {
  *out = canonicalize(static_cast<float>(state->scale));
}

// ---- passes over the elements of all gradients ----

/// change(x) -> new value, for the block's share of `count` elements at `values`, in place.
template <class T, class Change>
__device__ __forceinline__ void change_elements(T* values, std::int64_t count, bool aligned, Change& change) {
  constexpr int width = widest_pack<T>;
  std::int64_t done = 0;
  if (aligned) {
    done = count - count % width;
    for (std::int64_t i = std::int64_t{threadIdx.x} * width; i < done;
         i += std::int64_t{blockDim.x} * width) {
      Pack<T, width> pack = load_pack<width>(values + i);
      for (T& value : pack.values) value = stored<T>(change(loaded(value)));
      store_pack<width>(values + i, pack);
    }
  }
  for (std::int64_t i = done + threadIdx.x; i < count; i += blockDim.x)
    values[i] = stored<T>(change(loaded(values[i])));
}

/// Each thread that finds an infinity or a NaN stores a flag: plain stores of the same value race, too.
template <class Pass>
__global__ void change_gradients(GradientTable table, StepState* state, double limit, int optimizer) {
  if (!Pass::applies(state, limit)) return;
  const Pass pass = Pass::of(state, limit);
  std::uint32_t largest = 0;  // the magnitudes' bits: NaN is above infinity, infinity above every number
  auto change = [&](float x) {
    if constexpr (Pass::notes_overflow) {
      const std::uint32_t magnitude = bits_of(x) & Binary32::magnitude_mask;
      largest = magnitude > largest ? magnitude : largest;
    }
    return pass(x);
  };
  for (std::int64_t chunk = blockIdx.x; chunk < table.chunks(); chunk += gridDim.x) {
    const int tensor = tensor_of_chunk(table, chunk);
    const std::int64_t first = (chunk - table.first_chunk[tensor]) * GradientTable::chunk;
    const std::int64_t left = table.elements[tensor] - first;
    const std::int64_t count = left < GradientTable::chunk ? left : GradientTable::chunk;
    const bool aligned = table.aligned[tensor] != 0;
    if (table.dtype[tensor] == DType::f32)
      change_elements(reinterpret_cast<float*>(table.address[tensor]) + first, count, aligned, change);
    else if (table.dtype[tensor] == DType::f16)
      change_elements(reinterpret_cast<Float16*>(table.address[tensor]) + first, count, aligned, change);
    else
      change_elements(reinterpret_cast<BFloat16*>(table.address[tensor]) + first, count, aligned, change);
  }
  if constexpr (Pass::notes_overflow)
    if (largest >= Binary32::infinity)
      atomicMax(reinterpret_cast<unsigned*>(&state->found_inf[static_cast<std::size_t>(optimizer)]),
                0x3f800000u);
}

// ---- the norm: TREE of FP64 squares, tensor by tensor, then the tensors in order ----

constexpr int lanes = tree_lane_count;
constexpr int tree_chunks = static_cast<int>(GradientTable::chunk / tree_chunk_size);  // in a table's chunk
static_assert(GradientTable::chunk % tree_chunk_size == 0);

template <class T>
__device__ __forceinline__ double squares_of_chunk(const T* values, int count) {
  const auto square = [values](int i) {
    const auto value = static_cast<double>(loaded(values[i]));
    return value * value;  // exact: 2 * 24 bits
  };
  return reduce_chunk_by_warp<double>(count, square, TreeSum{});
}

/// Level one: a warp for each of TREE's chunks, tree_chunks of them in a block. Tensor i's results begin at
/// sums[tree_chunks * first_chunk[i]].
__global__ void __launch_bounds__(tree_chunks* lanes) sum_squares(GradientTable table, double* sums) {
  const std::int64_t warp = threadIdx.x / lanes;
  for (std::int64_t chunk = blockIdx.x; chunk < table.chunks(); chunk += gridDim.x) {
    const int tensor = tensor_of_chunk(table, chunk);
    const std::int64_t first =
        (chunk - table.first_chunk[tensor]) * GradientTable::chunk + warp * tree_chunk_size;
    const std::int64_t left = table.elements[tensor] - first;
    if (left <= 0) continue;
    const int count = left < tree_chunk_size ? static_cast<int>(left) : tree_chunk_size;
    double sum = 0.0;
    if (table.dtype[tensor] == DType::f32)
      sum = squares_of_chunk(reinterpret_cast<const float*>(table.address[tensor]) + first, count);
    else if (table.dtype[tensor] == DType::f16)
      sum = squares_of_chunk(reinterpret_cast<const Float16*>(table.address[tensor]) + first, count);
    else
      sum = squares_of_chunk(reinterpret_cast<const BFloat16*>(table.address[tensor]) + first, count);
    if (threadIdx.x % lanes == 0) sums[chunk * tree_chunks + warp] = sum;
  }
}

constexpr int tensor_threads = 512;

/// The levels above: a block for each tensor; results[i] is tensor i's sum of squares.
__global__ void __launch_bounds__(tensor_threads)
    sum_chunks(GradientTable table, const double* sums, double* results) {
  __shared__ TreeScratch<double> scratch;
  const int tensor = static_cast<int>(blockIdx.x);
  const double* const values = sums + tree_chunks * table.first_chunk[tensor];
  const std::int64_t chunks = tree_chunks_of(table.elements[tensor]);
  double sum = 0.0;
  if (chunks > 0)
    sum = reduce_by_block<double>(
        chunks, [values](std::int64_t i) { return values[i]; }, TreeSum{}, scratch);
  if (threadIdx.x == 0) results[tensor] = sum;
}

constexpr int total_threads = 256;

/// grad_norm = the root of the tensors' sums, added in their order; one block.
__global__ void take_root(const double* results, std::int64_t tensors, StepState* state) {
  __shared__ double part[total_threads];
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < tensors; begin += total_threads) {
    const std::int64_t left = tensors - begin;
    const int count = left < total_threads ? static_cast<int>(left) : total_threads;
    const int self = static_cast<int>(threadIdx.x);
    if (self < count) part[self] = results[begin + self];
    __syncthreads();
    if (self == 0)
      for (int i = 0; i < count; ++i) sum = sum + part[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) state->grad_norm = canonicalize(functions::square_root_f64(sum));
}

}  // namespace

void CudaBackend::do_fill_scale(const Tensor& step, Tensor& out) {
  launch(runtime_, "fill_scale", &write_scale, {.threads = 1}, state_in(step), elements<float>(out));
}

void CudaBackend::do_gradient_pass(const GradientPassCall& call) {
  StepState* const state = call.step == nullptr ? nullptr : state_in(*call.step);
  using Kernel = void (*)(GradientTable, StepState*, double, int);
#define FP16LAB_PASS(name, functor) &change_gradients<functions::passes::functor>,
  static constexpr Kernel kernels[] = {FP16LAB_GRADIENT_PASSES(FP16LAB_PASS)};
#undef FP16LAB_PASS
  for_each_table(call.gradients, [&](const GradientTable& table, std::size_t) {
    launch(runtime_, kernel_name(call.pass), kernels[static_cast<std::size_t>(call.pass)],
           {.x = blocks_for(table.chunks(), 1), .threads = 256}, table, state, call.limit, call.optimizer);
  });
}

void CudaBackend::do_global_norm(std::span<const Tensor> gradients, Tensor& step) {
  const auto tensors = static_cast<std::int64_t>(gradients.size());
  Tensor results_memory;
  double* const results = scratch<double>(tensors, results_memory);
  for_each_table(gradients, [&](const GradientTable& table, std::size_t begin) {
    Tensor sums_memory;
    double* const sums = scratch<double>(table.chunks() * tree_chunks, sums_memory);
    launch(runtime_, "global_norm", &sum_squares,
           {.x = blocks_for(table.chunks(), 1), .threads = tree_chunks * lanes}, table, sums);
    launch(runtime_, "global_norm", &sum_chunks,
           {.x = static_cast<std::uint32_t>(table.tensors), .threads = tensor_threads}, table, sums,
           results + begin);
  });
  launch(runtime_, "global_norm", &take_root, {.threads = total_threads}, results, tensors, state_in(step));
}

}  // namespace fp16lab::engine::gpu
