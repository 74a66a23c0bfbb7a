// Counting what a kernel stores, for CastProbe: FP32 before the rounding, and the stored values after it.
//
// A block counts in its shared memory and adds what it has to the pending ProbeCounts of the probe once, at
// its end. Sums of integers have no order, so the counts are those of the CPU whatever the launch geometry.
// Neighbours share exponents: shared-memory increments whose result no code takes become ATOMS.POPC.INC, for
// which the lanes of a warp that meet at one address cost as much as one. The extremes stay in each thread's
// registers until the end. Nothing but the flush needs converged lanes, so tails may count as they like.
//
//   __global__ void narrow(..., ProbeCounts* probe) {
//     __shared__ BlockCounts counts;               // or somewhere in dynamic shared memory
//     BlockProbe counter(counts, probe);           // all threads of the block, a multiple of 32
//     ... out[i] = counter.narrowed<T>(wide); ...
//     counter.flush();                             // all threads of the block
//   }
#pragma once

#include <cstdint>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

/// 2272 bytes of a block's shared memory (a multiple of 16), in the order of ProbeCounts. 32 bits hold what
/// one block sees of any tensor below 2^32 elements.
struct alignas(16) BlockCounts {
  std::uint32_t before[DeviceHistogram::slots];
  std::uint32_t after[DeviceHistogram::slots];
};
static_assert(sizeof(BlockCounts) == 2272);

__device__ __forceinline__ void add_to_count(std::uint64_t* count, std::uint64_t amount) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(count), static_cast<unsigned long long>(amount));
}
__device__ __forceinline__ void raise_count(std::uint64_t* count, std::uint64_t amount) {
  atomicMax(reinterpret_cast<unsigned long long*>(count), static_cast<unsigned long long>(amount));
}

/// The counts of one DeviceHistogram, in shared memory, and one thread's extremes.
class BlockHistogram {
 public:
  __device__ __forceinline__ explicit BlockHistogram(std::uint32_t* shared) : shared_(shared) {}

  /// All threads of the block; a barrier has to follow.
  __device__ __forceinline__ void clear() const {
    for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x))
      shared_[slot] = 0;
  }
  /// Any thread, any number of times, no barrier.
  __device__ __forceinline__ void count(float x) {
    const std::uint32_t magnitude = bits_of(x) & Binary32::magnitude_mask;
    int slot = ExponentHistogram::bin_of(magnitude);
    if (magnitude == 0) slot = DeviceHistogram::zero;
    if (magnitude == Binary32::infinity) slot = DeviceHistogram::infinite;
    if (magnitude > Binary32::infinity) slot = DeviceHistogram::nan;
    atomicAdd(&shared_[slot], 1u);
    const bool in_a_bin = slot < DeviceHistogram::zero;
    const std::uint32_t low = in_a_bin ? Binary32::infinity - magnitude : 0, high = in_a_bin ? magnitude : 0;
    smallest_ = low > smallest_ ? low : smallest_;
    greatest_ = high > greatest_ ? high : greatest_;
  }
  /// All threads of the block, after the last count; a barrier has to follow, and then add_to.
  __device__ __forceinline__ void gather() const {
    raise_shared(DeviceHistogram::smallest, smallest_);
    raise_shared(DeviceHistogram::greatest, greatest_);
  }
  /// All threads of the block.
  __device__ __forceinline__ void add_to(std::uint64_t* counts) const {
    for (int slot = static_cast<int>(threadIdx.x); slot < slots; slot += static_cast<int>(blockDim.x)) {
      const std::uint32_t mine = shared_[slot];
      if (mine == 0) continue;
      if (slot < DeviceHistogram::counts) {
        add_to_count(&counts[slot], mine);
      } else {
        raise_count(&counts[slot], mine);
      }
    }
  }

 private:
  static constexpr int slots = DeviceHistogram::slots;

  /// One atomic a warp.
  __device__ __forceinline__ void raise_shared(int slot, std::uint32_t value) const {
    for (int distance = 16; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, value, distance);
      value = other > value ? other : value;
    }
    if (threadIdx.x % 32 == 0 && value != 0) atomicMax(&shared_[slot], value);
  }

  std::uint32_t* shared_;
  std::uint32_t smallest_ = 0, greatest_ = 0;  ///< as DeviceHistogram has them
};

/// Counts for a ProbeCounts*, or nothing at all where it is null: then no barrier, no shared memory is
/// touched, and each call is one branch that the whole grid takes alike.
class BlockProbe {
 public:
  /// All threads of the block, with the same arguments. One barrier.
  __device__ __forceinline__ BlockProbe(BlockCounts& shared, ProbeCounts* counts)
      : before_(shared.before), after_(shared.after), counts_(counts) {
    if (counts_ == nullptr) return;
    before_.clear();
    after_.clear();
    __syncthreads();
  }

  /// Any thread, any number of times, no barrier.
  __device__ __forceinline__ void count_before(float x) {
    if (counts_ != nullptr) before_.count(x);
  }
  /// A stored value: 16-bit ones count as the FP32 number that they are.
  template <class T>
  __device__ __forceinline__ void count_after(T x) {
    if (counts_ != nullptr) after_.count(loaded(x));
  }
  /// `wide` rounded to T; both sides counted.
  template <class T>
  __device__ __forceinline__ T narrowed(float wide) {
    const T narrow = stored<T>(wide);
    count_before(wide);
    count_after(narrow);
    return narrow;
  }

  /// All threads of the block, once, after the last count. Has a barrier; the shared counts may be reused for
  /// something else after another one.
  __device__ __forceinline__ void flush() const {
    if (counts_ == nullptr) return;
    before_.gather();
    after_.gather();
    __syncthreads();
    before_.add_to(counts_->before);
    after_.add_to(counts_->after);
  }

 private:
  BlockHistogram before_, after_;
  ProbeCounts* counts_;
};

}  // namespace fp16lab::engine::gpu
