// The inner loops of exponent counting, compiled once per instruction set. Internal to numerics/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "numerics/formats/format.hpp"

namespace fp16lab::exponent_detail {

/// Values that are counted together: 16 KiB of FP32, which stay in the first-level cache.
inline constexpr std::size_t block_size = std::size_t{1} << 12;
inline constexpr std::uint8_t byte_of_zero = 255;

/// The FP32 magnitude bits of a block's smallest and greatest finite values that are not zero; 0: there is
/// none.
struct BlockRange {
  std::uint32_t smallest = 0;
  std::uint32_t greatest = 0;
  bool finite = true;  ///< no infinity, no NaN; otherwise nothing else here, nor `bytes`, has a meaning
};

/// The exponent field of (magnitude - 1): 0 for all magnitudes up to 2^-126, and from there on the number of
/// the bin.
inline std::uint32_t byte_of(std::uint32_t magnitude) { return (magnitude - 1u) >> Binary32::fraction_bits; }

/// bytes[i] = byte_of(|values[i]|), or byte_of_zero for +-0. At most block_size values.
BlockRange exponent_bytes(std::span<const float> values, std::uint8_t* bytes);

/// counts[b] += how many of `bytes` are b, for every b in [lowest, highest]. At most block_size bytes.
void count_equal_bytes(std::span<const std::uint8_t> bytes, std::uint8_t lowest, std::uint8_t highest,
                       std::array<std::uint32_t, 256>& counts);

}  // namespace fp16lab::exponent_detail
