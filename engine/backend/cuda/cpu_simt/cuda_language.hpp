// The words of CUDA C++ for a compiler that does not know them. Kernels of this folder use no others.
//
// Blocks run one after the other; the threads of a block are fibers of one thread of the host (executor.hpp),
// which switch only where CUDA would let them wait for each other: at __syncthreads, __syncwarp, shuffles,
// votes and the warp's instructions. So what is not ordered by one of these may be seen in any of the
// executor's orders.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/backend/cuda/cpu_simt/executor.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier): they are CUDA's
#define __global__
#define __device__
#define __forceinline__ inline
// Two statements: kernels that are launched with dynamic shared memory must say FP16LAB_SHARED
// (instructions.hpp).
#define __shared__                                             \
  ::fp16lab::engine::cpu_simt::note_uncounted_shared_memory(); \
  static thread_local
#define __launch_bounds__(...)

namespace fp16lab::engine::cpu_simt {

#define threadIdx (::fp16lab::engine::cpu_simt::place().thread)
#define blockIdx (::fp16lab::engine::cpu_simt::place().block)
#define blockDim (::fp16lab::engine::cpu_simt::place().block_extent)
#define gridDim (::fp16lab::engine::cpu_simt::place().grid_extent)

inline void __syncthreads() { block_barrier(); }
inline void __syncwarp(std::uint32_t mask = 0xffffffffu) { warp_barrier(mask); }

/// The values that all lanes of the warp give, by lane, until this lane exchanges again; every lane must take
/// part.
template <class T>
class WarpValues {
 public:
  WarpValues(std::uint32_t mask, const T& value) : values_(warp_exchange(mask, &value, sizeof(T))) {
    static_assert(sizeof(T) <= warp_lane_bytes && std::is_trivially_copyable_v<T>);
  }
  T operator[](int lane) const {
    T value;
    std::memcpy(&value, values_ + static_cast<std::size_t>(lane) * warp_lane_bytes, sizeof(T));
    return value;
  }

 private:
  const std::byte* values_;
};

template <class T>
T __shfl_sync(std::uint32_t mask, T value, int lane, int width = 32) {
  const int self = lane_of_thread();
  return WarpValues<T>(mask, value)[(self & ~(width - 1)) + (lane & (width - 1))];
}
template <class T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned distance, int width = 32) {
  const int self = lane_of_thread(), source = self + static_cast<int>(distance);
  return WarpValues<T>(mask, value)[source / width == self / width ? source : self];
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned distance, int width = 32) {
  const int self = lane_of_thread(), source = self - static_cast<int>(distance);
  return WarpValues<T>(mask, value)[source >= 0 && source / width == self / width ? source : self];
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int bits, int width = 32) {
  const int self = lane_of_thread(), source = self ^ bits;
  // Lanes of earlier groups of `width` may be read, later ones not.
  return WarpValues<T>(mask, value)[source / width <= self / width ? source : self];
}
inline std::uint32_t __ballot_sync(std::uint32_t mask, bool vote) {
  const WarpValues<std::uint8_t> votes(mask, static_cast<std::uint8_t>(vote));
  std::uint32_t ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= std::uint32_t{votes[lane] != 0} << lane;
  return ballot;
}
inline bool __any_sync(std::uint32_t mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline bool __all_sync(std::uint32_t mask, bool vote) { return __ballot_sync(mask, vote) == 0xffffffffu; }

// One thread of the host runs a grid: a plain update is atomic.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  *address = static_cast<T>(before + value);
  return before;
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  if (value > before) *address = value;
  return before;
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  const T before = *address;
  if (value < before) *address = value;
  return before;
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T before = *address;
  if (before == expected) *address = value;
  return before;
}

// 16- and 8-byte loads and stores.
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  std::uint32_t x, y;
};

}  // namespace fp16lab::engine::cpu_simt
// NOLINTEND(bugprone-reserved-identifier)
