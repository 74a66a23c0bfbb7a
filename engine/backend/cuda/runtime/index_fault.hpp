// Indices out of range on a device that runs asynchronously: kernels note the first one, and the next verb
// that hands numbers to the host throws it (CudaBackend::raise_noted_fault).
//
// "First" does not depend on the order of threads: it is the first verb on the stream (a later launch finds
// the fault taken), and the lowest of a verb's rows.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace fp16lab::engine::gpu {

enum class IndexVerb : std::uint32_t { pick, place, gather_rows, scatter_rows, pool_pick, pool_place };

/// In device memory; all zero: none.
struct IndexFault {
  std::uint32_t owner;  ///< the launch that it belongs to
  IndexVerb verb;
  std::int64_t limit;
  std::uint64_t inverse;  ///< ~(row << 32 | value's 32 bits): its maximum is the lowest row
};

/// What a kernel needs to look after the indices of one call of a verb; from CudaBackend::index_check.
struct IndexCheck {
  IndexFault* fault;
  std::uint32_t launch;  ///< not 0, another one for every call
  IndexVerb verb;
  std::int64_t limit;
};

#if defined(__CUDACC__)
/// Is index[row] == value in [0, limit)? If not, it is noted, and the kernel must not use it.
__device__ __forceinline__ bool index_in_range(const IndexCheck& check, std::int64_t row,
                                               std::int32_t value) {
  if (value >= 0 && value < check.limit) return true;
  IndexFault& fault = *check.fault;
  const std::uint32_t owner = atomicCAS(&fault.owner, 0u, check.launch);
  if (owner == 0 || owner == check.launch) {
    if (owner == 0) {  // one thread alone: plain stores of the same value race, too
      fault.verb = check.verb;
      fault.limit = check.limit;
    }
    const std::uint64_t inverse =
        ~(static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint32_t>(value));
    atomicMax(reinterpret_cast<unsigned long long*>(&fault.inverse),
              static_cast<unsigned long long>(inverse));
  }
  return false;
}
#endif

}  // namespace fp16lab::engine::gpu
