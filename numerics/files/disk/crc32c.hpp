// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fp16lab {

/// As iSCSI computes it (RFC 3720, B.4): reflected polynomial 0x82f63b78, all bits inverted before and after.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// As TFRecord stores it: rotated right by 15 bits, plus 0xa282ead8, so that the checksum of data that hold
/// checksums is a good one still.
constexpr std::uint32_t masked_crc(std::uint32_t crc) {
  return static_cast<std::uint32_t>((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace fp16lab
