// Stochastic rounding to 16 bits, with 16 random bits an element: as narrow_stochastic
// (numerics/convert/convert.hpp).
#pragma once

#include <cstdint>

#include "numerics/convert/convert.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::gpu {

/// Random bits of element i, from word i / 2 of its stream: its half of the word, in the upper half of the
/// result.
__device__ __forceinline__ std::uint32_t random_half(std::uint32_t word, std::int64_t i) {
  return (i % 2 == 0 ? word & 0xffffu : word >> 16) << 16;
}
/// The same for the stream.
__device__ __forceinline__ std::uint32_t random_half(const PhiloxStream& stream, std::int64_t i) {
  return random_half(stream.word(static_cast<std::uint64_t>(i / 2)), i);
}

template <class Half>
__device__ __forceinline__ Half rounded_stochastically(float x, std::uint32_t random_bits) {
  ArithmeticOptions options(Rounding::stochastic);
  options.random_bits = random_bits;
  return narrow<typename Half::Format>(x, options);
}

}  // namespace fp16lab::engine::gpu
