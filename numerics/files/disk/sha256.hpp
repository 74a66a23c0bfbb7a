// SHA-256 (FIPS 180-4), to say in a run's manifest exactly which data it saw.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace fp16lab {

class Sha256 {
 public:
  /// `own_instructions`: with the CPU's SHA instructions, where it has them; the same digests five times as
  /// fast.
  explicit Sha256(bool own_instructions = true);

  void update(std::span<const std::byte> data);
  void update(std::string_view data);
  /// 64 lower-case hex digits of everything so far. Ends the message: update() afterwards throws
  /// std::logic_error.
  std::string hex_digest();

 private:
  void compress(const std::byte* blocks, std::size_t count);  ///< of 64 bytes each

  bool own_instructions_;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  std::uint64_t length_ = 0;  ///< bytes so far
  bool finished_ = false;
};

std::string sha256_of(std::string_view data);
/// Reads the file in blocks. std::runtime_error if it cannot be read or is no regular file.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace fp16lab
