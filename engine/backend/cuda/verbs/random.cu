// Random fills: Philox words of the logical element index, 16 bytes of output by one thread.
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/elementwise_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

// What becomes of the words of an element; `words` of them each.
struct Uniform {
  static constexpr int words = 1;
  float low, high;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    return functions::uniform_between(low, high, uniform01(word[0]));
  }
};
struct Normal {
  static constexpr int words = 2;
  float mean, deviation;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    return functions::normal_from(mean, deviation, word[0], word[1]);
  }
};
struct Bernoulli {
  static constexpr int words = 1;
  float keep;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    return uniform01(word[0]) < keep ? 1.0f : 0.0f;
  }
};

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

template <class T, class Distribution>
void fill_tensor(Runtime& runtime, const char* name, const Tensor& out, const PhiloxStream& stream,
                 const StepState* step, const Distribution& distribution) {
  constexpr std::uint32_t threads = 256;
  const LaunchShape shape{.x = blocks_for(out.element_count(), std::int64_t{threads} * widest_pack<T>),
                          .threads = threads};
  launch(runtime, name, &fill_random<Distribution, T>, shape, elements<T>(out), out.element_count(), stream,
         step, distribution);
}

}  // namespace

void CudaBackend::fill_uniform(Tensor& out, const PhiloxStream& stream, float low, float high) {
  checks::fill_uniform(out, low, high);
  fill_tensor<float>(runtime_, "fill_uniform", out, stream, nullptr, Uniform{low, high});
}

void CudaBackend::fill_normal(Tensor& out, const PhiloxStream& stream, float mean, float deviation) {
  checks::fill_normal(out, mean, deviation);
  fill_tensor<float>(runtime_, "fill_normal", out, stream, nullptr, Normal{mean, deviation});
}

void CudaBackend::fill_bernoulli(Tensor& out, const PhiloxStream& stream, float keep, const Tensor& step) {
  checks::fill_bernoulli(out, keep, step);
  with_element_type(out.dtype(), [&](auto tag) {
    fill_tensor<decltype(tag)>(runtime_, "fill_bernoulli", out, stream, elements<const StepState>(step),
                               Bernoulli{keep});
  });
}

}  // namespace fp16lab::engine::gpu
