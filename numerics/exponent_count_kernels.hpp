// The inner loops of exponent counting, compiled once per instruction set. Internal to numerics/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fp16lab::exponent_detail {

/// Values that are counted together: 16 KiB of FP32, which stay in the first-level cache.
inline constexpr std::size_t block_size = std::size_t{1} << 12;
inline constexpr std::uint8_t byte_of_zero = 255;

/// What a block holds. lowest > highest: no finite value but zeros.
struct BlockRange {
  std::uint8_t lowest = 255;
  std::uint8_t highest = 0;
  bool finite = true;  ///< no infinity, no NaN; otherwise `bytes` has no meaning
};

/// bytes[i] = ExponentHistogram::bin_of(|values[i]|), or byte_of_zero for +-0. At most block_size values.
BlockRange exponent_bytes(std::span<const float> values, std::uint8_t* bytes);

/// counts[b] += how many of `bytes` are b, for every b in [lowest, highest]. At most block_size bytes.
void count_equal_bytes(std::span<const std::uint8_t> bytes, std::uint8_t lowest, std::uint8_t highest,
                       std::array<std::uint32_t, 256>& counts);

}  // namespace fp16lab::exponent_detail
