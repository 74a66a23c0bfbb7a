// Elementwise arithmetic: the functions of engine/backend/elementwise_functions.hpp over whole tensors, which
// are 16-byte aligned.
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/elementwise_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t threads_per_block = 256;

/// A row of two operands, the second a number.
template <class Function>
struct WithScalar {
  float scalar;
  FP16LAB_HD float operator()(float x) const { return Function{}(x, scalar); }
};

// ---- one operand ----

/// out[i] = function(x[i]); out may be x.
template <class Function, class T>
__global__ void map_elements(const T* x, T* out, std::int64_t count, Function function) {
  constexpr int width = widest_pack<T>;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packs = count / width;
  for (std::int64_t i = first; i < packs; i += stride) {
    Pack<T, width> pack = load_pack<width>(x + i * width);
    for (int j = 0; j < width; ++j) pack.values[j] = stored<T>(function(loaded(pack.values[j])));
    store_pack<width>(out + i * width, pack);
  }
  // Fewer elements than a pack are left: no thread has two.
  if (const std::int64_t i = packs * width + first; i < count) out[i] = stored<T>(function(loaded(x[i])));
}

template <class Function>
void map_tensor(Runtime& runtime, const char* name, const Tensor& x, const Tensor& out, Function function) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t count = x.element_count();
    const LaunchShape shape{.x = blocks_for(count, std::int64_t{threads_per_block} * widest_pack<T>),
                            .threads = threads_per_block};
    launch(runtime, name, &map_elements<Function, T>, shape, elements<const T>(x), elements<T>(out), count,
           function);
  });
}

// ---- two operands ----

/// Where the operands of an output element are: BroadcastPlan with extents that divide quickly. The innermost
/// axis counts packs; its strides are 0 or 1.
struct BroadcastWalk {
  int rank = 1;
  functions::Divisor extents[Shape::max_rank];
  std::int64_t strides_a[Shape::max_rank] = {};
  std::int64_t strides_b[Shape::max_rank] = {};

  /// Element offsets of the operands of output pack `i`, of `width` elements.
  template <int width>
  __device__ __forceinline__ void offsets(std::int64_t i, std::int64_t& a, std::int64_t& b) const {
    std::int64_t rest = i;
    const std::int64_t inner = rank == 1 ? rest : extents[rank - 1].take(rest);
    a = inner * width * strides_a[rank - 1];
    b = inner * width * strides_b[rank - 1];
    for (int axis = rank - 2; axis >= 0; --axis) {
      const std::int64_t index = axis == 0 ? rest : extents[axis].take(rest);
      a += index * strides_a[axis];
      b += index * strides_b[axis];
    }
  }
};

/// `width` operands of one pack of outputs, or one operand `width` times.
template <int width, class T>
__device__ __forceinline__ Pack<T, width> operands_at(const T* address, bool advances) {
  if (advances) return load_pack<width>(address);
  Pack<T, width> pack;
  const T value = *address;
  for (int j = 0; j < width; ++j) pack.values[j] = value;
  return pack;
}

/// Outputs in packs; the rest of a single axis, one by one. out may be an operand with the same walk.
template <class Function, class T>
__global__ void combine_packs(const T* a, const T* b, T* out, std::int64_t count, BroadcastWalk walk) {
  constexpr int width = widest_pack<T>;
  constexpr Function function{};
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packs = count / width;
  const std::int64_t inner_a = walk.strides_a[walk.rank - 1], inner_b = walk.strides_b[walk.rank - 1];
  for (std::int64_t i = first; i < packs; i += stride) {
    std::int64_t offset_a, offset_b;
    walk.offsets<width>(i, offset_a, offset_b);
    const Pack<T, width> x = operands_at<width>(a + offset_a, inner_a != 0);
    const Pack<T, width> y = operands_at<width>(b + offset_b, inner_b != 0);
    Pack<T, width> result;
    for (int j = 0; j < width; ++j)
      result.values[j] = stored<T>(function(loaded(x.values[j]), loaded(y.values[j])));
    store_pack<width>(out + i * width, result);
  }
  if (const std::int64_t i = packs * width + first; i < count)  // fewer than a pack, and rank 1 only
    out[i] = stored<T>(function(loaded(a[i * inner_a]), loaded(b[i * inner_b])));
}

/// The same one by one, for rows that no packs fill.
template <class Function, class T>
__global__ void combine_elements(const T* a, const T* b, T* out, std::int64_t count, BroadcastWalk walk) {
  constexpr Function function{};
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::int64_t offset_a, offset_b;
    walk.offsets<1>(i, offset_a, offset_b);
    out[i] = stored<T>(function(loaded(a[offset_a]), loaded(b[offset_b])));
  }
}

/// Rows of whole packs begin at multiples of a pack in every operand that advances along them: its other
/// strides are multiples of the row's length, or 0.
bool fills_packs(const BroadcastPlan& plan, int width) {
  return plan.rank == 1 || plan.inner_extent() % width == 0;
}

BroadcastWalk walk_of(const BroadcastPlan& plan, int width) {
  BroadcastWalk walk;
  walk.rank = plan.rank;
  for (int axis = 0; axis < plan.rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const bool inner = axis == plan.rank - 1 && axis > 0;
    const std::int64_t extent = inner ? plan.extents[at] / width : plan.extents[at];
    walk.extents[axis] = functions::Divisor(extent > 0 ? extent : 1);
    walk.strides_a[axis] = plan.strides_a[at];
    walk.strides_b[axis] = plan.strides_b[at];
  }
  return walk;
}

template <class Function, class T>
void combine_tensors(Runtime& runtime, const char* name, const BroadcastPlan& plan, const Tensor& a,
                     const Tensor& b, const Tensor& out) {
  const std::int64_t count = out.element_count();
  const bool packed = fills_packs(plan, widest_pack<T>);
  const int width = packed ? widest_pack<T> : 1;
  const LaunchShape shape{.x = blocks_for(count, std::int64_t{threads_per_block} * width),
                          .threads = threads_per_block};
  launch(runtime, name, packed ? &combine_packs<Function, T> : &combine_elements<Function, T>, shape,
         elements<const T>(a), elements<const T>(b), elements<T>(out), count, walk_of(plan, width));
}

}  // namespace

void CudaBackend::do_unary(UnaryOp op, const Tensor& x, Tensor& out) {
  functions::visit(op, [&](auto function) { map_tensor(runtime_, kernel_name(op), x, out, function); });
}

void CudaBackend::do_binary(const BinaryCall& call, const BroadcastPlan& plan) {
  functions::visit(call.op, [&](auto function) {
    using Function = decltype(function);
    if (call.b == nullptr)
      return map_tensor(runtime_, kernel_name(call.op), call.a, call.out, WithScalar<Function>{call.scalar});
    with_element_type(call.out.dtype(), [&](auto tag) {
      combine_tensors<Function, decltype(tag)>(runtime_, kernel_name(call.op), plan, call.a, *call.b,
                                               call.out);
    });
  });
}

}  // namespace fp16lab::engine::gpu
