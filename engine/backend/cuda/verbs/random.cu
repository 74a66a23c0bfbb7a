// Random fills: Philox words of the logical element index, 16 bytes of output by one thread.
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/elementwise_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

/// `step`, where it is not null, gives the iteration of the stream: a recorded step draws anew each time.
template <class Distribution, class T>
__global__ void fill_random(T* out, std::int64_t count, PhiloxStream stream, const StepState* step,
                            Distribution distribution) {
  constexpr int width = widest_pack<T>;
  constexpr int blocks = width * Distribution::words / 4;  // of Philox, for the elements of a pack
  if (step != nullptr) stream.iteration = static_cast<std::uint32_t>(step->iteration);
  const std::int64_t packs = (count + width - 1) / width;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += stride) {
    std::uint32_t words[width * Distribution::words];
    for (int block = 0; block < blocks; ++block) {
      const PhiloxCounter four = stream.block(static_cast<std::uint64_t>(i * blocks + block));
      for (int word = 0; word < 4; ++word) words[4 * block + word] = four[static_cast<std::size_t>(word)];
    }
    Pack<T, width> pack;
    for (int j = 0; j < width; ++j) pack.values[j] = stored<T>(distribution(words + j * Distribution::words));
    if ((i + 1) * width <= count) {
      store_pack<width>(out + i * width, pack);
    } else {
      for (int j = 0; j < width; ++j)  // all of them, so that the pack stays in registers
        if (i * width + j < count) out[i * width + j] = pack.values[j];
    }
  }
}

}  // namespace

void CudaBackend::do_draw(const DrawCall& call) {
  constexpr std::uint32_t threads = 256;
  const std::int64_t count = call.out.element_count();
  const StepState* const step = call.step == nullptr ? nullptr : elements<const StepState>(*call.step);
  functions::visit(call.distribution, call.first, call.second, [&](auto distribution) {
    with_element_type(call.out.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const LaunchShape shape{.x = blocks_for(count, std::int64_t{threads} * widest_pack<T>),
                              .threads = threads};
      launch(runtime_, kernel_name(call.distribution), &fill_random<decltype(distribution), T>, shape,
             elements<T>(call.out), count, call.stream, step, distribution);
    });
  });
}

}  // namespace fp16lab::engine::gpu
