// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011). Every random number is a pure function of (seed, stream, iteration, micro-batch, element), never
// of call order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Ten rounds with the paper's multipliers 0xD2511F53, 0xCD9E8D57 and Weyl constants 0x9E3779B9, 0xBB67AE85.
FP16LAB_HD constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// 64-bit FNV-1a: stream ids from module paths such as "fc1.weight".
constexpr std::uint64_t stream_id(std::string_view path) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// One stream of random words, addressed by the logical element index.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;     ///< stream_id of a module path or a role ("data.shuffle")
  std::uint32_t iteration = 0;  ///< skipped iterations count
  std::uint32_t micro_batch = 0;
  /// Blocks before that of element 0: where an array is the part of a longer one that begins at element 4
  /// first_block.
  std::uint64_t first_block = 0;

  /// The random 32-bit word of element `index`: word index % 4 of block index / 4.
  FP16LAB_HD constexpr std::uint32_t word(std::uint64_t index) const { return block(index / 4)[index % 4]; }

  /// Four words at once: seed and stream are the key, block index, iteration and micro-batch the counter.
  FP16LAB_HD constexpr PhiloxCounter block(std::uint64_t block_index) const {
    const std::uint64_t place = first_block + block_index;
    return philox4x32_10(
        {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32), iteration, micro_batch},
        key());
  }

  FP16LAB_HD constexpr PhiloxKey key() const {
    const std::uint64_t mixed = seed ^ (stream * 0x9E3779B97F4A7C15u) ^ (stream >> 29);
    return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
  }
};

/// Uniform in [0, 1): the top 24 bits as a multiple of 2^-24, exact in FP32.
FP16LAB_HD constexpr float uniform01(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
