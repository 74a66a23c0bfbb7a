// The CUDA build of numerics/histogram/exponent_count_thrust-inl.h. Not among the sources that the host
// machine executes: it has no Thrust for a machine of its own, and the algorithm runs on the CPU in its
// OpenMP build.
#include "engine/backend/cuda/verbs/sorted_histogram.hpp"

#define THRUST_CUB_WRAPPED_NAMESPACE fp16lab  // as in indexing.cu: kernels' names without architectures
#include <thrust/system/cuda/execution_policy.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "numerics/histogram/exponent_count_thrust-inl.h"

namespace fp16lab::engine {
namespace {

/// Elements whose keys are sorted at once.
constexpr std::int64_t part_size = std::int64_t{1} << 28;

template <class T>
T* words(const Tensor& bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

}  // namespace

void sorted_histogram(Backend& backend, const Tensor& x, ExponentHistogram& out) {
  auto* const cuda = dynamic_cast<gpu::CudaBackend*>(&backend);
  if (cuda == nullptr)
    throw std::invalid_argument("sorted_histogram: the back end is " + std::string(backend.name()) +
                                "; expected the one that make_cuda_backend makes");
  if (cuda->runtime().recording())
    throw std::logic_error(
        "sorted_histogram: it waits for the device, which a recorded step cannot; call it outside "
        "of Backend::record");
  checks::histogram(x);
  const std::int64_t size = x.element_count();
  if (size == 0) return;
  const auto bytes = [&](std::int64_t count, std::size_t each) {
    return backend.empty({count * static_cast<std::int64_t>(each)}, DType::u8);
  };
  const Tensor keys = bytes(std::min(size, part_size), sizeof(std::uint32_t));
  const Tensor ends = bytes(edge_count, sizeof(std::uint64_t)),
               counts = bytes(slot_count, sizeof(std::uint64_t));
  const auto policy = thrust::cuda::par.on(static_cast<cudaStream_t>(cuda->runtime().stream()));
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t begin = 0; begin < size; begin += part_size) {
      try {
        count_by_sorting(policy, gpu::elements<const T>(x) + begin, std::min(part_size, size - begin),
                         words<std::uint32_t>(keys), words<std::uint64_t>(ends),
                         words<std::uint64_t>(counts));
      } catch (const std::exception& error) {  // thrust::system_error, std::bad_alloc
        throw DeviceFailure(std::string("sorted_histogram: ") + error.what());
      }
      std::uint64_t host_counts[slot_count];
      cuda->runtime().copy_to_host(reinterpret_cast<std::byte*>(host_counts), counts.data(),
                                   sizeof(host_counts));
      add_counts(host_counts, out);
    }
  });
}

}  // namespace fp16lab::engine
