// safetensors: named tensors in one file, readable by the safetensors packages of Python and Rust.
//
//   8 bytes   length N of the header, unsigned, little-endian; N <= 100 000 000
//   N bytes   JSON: {"__metadata__": {string: string}, "NAME": {"dtype": "F32", "shape": [2, 3],
//             "data_offsets": [begin, end]}, ...}, padded with spaces at its end
//   the rest  the tensors' elements, little-endian, row-major, without holes; offsets count from here.
//             F4 has two elements in a byte, the first one in the lower half (dtype.hpp, file_bits_of)
//
// (https://huggingface.co/docs/safetensors, "Format".) The reader checks all of that and trusts nothing, but
// for the shape of a tensor whose dtype it does not know (F6_E2M3, C64 and whatever comes next), which
// says nothing about its bytes: every error is a std::runtime_error "PATH: tensor 'NAME': what, expected and
// actual". The writer replaces the file atomically, orders tensors by falling element size and then by name,
// and pads the header so that the data begin at a multiple of 8: every tensor then begins at a multiple of
// its element size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab {

/// A tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;
  std::optional<DType> type{};         ///< absent: another one than ours, whose bytes alone can be read
  std::string dtype{};                 ///< as the file spells it: "F32", "F6_E2M3"
  std::vector<std::uint64_t> shape{};  ///< empty: a scalar
  std::uint64_t begin = 0;             ///< first byte, counted from the end of the header
  std::uint64_t end = 0;               ///< one past the last byte

  std::uint64_t byte_count() const { return end - begin; }
  /// "F32 (2, 3)", for messages.
  std::string describe() const;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// An open file whose header has been read and checked; elements are read on request.
class SafetensorsReader {
 public:
  /// std::runtime_error unless the file is there and well formed.
  explicit SafetensorsReader(std::filesystem::path path);

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// nullptr if there is none of this name.
  const SafetensorsEntry* find(std::string_view name) const;
  /// Offset of its first element in the file.
  std::uint64_t offset_of(const SafetensorsEntry& entry) const { return data_begin_ + entry.begin; }
  /// Copies the elements of an entry of this file; `out` must have byte_count() bytes.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out) const;
  std::vector<std::byte> read(const SafetensorsEntry& entry) const;
  /// Copies out.size() bytes of them from byte `first` of the entry on; std::invalid_argument if it does not
  /// have them.
  void read(const SafetensorsEntry& entry, std::uint64_t first, std::span<std::byte> out) const;

 private:
  InputFile file_;
  std::uint64_t data_begin_ = 0;
  SafetensorsMetadata metadata_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string_view, std::size_t> by_name_;
};

/// A tensor to write. `fetch` puts its elements, little-endian, into a buffer of exactly their size; it is
/// called once, so only one tensor at a time is held beside its owner's memory.
struct SafetensorsSource {
  std::string name;
  DType type = DType::f32;
  std::vector<std::uint64_t> shape;
  std::function<void(std::span<std::byte>)> fetch;
};

/// A source of the elements of `bytes`, which it copies.
SafetensorsSource safetensors_source(std::string name, DType type, std::vector<std::uint64_t> shape,
                                     std::span<const std::byte> bytes);

/// Replaces `path` by a file of these tensors. The same input gives the same bytes, in whatever order the
/// sources come. std::invalid_argument on an empty or repeated name, the name "__metadata__", or text that is
/// not UTF-8; std::runtime_error if the file cannot be written. `named_by`: what may be replaced or written
/// into (atomic_file.hpp).
void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsSource> sources,
                       const SafetensorsMetadata& metadata = {}, NamedBy named_by = NamedBy::program);

}  // namespace fp16lab
