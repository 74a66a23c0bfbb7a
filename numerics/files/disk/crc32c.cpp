#include "numerics/files/disk/crc32c.hpp"

#include <array>

namespace fp16lab {

namespace {

constexpr std::uint32_t polynomial = 0x82f63b78u;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1u) != 0 ? (crc >> 1) ^ polynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ table[(crc ^ static_cast<std::uint32_t>(byte)) & 0xffu];
  return crc ^ 0xffffffffu;
}

}  // namespace fp16lab
