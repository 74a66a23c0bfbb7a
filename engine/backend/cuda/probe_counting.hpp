// Counting what a kernel stores, for CastProbe: FP32 before the rounding, and the stored values after it.
//
// A block counts in its shared memory and adds what it has to the pending ProbeCounts of the probe once, at its end. Sums
// of integers have no order, so the counts are those of the CPU whatever the launch geometry. Neighbours share exponents:
// shared-memory increments whose result nobody takes become ATOMS.POPC.INC, for which the lanes of a warp that meet at
// one address cost as much as one. Nothing here needs converged lanes, so tails may count as they like.
//
//   __global__ void narrow(..., ProbeCounts* probe) {
//     __shared__ BlockCounts counts;               // or somewhere in dynamic shared memory
//     const BlockProbe counter(counts, probe);     // all threads of the block
//     ... out[i] = counter.narrowed<T>(wide); ...
//     counter.flush();                             // all threads of the block
//   }
#pragma once

#include <cstdint>

#include "engine/backend/cuda/backend_impl.hpp"
#include "engine/backend/cuda/instructions.hpp"
#include "engine/backend/cuda/machine.hpp"

namespace fp16lab::engine::FP16LAB_MACHINE {

/// 2064 bytes of a block's shared memory (a multiple of 16), in the order of ProbeCounts. 32 bits hold what one block sees
/// of any tensor below 2^32 elements.
struct BlockCounts {
  std::uint32_t before[DeviceHistogram::slots];
  std::uint32_t after[DeviceHistogram::slots];
};

/// The slot of a value given as FP32.
__device__ __forceinline__ int probe_slot(float x) {
  const std::uint32_t magnitude = bits_of(x) & Binary32::magnitude_mask;
  int slot = ExponentHistogram::bin_of(magnitude);
  if (magnitude == 0) slot = DeviceHistogram::zero;
  if (magnitude == Binary32::infinity) slot = DeviceHistogram::infinite;
  if (magnitude > Binary32::infinity) slot = DeviceHistogram::nan;
  return slot;
}

__device__ __forceinline__ void add_to_count(std::uint64_t* count, std::uint64_t amount) {
#if defined(__CUDA_ARCH__)
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(count), static_cast<unsigned long long>(amount));
#elif defined(FP16LAB_ON_HOST)
  atomicAdd(count, amount);
#endif
}

/// Counts for a ProbeCounts*, or nothing at all where it is null: then no barrier, no shared memory is touched, and each
/// call is one branch that the whole grid takes alike.
class BlockProbe {
 public:
  /// All threads of the block, with the same arguments. One barrier.
  __device__ __forceinline__ BlockProbe(BlockCounts& shared, ProbeCounts* counts)
      : shared_(&shared), counts_(counts) {
    if (counts_ == nullptr) return;
    for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x)) {
      shared_->before[slot] = 0;
      shared_->after[slot] = 0;
    }
    __syncthreads();
  }

  /// Any thread, any number of times, no barrier.
  __device__ __forceinline__ void count_before(float x) const {
    if (counts_ != nullptr) atomicAdd(&shared_->before[probe_slot(x)], 1u);
  }
  /// A stored value: 16-bit ones count as the FP32 number that they are.
  template <class T>
  __device__ __forceinline__ void count_after(T x) const {
    if (counts_ != nullptr) atomicAdd(&shared_->after[probe_slot(loaded(x))], 1u);
  }
  /// `wide` rounded to T; both sides counted.
  template <class T>
  __device__ __forceinline__ T narrowed(float wide) const {
    const T narrow = stored<T>(wide);
    count_before(wide);
    count_after(narrow);
    return narrow;
  }

  /// All threads of the block, once, after the last count. Begins with a barrier; the shared counts may be reused for
  /// something else after another one.
  __device__ __forceinline__ void flush() const {
    if (counts_ == nullptr) return;
    __syncthreads();
    for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x)) {
      if (shared_->before[slot] != 0) add_to_count(&counts_->before[slot], shared_->before[slot]);
      if (shared_->after[slot] != 0) add_to_count(&counts_->after[slot], shared_->after[slot]);
    }
  }

 private:
  static constexpr int slots = DeviceHistogram::slots;
  BlockCounts* shared_;
  ProbeCounts* counts_;
};

}  // namespace fp16lab::engine::FP16LAB_MACHINE
