// Rounding to BF16 with integers, for devices that have no conversion (sm_75).
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::gpu {

/// The BF16 nearest to an FP32 of these bits, ties to even: the upper half, plus one where the lower half is
/// more than half of its last place, or half of it and that place is odd. A carry goes into the exponent, and
/// from the largest number into infinity. A NaN becomes the canonical one.
FP16LAB_HD constexpr std::uint16_t bf16_bits(std::uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace fp16lab::engine::gpu
