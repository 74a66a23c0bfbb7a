// Casts between f32, f16 and bf16, counted for a probe; and what other files share of them.
#include <type_traits>

#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/probe_counting.hpp"
#include "engine/backend/cuda/verbs/stochastic.hpp"
#include "engine/backend/elementwise_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t cast_threads = 256;

/// Between equal types the bits stay. A NaN that changes its type becomes the canonical one of the new type.
template <class From, class To>
__device__ __forceinline__ To converted(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<To, float>) {
    return canonicalize(loaded(x));
  } else {
    return stored<To>(loaded(x));
  }
}

/// 16 bytes of the wider type at a time, the last elements one by one. Both addresses are tensors': 16-byte
/// aligned.
template <class From, class To>
__global__ void cast_elements(const From* x, To* out, std::int64_t count, ProbeCounts* counts) {
  constexpr int width = sizeof(From) > sizeof(To) ? widest_pack<From> : widest_pack<To>;
  __shared__ BlockCounts shared;
  BlockProbe probe(shared, counts);
  const auto cast_one = [&](From from) {
    const To to = converted<From, To>(from);
    probe.count_before(loaded(from));
    probe.count_after(to);
    return to;
  };
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packs = count / width;
  for (std::int64_t i = first; i < packs; i += stride) {
    const Pack<From, width> from = load_pack<width>(x + i * width);
    Pack<To, width> to;
    for (int j = 0; j < width; ++j) to.values[j] = cast_one(from.values[j]);
    store_pack<width>(out + i * width, to);
  }
  // Fewer elements than a pack are left: no thread has two.
  if (const std::int64_t i = packs * width + first; i < count) out[i] = cast_one(x[i]);
  probe.flush();
}

template <class From, class To>
void cast_tensor(Runtime& runtime, const Tensor& x, const Tensor& out, ProbeCounts* counts) {
  constexpr int width = sizeof(From) > sizeof(To) ? widest_pack<From> : widest_pack<To>;
  const std::int64_t count = x.element_count();
  // A block that counts pays for its slots once: so many as are resident on the device at a time, and no
  // more.
  const std::int64_t resident = std::int64_t{8} * runtime.device().multiprocessors;
  const LaunchShape shape{.x = counts == nullptr ? blocks_for(count, cast_threads * width)
                                                 : blocks_for(count, cast_threads * width, resident),
                          .threads = cast_threads};
  launch(runtime, "cast", &cast_elements<From, To>, shape, elements<const From>(x), elements<To>(out), count,
         counts);
}

/// A thread takes 8 elements at a time: those of one Philox block. The iteration of the stream is that of
/// `step`.
template <class To>
__global__ void cast_elements_stochastically(const float* x, To* out, std::int64_t count, PhiloxStream stream,
                                             const StepState* step, ProbeCounts* counts) {
  constexpr int block = 8, width = widest_pack<float>;
  __shared__ BlockCounts shared;
  BlockProbe probe(shared, counts);
  stream.iteration = static_cast<std::uint32_t>(step->iteration);
  const auto cast_one = [&](float from, std::uint32_t random_bits) {
    const To to = rounded_stochastically<To>(from, random_bits);
    probe.count_before(from);
    probe.count_after(to);
    return to;
  };
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t blocks = count / block;
  for (std::int64_t i = first; i < blocks; i += stride) {
    const PhiloxCounter words = stream.block(static_cast<std::uint64_t>(i));
    Pack<To, block> to;
    for (int begin = 0; begin < block; begin += width) {
      const Pack<float, width> from = load_pack<width>(x + i * block + begin);
      for (int j = 0; j < width; ++j)
        to.values[begin + j] =
            cast_one(from.values[j], random_half(words[static_cast<std::size_t>((begin + j) / 2)], j));
    }
    store_pack<block>(out + i * block, to);
  }
  // Fewer elements than a block are left: no thread has two.
  if (const std::int64_t i = blocks * block + first; i < count)
    out[i] = cast_one(x[i], random_half(stream, i));
  probe.flush();
}

__global__ void round_to_tf32(const float* x, float* out, std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = functions::RoundToTf32{}(x[i]);
}

}  // namespace

Tensor CudaBackend::operand(const Tensor& x, bool tf32) {
  if (!tf32) return x;
  const Tensor rounded = empty(x.shape(), DType::f32);
  const std::int64_t count = x.element_count();
  const LaunchShape shape{.x = blocks_for(count, cast_threads), .threads = cast_threads};
  launch(runtime_, "round_to_tf32", &round_to_tf32, shape, elements<const float>(x), elements<float>(rounded),
         count);
  return rounded;
}

void CudaBackend::do_cast(const CastCall& call) {
  const Tensor &x = call.x, &out = call.out;
  const std::int64_t count = x.element_count();
  if (call.stream == nullptr) {
    if (call.probe == nullptr && x.dtype() == out.dtype()) return copy(x, call.out);
    ProbeCounts* const counts = counts_of(call.probe, count);
    return with_element_type(x.dtype(), [&](auto from) {
      with_element_type(
          out.dtype(), [&](auto to) { cast_tensor<decltype(from), decltype(to)>(runtime_, x, out, counts); });
    });
  }
  ProbeCounts* const counts = counts_of(call.probe, count);
  const std::int64_t resident = std::int64_t{8} * runtime_.device().multiprocessors;
  constexpr std::int64_t elements_of_block = std::int64_t{cast_threads} * 8;
  const LaunchShape shape{.x = counts == nullptr ? blocks_for(count, elements_of_block)
                                                 : blocks_for(count, elements_of_block, resident),
                          .threads = cast_threads};
  with_half_type(out.dtype(), [&](auto tag) {
    using To = decltype(tag);
    launch(runtime_, "cast_stochastic", &cast_elements_stochastically<To>, shape, elements<const float>(x),
           elements<To>(out), count, *call.stream, elements<const StepState>(*call.step), counts);
  });
}

void CudaBackend::store(const Tensor& wide, Tensor& out, CastProbe* probe) {
  if (wide.data() == out.data() && probe == nullptr) return;
  ProbeCounts* const counts = counts_of(probe, wide.element_count());
  with_element_type(out.dtype(),
                    [&](auto to) { cast_tensor<float, decltype(to)>(runtime_, wide, out, counts); });
}

Tensor CudaBackend::widened(const Tensor& x) {
  if (x.dtype() == DType::f32) return x;
  Tensor wide = empty(x.shape(), DType::f32);
  with_half_type(x.dtype(),
                 [&](auto from) { cast_tensor<decltype(from), float>(runtime_, x, wide, nullptr); });
  return wide;
}

}  // namespace fp16lab::engine::gpu
