// IDX, the array format of MNIST and its descendants (Y. LeCun, "The MNIST database of handwritten digits"):
// two zero bytes, a type code, the number of dimensions, big-endian 32-bit extents, then the elements,
// row-major.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fp16lab::engine::data {

/// Unsigned bytes with their extents, outermost first.
struct IdxArray {
  std::vector<std::uint32_t> extents;
  std::vector<std::uint8_t> values;
};

/// Does the file begin as an IDX file of unsigned bytes does, or as a gzip stream? std::runtime_error if it
/// cannot be read.
bool is_idx_file(const std::filesystem::path& path);

/// Reads `path`, plain or gzip-compressed (decided by its first bytes, not by its name), and checks
/// everything: the magic number for `dimensions` extents (0: one to eight) of unsigned bytes, extents that
/// are not zero and not larger than the file can hold, exactly as many elements as they say, an undamaged
/// gzip stream and nothing after the end. Anything else throws std::runtime_error "PATH: what is wrong, at
/// which byte, expected and actual".
IdxArray read_idx(const std::filesystem::path& path, int dimensions);

}  // namespace fp16lab::engine::data
