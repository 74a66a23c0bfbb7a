// The header of a .npy array, numpy's own file format (NEP 1; numpy/lib/format.py describes versions 2.0 and
// 3.0).
//
//   6 bytes   93 'N' 'U' 'M' 'P' 'Y'
//   2 bytes   version: 1.0, 2.0 or 3.0
//   2 bytes   length N of the header, unsigned, little-endian; 4 bytes from version 2.0 on
//   N bytes   a Python dict literal, {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded with
//             spaces, the last byte a newline; Latin-1, UTF-8 in version 3.0
//   the rest  the elements, row-major, or column-major with fortran_order
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/disk/input_file.hpp"

namespace fp16lab {

struct NpyHeader {
  std::string descr{};  ///< "<f4", or the text of a structured type's list
  /// The parts of 'descr' "<f4": '<', 'f' and 4. Structured types and Python objects have no kind that is
  /// known here: '\0'.
  char byte_order = '\0';
  char kind = '\0';
  std::optional<std::uint64_t> element_bytes{};  ///< absent where 'descr' does not say
  bool fortran_order = false;
  std::vector<std::uint64_t> shape{};  ///< empty: a scalar
  std::uint64_t data_offset = 0;       ///< first byte of the elements

  std::uint64_t element_count() const;
  /// Absent where element_bytes is. element_count() * *element_bytes is below 2^64 in every header that was
  /// read.
  std::optional<std::uint64_t> data_bytes() const;
};

/// Fills as much of the span as there is and returns how much that was: less only at the end.
using ByteSource = std::function<std::size_t(std::span<std::byte>)>;

/// Reads a header from the beginning of `available` bytes. DamagedBytes for everything that is not one,
/// before it allocates a length that the bytes merely claim.
NpyHeader read_npy_header(const ByteSource& source, std::uint64_t available);

}  // namespace fp16lab
