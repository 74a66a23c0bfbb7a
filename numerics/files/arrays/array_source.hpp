// What the formats of numerics/files/arrays/array_stream.hpp have in common. Internal to numerics/files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/files/arrays/npy_header.hpp"
#include "numerics/files/disk/input_file.hpp"

namespace fp16lab {

class ArrayFile::Source {
 public:
  virtual ~Source() = default;
  virtual const std::filesystem::path& path() const = 0;
  virtual ArrayFormat format() const = 0;
  /// Delivers the bytes of array `index` in file order to `read`, which is called once: see ByteSource.
  virtual void with_bytes(std::size_t index, const std::function<void(const ByteSource&)>& read) const = 0;

  /// The same in row-major order, whatever the file's is: see ArrayFile::visit_both.
  void with_rows(const ArrayInfo& array, const std::function<void(const ByteSource&)>& read) const;

  std::vector<ArrayInfo> arrays;
  std::vector<std::string> other_members;
  std::map<std::string, std::string> metadata;
};

/// An array of a .npy header; its index is set by the caller.
ArrayInfo array_info(const NpyHeader& header, std::string name);

std::unique_ptr<ArrayFile::Source> open_npy(const std::filesystem::path& path);
std::unique_ptr<ArrayFile::Source> open_npz(const std::filesystem::path& path);
std::unique_ptr<ArrayFile::Source> open_safetensors(const std::filesystem::path& path);

}  // namespace fp16lab
