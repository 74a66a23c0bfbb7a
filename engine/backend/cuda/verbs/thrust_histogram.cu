// The CUDA build of numerics/histogram/exponent_count_thrust-inl.h; its OpenMP build runs on the CPU.
#include "engine/backend/cuda/verbs/thrust_histogram.hpp"

#define THRUST_CUB_WRAPPED_NAMESPACE fp16lab  // as in indexing.cu: kernels' names without architectures
#include <thrust/system/cuda/execution_policy.h>

#include <algorithm>
#include <string>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "numerics/histogram/exponent_count_thrust-inl.h"

namespace fp16lab::engine::gpu {
namespace {

/// A strip has so many elements at least; no more strips pay than a device has threads at work.
constexpr std::uint64_t least_of_strip = 32, most_strips = 1u << 15;

}  // namespace

void count_by_thrust(CudaBackend& backend, const Tensor& x, ExponentHistogram& out) {
  const auto size = static_cast<std::uint64_t>(x.element_count());
  if (size == 0) return;
  const auto bytes = [&](std::size_t count, std::size_t each) {
    return backend.empty({static_cast<std::int64_t>(count * each)}, DType::u8);
  };
  const StripLayout layout{
      .strips = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(size / least_of_strip, 1, most_strips)),
      .side_by_side = true};
  const Tensor table = bytes(layout.table_size(), sizeof(std::uint32_t)),
               parts = bytes(row_count * part_count, sizeof(std::uint64_t)),
               totals = bytes(row_count, sizeof(std::uint64_t));
  const auto policy = thrust::cuda::par.on(static_cast<cudaStream_t>(backend.runtime().stream()));
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (std::uint64_t begin = 0; begin < size; begin += counted_at_once) {
      try {
        count_by_strips(policy, elements<const T>(x) + begin, std::min(counted_at_once, size - begin), layout,
                        reinterpret_cast<std::uint32_t*>(table.data()),
                        reinterpret_cast<std::uint64_t*>(parts.data()),
                        reinterpret_cast<std::uint64_t*>(totals.data()));
      } catch (const std::exception& error) {  // thrust::system_error, std::bad_alloc
        throw DeviceFailure(std::string("histogram: ") + error.what());
      }
      std::uint64_t host_totals[row_count];
      backend.runtime().copy_to_host(reinterpret_cast<std::byte*>(host_totals), totals.data(),
                                     sizeof(host_totals));
      add_totals(host_totals, out);
    }
  });
}

}  // namespace fp16lab::engine::gpu
