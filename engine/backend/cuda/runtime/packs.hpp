// Packs: several neighbouring elements of a tensor in one access of 4 to 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/backend/cuda/runtime/instructions.hpp"

namespace fp16lab::engine::gpu {

/// `count` elements; the address of a pack in memory is a multiple of its size.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  static_assert(sizeof(T) * count == 4 || sizeof(T) * count == 8 || sizeof(T) * count == 16);
  T values[count];
};

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int widest_pack = static_cast<int>(16 / sizeof(T));

namespace packs_detail {
template <int bytes>
struct Word {
  using type = std::uint32_t;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};
}  // namespace packs_detail

/// The pack at `address`: one load instruction.
template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_pack(const T* address) {
  using Word = typename packs_detail::Word<sizeof(Pack<T, count>)>::type;
  return __builtin_bit_cast(Pack<T, count>, *reinterpret_cast<const Word*>(address));
}
template <int count, class T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, count>& pack) {
  using Word = typename packs_detail::Word<sizeof(Pack<T, count>)>::type;
  *reinterpret_cast<Word*>(address) = __builtin_bit_cast(Word, pack);
}

/// May packs of `bytes` bytes begin at `address`?
inline bool holds_packs(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace fp16lab::engine::gpu
